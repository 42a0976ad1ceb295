// Gradients, masters and moments in narrow types: the bytes that last, and those that an update
// moves.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "graph/op_table.h"
#include "passes/pipeline.h"

namespace plimsoll {
namespace {

Job nano_in_bf16() {
  Job job = read_job(std::filesystem::path(PLIMSOLL_SOURCE_DIR) / "tests/gpt-nano.json");
  job.precision = DType::bf16;
  return job;
}

Program sharded_program(const std::string& fields) {
  const Job job = nano_in_bf16();
  const Strategy strategy = parse_strategy("sharding_degree=2" + fields);
  const Framework framework = framework_by_name("megatron-lm");
  const Verdict verdict = legal(job, strategy, 2);
  EXPECT_TRUE(verdict) << verdict.reason();
  const Verdict possible = legal(framework, strategy);
  EXPECT_TRUE(possible) << possible.reason();
  return lower({job, strategy, framework}).front();
}

std::map<std::string, std::int64_t> lasting(const Program& program) {
  std::map<std::string, std::int64_t> bytes;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.persistent) bytes[buffer.name] = buffer.bytes.count();
  }
  return bytes;
}

/// Bytes that the update moves, and the type of the gradients that it reads.
std::pair<std::int64_t, DType> update_of(const Program& program) {
  for (const Routine& routine : program.routines) {
    for (const Op& op : routine.ops) {
      if (op.kind != OpKind::adamw && op.kind != OpKind::adamw_8bit) continue;
      return {bytes_moved(op, routine.tensors).count(),
              routine.tensors[op.inputs[1].index()].dtype};
    }
  }
  ADD_FAILURE() << "no update";
  return {};
}

bool casts_gradients(const Program& program) {
  for (const Routine& routine : program.routines) {
    for (const Slot& slot : routine.slots) {
      if (slot.kind == SlotKind::main_gradients) return true;
    }
  }
  return false;
}

TEST(OptimizerTypes, StatesTakeTheBytesOfTheirTypes) {
  const Program wide = sharded_program("");
  const auto plain = lasting(wide);
  const std::int64_t part = plain.at("first_moment") / 4;  // elements of a rank's shard
  EXPECT_EQ(plain.at("master_parameters"), 4 * part);
  // Masters and moments read and written, gradients read, bf16 parameters written.
  EXPECT_EQ(update_of(wide), std::pair((7 * 4 + 2) * part, DType::f32));
  struct Case {
    const char* fields;
    std::int64_t master, moment;  ///< bytes of an element
  };
  for (const Case& c : {Case{",moment_type=bf16", 4, 2}, Case{",moment_type=f16", 4, 2},
                        Case{",moment_type=fp8", 4, 1}, Case{",main_parameter_type=f16", 2, 4},
                        Case{",main_parameter_type=remainder", 2, 4},
                        Case{",main_parameter_type=remainder,moment_type=bf16", 2, 2}}) {
    const Program narrow = sharded_program(c.fields);
    const auto bytes = lasting(narrow);
    EXPECT_EQ(bytes.at("master_parameters"), c.master * part) << c.fields;
    EXPECT_EQ(bytes.at("first_moment"), c.moment * part) << c.fields;
    EXPECT_EQ(bytes.at("second_moment"), c.moment * part) << c.fields;
    EXPECT_EQ(bytes.at("parameters"), plain.at("parameters")) << c.fields;
    EXPECT_EQ(bytes.at("gradients"), plain.at("gradients")) << c.fields;
    EXPECT_EQ(update_of(narrow).first, (2 * c.master + 4 * c.moment + 4 + 2) * part) << c.fields;
  }
}

/// Bytes of parameters, gradients and states for each element, where nothing is sharded.
double bytes_per_element(const std::string& fields) {
  const Job job = nano_in_bf16();
  const Strategy strategy = parse_strategy("dp=1" + fields);
  const Framework framework = framework_by_name("pytorch-fsdp");
  EXPECT_TRUE(legal(job, strategy, 1)) << legal(job, strategy, 1).reason();
  const Program program = lower({job, strategy, framework}).front();
  std::int64_t elements = 0, bytes = 0;
  for (const Bucket& bucket : program.buckets) elements += bucket.elements;
  for (const auto& [name, size] : lasting(program)) {
    if (name != "scalars" && name != "workspace") bytes += size;
  }
  return double(bytes) / double(elements);
}

