// The host updates a share of the parameters: what lasts on the device and on the host, what is
// copied, and in which calls.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "graph/op_table.h"
#include "passes/pipeline.h"

namespace plimsoll {
namespace {

Job nano_bf16() {
  Job job = read_job(std::filesystem::path(PLIMSOLL_SOURCE_DIR) / "tests/gpt-nano.json");
  job.precision = DType::bf16;
  return job;
}

Program lowered(const Job& job, const std::string& fields,
                const char* framework_name = "megatron-lm") {
  const Strategy strategy = parse_strategy(fields);
  const Framework framework = framework_by_name(framework_name);
  const std::int64_t devices = grid_of(strategy).world_size();
  const Verdict verdict = legal(job, strategy, devices), possible = legal(framework, strategy);
  EXPECT_TRUE(verdict) << verdict.reason();
  EXPECT_TRUE(possible) << possible.reason();
  return lower({job, strategy, framework}).front();
}

std::map<std::string, std::int64_t> lasting(const Program& program, bool on_host) {
  std::map<std::string, std::int64_t> bytes;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.persistent && buffer.on_host == on_host) bytes[buffer.name] = buffer.bytes.count();
  }
  return bytes;
}

/// The bytes that all ops of a kind move in a step.
std::int64_t moved(const Program& program, OpKind kind) {
  std::int64_t bytes = 0;
  for (const Call& call : program.calls) {
    const Routine& routine = program.at(call.routine);
    for (const Op& op : routine.ops) {
      if (op.kind == kind) bytes += bytes_moved(op, routine.tensors).count();
    }
  }
  return bytes;
}

std::int64_t calls_with(const Program& program, OpKind kind) {
  std::int64_t calls = 0;
  for (const Call& call : program.calls) {
    for (const Op& op : program.at(call.routine).ops) calls += op.kind == kind;
  }
  return calls;
}

TEST(OffloadOptimizer, SharesOfStatesMoveToTheHost) {
  for (const char* stage : {"1", "2", "3"}) {
    const std::string sharded = std::string("sharding_degree=2,sharding_stage=") + stage;
    const char* framework = "megatron-deepspeed";
    const Program plain = lowered(nano_bf16(), sharded, framework);
    const std::int64_t part = lasting(plain, false).at("first_moment") / 4;
    EXPECT_EQ(host_bytes(plain), Bytes());
    for (const std::int64_t percent : {1, 50, 100}) {
      SCOPED_TRACE(sharded + " " + std::to_string(percent));
      const Program program =
          lowered(nano_bf16(), sharded + ",offload_optimizer_percent=" + std::to_string(percent),
                  framework);
      const std::int64_t host = (part * percent + 99) / 100, rest = part - host;
      auto expected = lasting(plain, false);
      for (const char* state : {"master_parameters", "first_moment", "second_moment"}) {
        expected[state] = 4 * rest;
        if (rest == 0) expected.erase(state);
      }
      std::map<std::string, std::int64_t> there;
      for (const char* state :
           {"host_parameters", "host_gradients", "host_first_moment", "host_second_moment"})
        there[state] = 4 * host;
      if (percent == 100 && std::string(stage) != "1") {
        there["gradients"] = expected["gradients"];
        expected.erase("gradients");
      }
      EXPECT_EQ(lasting(program, false), expected);
      EXPECT_EQ(lasting(program, true), there);
      EXPECT_EQ(moved(program, OpKind::copy_to_host), 4 * host);
      EXPECT_EQ(moved(program, OpKind::host_adamw), 28 * host);
      EXPECT_EQ(moved(program, OpKind::copy_to_device), 2 * host);
      EXPECT_EQ(moved(program, OpKind::adamw), 30 * rest);
    }
  }
}

TEST(OffloadOptimizer, PeaksFallByWhatMoved) {
  const Program plain = lowered(nano_bf16(), "dp=2"),
                all = lowered(nano_bf16(), "dp=2,offload_optimizer_percent=100");
  const std::int64_t part = lasting(plain, false).at("first_moment") / 4;
  EXPECT_EQ(memory_peak(plain).peak - memory_peak(all).peak, Bytes(12 * part));
  EXPECT_EQ(plain.arena_bytes - all.arena_bytes, Bytes(12 * part));
  EXPECT_EQ(host_bytes(all), Bytes(16 * part));
}

TEST(OffloadOptimizer, ParametersInF32HaveACopyOnTheHost) {
  Job job = nano_bf16();
  job.precision = DType::f32;
  job.optimizer.kind = OptimizerKind::sgd;
  const Program program = lowered(job, "dp=2,offload_optimizer_percent=100", "deepspeed");
  const std::int64_t part = lasting(program, true).at("host_first_moment") / 4;
  EXPECT_EQ(lasting(program, true).count("host_second_moment"), 0u);
  EXPECT_EQ(lasting(program, false).count("first_moment"), 0u);
  EXPECT_EQ(moved(program, OpKind::host_sgd), 20 * part);
  EXPECT_EQ(moved(program, OpKind::copy_to_device), 4 * part);
}

