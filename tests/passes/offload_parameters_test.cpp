// Parameters in the host's memory: where they last, what each gather copies, who waits for the
// copies, and which strategies have no such form.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "graph/op_table.h"
#include "graph/verify/verify.h"
#include "passes/pipeline.h"

namespace plimsoll {
namespace {

Job offload_job(DType precision = DType::bf16, bool adapters = false) {
  Job job = read_job(std::filesystem::path(PLIMSOLL_SOURCE_DIR) / "tests/llama-nano.json");
  job.precision = precision;
  if (adapters) job.adapters = Adapters{.rank = 4, .targets = {AdapterTarget::query}};
  return job;
}

std::vector<Program> offload_stages(const Job& job, const std::string& fields,
                                    const char* framework = "deepspeed") {
  const Strategy strategy = parse_strategy(fields);
  const Verdict verdict = legal(job, strategy, grid_of(strategy).world_size());
  EXPECT_TRUE(verdict) << verdict.reason();
  return lower({job, strategy, framework_by_name(framework)});
}

const std::string kParametersOnHost = ",offload_parameters=true,offload_optimizer_percent=100";

std::map<std::string, std::int64_t> kept_between_steps(const Program& program, bool on_host) {
  std::map<std::string, std::int64_t> bytes;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.persistent && buffer.on_host == on_host) bytes[buffer.name] = buffer.bytes.count();
  }
  return bytes;
}

/// The bytes that ops of a kind and a phase move in a step.
Bytes bytes_moved_by(const Program& program, OpKind kind, bool of_update) {
  Bytes bytes;
  for (const Call& call : program.calls) {
    const Routine& routine = program.at(call.routine);
    for (const Op& op : routine.ops) {
      if (op.kind == kind && (op.phase == Phase::optimizer) == of_update)
        bytes += bytes_moved(op, routine.tensors);
    }
  }
  return bytes;
}

/// The bytes that all gathers of a step leave.
Bytes bytes_gathered(const Program& program) {
  Bytes bytes;
  for (const Call& call : program.calls) {
    const Routine& routine = program.at(call.routine);
    for (const Op& op : routine.ops) {
      if (op.kind == OpKind::all_gather) bytes += bytes_of(routine.tensors[op.outputs[0].index()]);
    }
  }
  return bytes;
}

TEST(OffloadParameters, APartIsCopiedForEachGather) {
  for (const char* fields :
       {"sharding_degree=2,sharding_stage=3", "cp=2,sharding_stage=3,context_exchange=all_to_all",
        "sharding_degree=2,sharding_stage=3,mp=2,pp=2,micro_batch=1,prefetch_depth=2"}) {
    SCOPED_TRACE(fields);
    const Program plain =
        offload_stages(offload_job(), std::string(fields) + ",offload_optimizer_percent=100")
            .front();
    const Program host = offload_stages(offload_job(), fields + kParametersOnHost).front();
    auto device = kept_between_steps(plain, false), there = kept_between_steps(plain, true);
    const std::int64_t part = device.at("parameters");
    there["parameters"] = part;
    device.erase("parameters");
    EXPECT_EQ(kept_between_steps(host, false), device);
    EXPECT_EQ(kept_between_steps(host, true), there);
    EXPECT_EQ(bytes_gathered(host), bytes_gathered(plain));
    EXPECT_EQ(bytes_moved_by(host, OpKind::copy_to_device, false),
              Bytes(bytes_gathered(plain).count() / 2));
    // The host casts what it updates, where it is.
    EXPECT_EQ(bytes_moved_by(plain, OpKind::copy_to_device, true), Bytes(part));
    EXPECT_EQ(bytes_moved_by(host, OpKind::copy_to_device, true), Bytes());
    EXPECT_EQ(bytes_moved_by(host, OpKind::cast_parameters, true), Bytes(3 * part));
    EXPECT_LT(memory_peak(host).peak, memory_peak(plain).peak);
    EXPECT_EQ(host_bytes(host) - host_bytes(plain), round_up(Bytes(part), kBlockAlignment));
  }
}

TEST(OffloadParameters, ParametersInF32AreThoseThatTheHostUpdates) {
  const Program program = offload_stages(offload_job(DType::f32),
                                         "sharding_degree=2,sharding_stage=3" + kParametersOnHost)
                              .front();
  EXPECT_FALSE(kept_between_steps(program, true).contains("host_parameters"));
  EXPECT_EQ(kept_between_steps(program, true).at("parameters"),
            kept_between_steps(program, true).at("host_first_moment"));
  EXPECT_EQ(bytes_moved_by(program, OpKind::cast_parameters, true), Bytes());
}