// Mixed precision takes 2 + 4 + 4 + 8 bytes. Without masters parameters, gradients and moments have
// 16 bits; moments of 8 bits have an f32 scale for 256 (bitsandbytes).
TEST(OptimizerTypes, WithoutMastersAParameterTakesEightBytes) {
  const std::string pure =
      ",main_parameter_type=none,gradient_type=computed,main_gradient_type=computed";
  EXPECT_DOUBLE_EQ(bytes_per_element(""), 18);
  EXPECT_DOUBLE_EQ(bytes_per_element(pure + ",moment_type=bf16"), 8);
  EXPECT_NEAR(bytes_per_element(pure + ",moment_type=block8"), 4 + 2 * (1 + 4.0 / 256), 1e-4);
  EXPECT_NEAR(bytes_per_element(",moment_type=block8"), 10 + 2 * (1 + 4.0 / 256), 1e-4);
}

TEST(OptimizerTypes, WithoutMastersTheUpdateWorksOnParameters) {
  Job job = nano_in_bf16();
  const Strategy strategy = parse_strategy(
      "sharding_degree=2,sharding_stage=3,main_parameter_type=none,gradient_type=computed,"
      "main_gradient_type=computed,moment_type=bf16");
  const Program program = lower({job, strategy, framework_by_name("pytorch-fsdp")}).front();
  const auto bytes = lasting(program);
  EXPECT_FALSE(bytes.contains("master_parameters"));
  const std::int64_t part = bytes.at("parameters") / 2;
  // Parameters and moments read and written, gradients read.
  EXPECT_EQ(update_of(program), std::pair((3 * 4 + 2) * part, DType::bf16));
}

// Scales are an operand of the update, and no rank's part cuts a block.
TEST(OptimizerTypes, TheUpdateReadsAndWritesTheScalesOfItsBlocks) {
  const Job job = nano_in_bf16();
  for (const char* fields : {"dp=1", "sharding_degree=4", "mp=2,sharding_degree=2"}) {
    const Strategy strategy = parse_strategy(fields + std::string(",moment_type=block8"));
    for (const Program& program : lower({job, strategy, bundled_framework()})) {
      const auto bytes = lasting(program);
      const std::int64_t part = bytes.at("first_moment");
      EXPECT_EQ(part % kMomentBlock, 0);
      EXPECT_EQ(bytes.at("moment_scales"), 2 * 4 * part / kMomentBlock);
      // Masters, moments and scales read and written, gradients read, bf16 parameters written.
      EXPECT_EQ(update_of(program).first,
                (8 + 2 * 2 + 4 + 2) * part + 2 * bytes.at("moment_scales"));
      for (const Segment& segment : program.segments) EXPECT_EQ(segment.offset % kMomentBlock, 0);
      for (const Bucket& bucket : program.buckets)
        EXPECT_EQ(bucket.elements % (program.sharding_degree * kMomentBlock), 0);
    }
  }
}

TEST(OptimizerTypes, TheBundledRuntimeRefusesWhatItDoesNotExecute) {
  for (const char* fields : {"main_parameter_type=f16", "main_parameter_type=remainder",
                             "moment_type=fp8", "moment_type=f16"}) {
    const std::string key(fields, std::string_view(fields).find('='));
    for (const Framework* one : {&bundled_framework(), &bundled_cuda_framework()})
      EXPECT_TRUE(legal(*one, parse_strategy(fields)).reason().starts_with(key + " is ")) << fields;
  }
  for (const char* fields : {"main_parameter_type=none,stochastic_rounding=true",
                             "moment_type=block8", "moment_type=bf16"})
    EXPECT_TRUE(legal(bundled_framework(), parse_strategy(fields))) << fields;
}

TEST(OptimizerTypes, TheUpdateReadsGradientsAsTheyAre) {
  const auto plain = lasting(sharded_program(""));
  const Program cast = sharded_program(",gradient_type=computed");
  EXPECT_EQ(lasting(cast).at("gradients"), plain.at("gradients") / 2);
  EXPECT_TRUE(casts_gradients(cast));
  EXPECT_EQ(update_of(cast).second, DType::f32);
  const Program read = sharded_program(",gradient_type=computed,main_gradient_type=computed");
  EXPECT_EQ(lasting(read), lasting(cast));
  EXPECT_FALSE(casts_gradients(read));
  EXPECT_EQ(update_of(read).second, DType::bf16);
  EXPECT_LT(update_of(read).first, update_of(cast).first);
}