TEST(OffloadOptimizer, OverlappedCopiesAreCallsOfParts) {
  const std::string fields = "sharding_degree=2,offload_optimizer_percent=60";
  const Program whole = lowered(nano_bf16(), fields),
                parts = lowered(nano_bf16(), fields + ",overlap_offload=true");
  EXPECT_EQ(calls_with(whole, OpKind::host_adamw), 1);
  const std::int64_t most = std::min<std::int64_t>(32, std::ssize(parts.segments));
  EXPECT_EQ(calls_with(parts, OpKind::host_adamw), most);
  for (const OpKind kind : {OpKind::copy_to_host, OpKind::host_adamw, OpKind::copy_to_device})
    EXPECT_EQ(moved(parts, kind), moved(whole, kind));
  EXPECT_EQ(lasting(parts, true), lasting(whole, true));
}

TEST(PagedStates, MomentsAreOnTheHostButForTheUpdate) {
  for (const char* stage : {"1", "2", "3"}) {
    for (const auto& [type, bytes] : {std::pair("f32", 4), std::pair("bf16", 2)}) {
      const std::string fields = std::string("sharding_degree=2,sharding_stage=") + stage +
                                 ",moment_type=" + type + ",paged_states=";
      SCOPED_TRACE(fields);
      const Program plain = lowered(nano_bf16(), fields + "false", "bundled"),
                    paged = lowered(nano_bf16(), fields + "true", "bundled");
      const std::int64_t elements = owned_elements(plain);
      auto device = lasting(plain, false);
      device.erase("first_moment");
      device.erase("second_moment");
      EXPECT_EQ(lasting(paged, false), device);
      EXPECT_EQ(lasting(paged, true),
                (std::map<std::string, std::int64_t>{{"host_first_moment", bytes * elements},
                                                     {"host_second_moment", bytes * elements}}));
      for (const OpKind kind : {OpKind::copy_to_host, OpKind::copy_to_device})
        EXPECT_EQ(moved(paged, kind), 2 * bytes * elements);
      EXPECT_EQ(moved(paged, OpKind::adamw), moved(plain, OpKind::adamw));
      EXPECT_EQ(calls_with(paged, OpKind::adamw),
                std::min<std::int64_t>(32, std::ssize(paged.segments)));
      // Parts come and go through one buffer for each moment.
      std::int64_t transient = 0;
      for (const Buffer& buffer : paged.buffers)
        if (!buffer.persistent && buffer.role == TensorRole::optimizer_state)
          transient += buffer.bytes.count();
      EXPECT_GE(transient, 2 * bytes * elements / 32);
      EXPECT_LE(transient, 2 * bytes * (elements / 12 + kMomentBlock));
    }
  }
}

TEST(PagedStates, ItsRules) {
  Job job = nano_bf16();
  const auto reason = [&](const std::string& fields) {
    return legal(job, parse_strategy("paged_states=true" + fields), 1).reason();
  };
  EXPECT_EQ(reason(""), "");
  EXPECT_EQ(reason(",moment_type=block8"), "");
  EXPECT_EQ(reason(",offload_optimizer_percent=5"),
            "paged_states: offload_optimizer_percent must be 0");
  for (const char* other : {",flatten=none", ",cast_placement=after_update"})
    EXPECT_EQ(reason(other),
              "paged_states: flatten must be fused, and cast_placement not after_update");
  EXPECT_EQ(
      legal(job, parse_strategy("paged_states=true,sharding_degree=2,sharding_owner=prefix"), 2)
          .reason(),
      "paged_states: sharding_owner must be elements");
  job.fp32_parameters = {"norm"};
  EXPECT_EQ(reason(""), "paged_states: it excludes fp32_parameters with another precision");
  job.fp32_parameters.clear();
  job.clip_norm = 0;
  job.global_batch = 1;
  EXPECT_EQ(reason(",release_gradients=true"), "paged_states: release_gradients must be false");
  job.optimizer.kind = OptimizerKind::sgd;
  EXPECT_EQ(reason(""), "paged_states: the optimizer must be adamw");
}

TEST(OffloadOptimizer, ItsRules) {
  Job job = nano_bf16();
  const auto reason = [&](const std::string& fields) {
    return legal(job, parse_strategy("sharding_degree=2," + fields), 2).reason();
  };
  EXPECT_EQ(reason("overlap_offload=true"),
            "overlap_offload goes with offload_optimizer_percent above 0");
  const Strategy coalesced = parse_strategy("offload_optimizer_percent=50,flatten=coalesced");
  EXPECT_EQ(legal(job, coalesced, 1).reason(),
            "offload_optimizer_percent is 50; flatten must be fused");
  EXPECT_EQ(reason("offload_optimizer_percent=50,sharding_owner=prefix"),
            "offload_optimizer_percent is 50; sharding_owner must be elements");
  EXPECT_EQ(reason("offload_optimizer_percent=50,moment_type=bf16"),
            "offload_optimizer_percent is 50; main_gradient_type, main_parameter_type and "
            "moment_type must be f32");
  EXPECT_EQ(reason("offload_optimizer_percent=100"), "");
  job.optimizer.kind = OptimizerKind::lamb;
  EXPECT_EQ(reason("offload_optimizer_percent=100"),
            "offload_optimizer_percent is 100; the optimizer must be adamw or sgd: LAMB reads "
            "norms of whole tensors");
}

}  // namespace
}  // namespace plimsoll