TEST(OffloadParameters, FrozenOnesMayBeThereAlone) {
  const std::string fields = "sharding_degree=2,sharding_stage=3";
  const Job job = offload_job(DType::bf16, true);
  const Program plain = offload_stages(job, fields, "bundled").front(),
                host = offload_stages(job, fields + ",offload_parameters=true", "bundled").front(),
                both = offload_stages(job, fields + kParametersOnHost).front();
  const std::int64_t frozen = kept_between_steps(plain, false).at("frozen_parameters");
  EXPECT_EQ(kept_between_steps(host, true),
            (std::map<std::string, std::int64_t>{{"frozen_parameters", frozen}}));
  EXPECT_TRUE(kept_between_steps(host, false).contains("parameters"));
  EXPECT_EQ(kept_between_steps(both, true).at("frozen_parameters"), frozen);
  EXPECT_TRUE(kept_between_steps(both, true).contains("parameters"));
  EXPECT_EQ(bytes_moved_by(host, OpKind::host_adamw, true), Bytes());
}

TEST(OffloadParameters, ARankWithoutOthersCopiesOnly) {
  const auto collectives = [](const Program& program) {
    std::int64_t calls = 0;
    for (const Call& call : program.calls) {
      for (const Op& op : program.at(call.routine).ops) calls += communicates(op.kind);
    }
    return calls;
  };
  for (const bool adapters : {false, true}) {
    SCOPED_TRACE(adapters);
    const Job job = offload_job(DType::bf16, adapters);
    const Program plain = offload_stages(job, "offload_optimizer_percent=100").front(),
                  host = offload_stages(job, "sharding_stage=3" + kParametersOnHost).front();
    EXPECT_EQ(collectives(host), 0);
    EXPECT_EQ(kept_between_steps(host, true).at("parameters"),
              kept_between_steps(plain, false).at("parameters"));
    EXPECT_FALSE(kept_between_steps(host, false).contains("frozen_parameters"));
    // Each micro-batch reads each layer twice.
    const Bytes all(kept_between_steps(plain, false).at("parameters"));
    EXPECT_GT(bytes_moved_by(host, OpKind::copy_to_device, false), host.micro_batches * all);
    EXPECT_LT(memory_peak(host).peak, memory_peak(plain).peak);
  }
}

/// Without any of these waits, memory would be read before it is copied, or used meanwhile.
TEST(OffloadParameters, TheVerifierMissesEachWaitForACopy) {
  for (const char* fields : {"sharding_degree=2,sharding_stage=3", "sharding_stage=3"}) {
    SCOPED_TRACE(fields);
    Program program = offload_stages(offload_job(), fields + kParametersOnHost).front();
    ASSERT_TRUE(verify_memory_order(program));
    int races = 0, copies = 0;
    for (Call& call : program.calls) {
      const std::vector<Wait> waits = call.waits;
      for (std::size_t w = 0; w < waits.size(); ++w) {
        const Routine& awaited = program.at(program.calls[waits[w].call].routine);
        if (awaited.ops[0].kind != OpKind::copy_to_device) continue;
        ++copies;
        call.waits.erase(call.waits.begin() + std::ptrdiff_t(w));
        races += verify_memory_order(program) ? 0 : 1;
        call.waits = waits;
      }
    }
    EXPECT_GT(copies, 2 * int(program.micro_batches));
    EXPECT_EQ(races, copies);
  }
}

TEST(OffloadParameters, ItsRules) {
  Job job = offload_job();
  const auto reason = [&](const std::string& fields) {
    const Strategy strategy = parse_strategy("offload_parameters=true," + fields);
    return legal(job, strategy, grid_of(strategy).world_size()).reason();
  };
  const std::string all = "offload_optimizer_percent=100,";
  EXPECT_EQ(reason(all + "sharding_degree=2,sharding_stage=2"),
            "offload_parameters is for sharding_stage 3, which gathers parameters for their uses; "
            "the stage is 2");
  EXPECT_EQ(reason("offload_optimizer_percent=50,sharding_stage=3"),
            "offload_parameters: offload_optimizer_percent is 50; it must be 100 unless parameters "
            "are frozen: the host updates what its memory holds");
  EXPECT_EQ(reason(all + "sharding_stage=3,overlap_offload=true"),
            "offload_parameters: overlap_offload must be false: no parameters are copied back");
  EXPECT_EQ(reason(all + "sharding_stage=3"), "");
  EXPECT_NE(legal(job, parse_strategy("sharding_stage=3"), 1).reason().find("offload_parameters"),
            std::string::npos);
  job = offload_job(DType::bf16, true);
  EXPECT_EQ(reason("sharding_stage=3"), "");
  EXPECT_EQ(reason("sharding_stage=3,flatten=none"), "offload_parameters: flatten must be fused");
  EXPECT_EQ(reason("sharding_degree=2,sharding_stage=3,sharding_owner=greedy"),
            "the job has frozen parameters; sharding_owner must be elements");
}

}  // namespace
}  // namespace plimsoll