TEST(OptimizerTypes, ParametersOfEightBitProductsAreKeptAndGatheredInThem) {
  const Program wide = sharded_program(",fp8=delayed"),
                narrow = sharded_program(",fp8=delayed,fp8_parameters=true");
  // The weights of 4 layers are queries, keys and values, output, and two of the MLP.
  constexpr std::int64_t kWeights = 4 * (64 * 192 + 64 * 64 + 2 * 64 * 256);
  std::int64_t eight = 0, sixteen = 0;
  for (const Segment& segment : narrow.segments) {
    (segment.dtype == DType::e4m3 ? eight : sixteen) += segment.elements;
  }
  EXPECT_EQ(eight, kWeights);
  EXPECT_GT(sixteen, 0);
  const std::int64_t saved = lasting(wide).at("parameters") - lasting(narrow).at("parameters");
  EXPECT_NEAR(double(saved), double(kWeights), 0.05 * double(kWeights));  // but for padding
  EXPECT_EQ(lasting(narrow).at("master_parameters"), lasting(narrow).at("first_moment"));
  std::int64_t gathered = 0, gathered_before = 0;
  for (const auto& [program, bytes] : {std::pair(&narrow, &gathered), {&wide, &gathered_before}}) {
    for (const Call& call : program->calls) {
      const Routine& routine = program->at(call.routine);
      if (routine.ops.size() != 1 || routine.ops[0].kind != OpKind::all_gather) continue;
      *bytes += bytes_moved(routine.ops[0], routine.tensors).count();
    }
  }
  EXPECT_NEAR(double(gathered_before - gathered), double(kWeights), 0.05 * double(kWeights));
  // One copy for the products that read them transposed, where there were two.
  EXPECT_EQ(lasting(wide).at("weight_copies"), 2 * kWeights);
  EXPECT_EQ(lasting(narrow).at("weight_copies"), kWeights);
}

TEST(OptimizerTypes, TheirRules) {
  Job job = nano_in_bf16();
  const auto reason = [&](const std::string& fields) {
    return legal(job, parse_strategy("sharding_degree=2," + fields), 2).reason();
  };
  EXPECT_EQ(reason("moment_type=bf16,flatten=none,sharding_owner=prefix"),
            "moment_type is not f32; flatten must be fused");
  EXPECT_EQ(reason("moment_type=bf16,sharding_owner=prefix"),
            "moment_type is not f32; sharding_owner must be elements");
  EXPECT_EQ(reason("main_parameter_type=f16,cast_placement=every_use"),
            "main_parameter_type is not f32; cast_placement must be fused");
  EXPECT_EQ(reason("main_gradient_type=computed"),
            "main_gradient_type is not f32; gradient_type must be computed, too");
  EXPECT_EQ(reason("main_parameter_type=remainder"), "");
  for (const char* fields :
       {"stochastic_rounding=true", "moment_type=bf16,stochastic_rounding=true"})
    EXPECT_EQ(reason(fields), "stochastic_rounding goes with main_parameter_type none") << fields;
  for (const char* fields : {"fp8_parameters=true", "fp8=rowwise,fp8_parameters=true"})
    EXPECT_TRUE(reason(fields).starts_with("fp8_parameters goes with fp8 delayed")) << fields;
  for (const char* recipe : {"current", "mxfp8", "blockwise"})
    EXPECT_EQ(reason(std::string("fp8_parameters=true,fp8=") + recipe), "") << recipe;
  EXPECT_NE(reason("fp8=delayed,fp8_parameters=true,sharding_stage=3").find("must be 0 or 1"),
            std::string::npos);
  EXPECT_NE(reason("fp8=delayed,fp8_parameters=true,main_parameter_type=remainder").find("bf16"),
            std::string::npos);
  job.precision = DType::f16;
  EXPECT_EQ(reason("main_parameter_type=f16"), "");
  EXPECT_NE(reason("main_parameter_type=remainder").find("bf16"), std::string::npos);
  job.precision = DType::f32;
  EXPECT_EQ(reason("moment_type=bf16"),
            "moment_type is not f32; that goes with a job in bf16 or fp16, not fp32");
  job = nano_in_bf16();
  job.optimizer.kind = OptimizerKind::lamb;
  EXPECT_EQ(reason("moment_type=bf16"), "moment_type is not f32; the optimizer must be adamw");
}

}  // namespace
}  // namespace plimsoll
