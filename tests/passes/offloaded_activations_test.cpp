// Activations in the host's memory: what is copied, what the device keeps, who waits for the
// copies, and which strategies have no such form.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "graph/op_table.h"
#include "graph/verify/verify.h"
#include "passes/pipeline.h"

namespace plimsoll {
namespace {

Job llama_nano() {
  return read_job(std::filesystem::path(PLIMSOLL_SOURCE_DIR) / "tests/llama-nano.json");
}

std::vector<Program> stages_of(const std::string& fields) {
  const Job job = llama_nano();
  const Strategy strategy = parse_strategy(fields);
  const Verdict verdict = legal(job, strategy, grid_of(strategy).world_size());
  EXPECT_TRUE(verdict) << verdict.reason();
  return lower({job, strategy, bundled_framework()});
}

/// The bytes that the ops of a kind move in a step, of each layer and micro-batch.
using Moved = std::map<std::pair<std::int64_t, std::int64_t>, Bytes>;
Moved copied(const Program& program, OpKind kind) {
  Moved bytes;
  for (const Call& call : program.calls) {
    const Routine& routine = program.at(call.routine);
    for (const Op& op : routine.ops) {
      if (op.kind == kind)
        bytes[{*call.layer, *call.micro_batch}] += bytes_moved(op, routine.tensors);
    }
  }
  return bytes;
}

/// The bytes that a layer's forward keeps for its backward: its bundle, and its input where that is
/// read again. Each tensor of the bundle counts rounded up.
Bytes kept_by_layer(const Program& program) {
  std::set<SlotKind> again;
  Bytes bytes;
  for (const Routine& routine : program.routines) {
    if (routine.name != "layer.backward") continue;
    for (const Slot& slot : routine.slots) {
      if (slot.kind == SlotKind::saved || slot.kind == SlotKind::input ||
          slot.kind == SlotKind::offloaded)
        bytes += slot.bytes;
    }
  }
  return bytes;
}

TEST(OffloadedActivations, AllThatALayerKeepsIsCopiedOutAndBack) {
  for (const char* recompute : {"none", "selective", "full"}) {
    SCOPED_TRACE(recompute);
    const std::string fields = std::string("recompute=") + recompute;
    const Program plain = stages_of(fields).front(),
                  host = stages_of(fields + ",offload_activations_percent=100").front();
    EXPECT_TRUE(copied(plain, OpKind::copy_to_host).empty());
    const Moved out = copied(host, OpKind::copy_to_host),
                back = copied(host, OpKind::copy_to_device);
    EXPECT_EQ(out, back);
    EXPECT_EQ(std::int64_t(out.size()), llama_nano().layers * host.micro_batches);
    for (const auto& [key, bytes] : out) EXPECT_EQ(bytes, kept_by_layer(plain));
    EXPECT_LT(memory_peak(host).peak, memory_peak(plain).peak);
    EXPECT_EQ(host_bytes(plain), Bytes());
    // Micro-batches follow each other, so that the host holds the layers of one.
    EXPECT_EQ(host_bytes(host), llama_nano().layers * kept_by_layer(plain));
  }
}

TEST(OffloadedActivations, AShareIsTheLargestTensorsThatFit) {
  const Program plain = stages_of("dp=1").front();
  const Bytes all = kept_by_layer(plain);
  Bytes before;
  for (const std::int64_t percent : {10, 30, 50, 80, 100}) {
    SCOPED_TRACE(percent);
    const Program host =
        stages_of("offload_activations_percent=" + std::to_string(percent)).front();
    const Bytes out = copied(host, OpKind::copy_to_host).at({0, 0});
    EXPECT_LE(out.count() * 100, all.count() * percent);
    EXPECT_GT(out, before);
    EXPECT_EQ(kept_by_layer(host), all);
    before = out;
  }
  EXPECT_EQ(before, all);
}

TEST(OffloadedActivations, LayersAreTheFirstOfEachChunk) {
  for (const auto& [fields, of_stage] :
       std::vector<std::pair<std::string, std::vector<std::set<std::int64_t>>>>{
           {"dp=1", {{0}}},
           {"pp=2", {{0}, {2}}},
           {"pp=2,virtual_stages=2,micro_batch=1", {{0, 2}, {1, 3}}}}) {
    SCOPED_TRACE(fields);
    const std::vector<Program> programs =
        stages_of(fields + ",offload_activations_percent=100,offload_activations_layers=1");
    for (std::size_t stage = 0; stage < programs.size(); ++stage) {
      std::set<std::int64_t> layers;
      for (const auto& [key, bytes] : copied(programs[stage], OpKind::copy_to_host))
        layers.insert(key.first);
      EXPECT_EQ(layers, of_stage[stage]);
    }
  }
}

/// Without any of these waits, the device's memory would be used while it is copied.
TEST(OffloadedActivations, TheVerifierMissesEachWaitForACopy) {
  Program program = stages_of("pp=2,offload_activations_percent=100").front();
  ASSERT_TRUE(verify_memory_order(program));
  const auto copies = [&](std::size_t call) {
    return is_of_host(program.at(program.calls[call].routine).ops[0].kind);
  };
  int races = 0;
  for (Call& call : program.calls) {
    std::vector<Wait> waits = call.waits;
    for (std::size_t w = 0; w < waits.size(); ++w) {
      if (!copies(waits[w].call)) continue;
      call.waits.erase(call.waits.begin() + std::ptrdiff_t(w));
      races += verify_memory_order(program) ? 0 : 1;
      call.waits = waits;
    }
  }
  EXPECT_GT(races, 2 * int(program.micro_batches));
}

TEST(OffloadedActivations, ACopyOutRunsBesideTheNextForward) {
  const Program program = stages_of("offload_activations_percent=100").front();
  const auto begins = [&](std::size_t call, const char* name) {
    return program.at(program.calls[call].routine).name == name;
  };
  std::vector<std::size_t> forwards, copies;
  for (std::size_t call = 0; call < program.calls.size(); ++call) {
    if (program.calls[call].micro_batch != 0) continue;
    if (begins(call, "layer.forward")) forwards.push_back(call);
    if (begins(call, "offload_activations")) copies.push_back(call);
  }
  const auto waits = [&](std::size_t call, std::size_t copy) {
    return std::ranges::any_of(program.calls[call].waits,
                               [&](const Wait& wait) { return wait.call == copy; });
  };
  ASSERT_GE(forwards.size(), 3u);
  EXPECT_FALSE(waits(forwards[1], copies[0]));
  EXPECT_TRUE(waits(forwards[2], copies[0]));
}

TEST(OffloadedActivations, IllegalFormsAreRefused) {
  const auto reason = [](const char* fields) {
    return legal(llama_nano(), parse_strategy(fields), 1).reason();
  };
  EXPECT_EQ(reason("offload_activations_layers=1"),
            "offload_activations_layers goes with offload_activations_percent above 0");
  EXPECT_EQ(reason("offload_activations_percent=100,offload_activations_layers=5"),
            "offload_activations_layers is 5; the model has 4 layers");
  EXPECT_TRUE(reason("recompute=full,offload_activations_percent=50")
                  .starts_with("offload_activations_percent is 50; with recompute full it must be "
                               "0 or 100"));
  EXPECT_EQ(reason("recompute=full,offload_activations_percent=100"), "");
}

}  // namespace
}  // namespace plimsoll
