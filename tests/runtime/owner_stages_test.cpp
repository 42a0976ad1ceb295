// Whole tensors owned by ranks in sharding stages 2 and 3, executed: what persists, what is sent
// and how often, and what ranks that do not own a tensor hold of it; equal to the closed forms and
// cases of the reference's sections 5.4, 5.5 and 7.E.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "graph/traffic.h"
#include "passes/pipeline.h"
#include "tests/runtime/nano.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kMicroBatches = 2;

Strategy owned(const std::string& fields) {
  return nano_strategy("sharding_degree=2,sharding_owner=greedy," + fields, kMicroBatches,
                       Recompute::none);
}

std::int64_t gradient_elements(const Program& program) {
  return program.buckets.back().begin + program.buckets.back().elements;
}

/// Means over the owners.
double persistent_per_element(const Strategy& strategy, DType precision) {
  Job job = nano_job();
  job.precision = precision;
  const Framework framework = framework_by_name("megatron-lm");
  const auto programs = lower({job, strategy, framework});
  Bytes total;
  for (const Program& program : programs) {
    for (const Buffer& buffer : program.buffers) {
      const bool model = buffer.role != TensorRole::scalar && buffer.role != TensorRole::workspace;
      if (buffer.persistent && model) total += buffer.bytes;
    }
  }
  return double(total.count()) / double(programs.size()) / double(gradient_elements(programs[0]));
}

TEST(OwnerStages, PersistentBytesPerElement) {
  for (const char* owner : {"prefix", "greedy", "sorted_greedy"}) {
    for (const std::int64_t d : {2, 4}) {
      const auto bytes = [&](int stage, DType precision) {
        Strategy strategy = owned("sharding_stage=" + std::to_string(stage));
        set_field(strategy, "sharding_owner", owner);
        strategy.sharding_degree = d;
        strategy.micro_batch = 1;
        return persistent_per_element(strategy, precision);
      };
      EXPECT_DOUBLE_EQ(bytes(2, DType::f32), 4 + 12.0 / double(d)) << owner;
      EXPECT_DOUBLE_EQ(bytes(3, DType::f32), 16.0 / double(d)) << owner;
      EXPECT_DOUBLE_EQ(bytes(2, DType::bf16), 2 + 16.0 / double(d)) << owner;
      EXPECT_DOUBLE_EQ(bytes(3, DType::bf16), 18.0 / double(d)) << owner;
    }
  }
}

struct Sent {
  std::int64_t count = 0;  ///< by one rank
  Bytes bytes;             ///< by all
  bool operator==(const Sent&) const = default;
};

Sent sent(const std::vector<std::vector<Traffic>>& ranks, OpKind kind) {
  const Group sharding{{Axis::sharding}, false};
  Sent total;
  for (const std::vector<Traffic>& rank : ranks) {
    for (const Traffic& traffic : rank) {
      if (traffic.kind != kind || traffic.group != sharding) continue;
      if (&rank == &ranks[0]) total.count += traffic.count;
      total.bytes += traffic.sent;
    }
  }
  return total;
}

/// Returns the bytes that an executed step sent. The Programs say the same.
Sent executed(const Strategy& strategy, OpKind kind, const Job& job = nano_job()) {
  const auto programs = nano_programs(strategy, job);
  TrainOptions options;
  options.steps = 2;
  options.warm_up_steps = 0;
  const TrainResult result = train_nano(programs, options, job);
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    EXPECT_EQ(result.traffic[rank], step_traffic(programs[rank], std::int64_t(rank)));
  }
  return sent(result.traffic, kind);
}

// Per micro-batch all gradients are reduced to their owners, with two ranks by one of them each:
// all bytes, once. Parameters are broadcast once per step.
TEST(OwnerStages, Stage2ReducesPerMicroBatch) {
  const Strategy strategy = owned("sharding_stage=2,collective_fusion=none");
  const Program program = nano_programs(strategy)[0];
  const auto tensors = std::int64_t(program.segments.size());
  const Bytes all = 4 * Bytes(gradient_elements(program));
  EXPECT_EQ(executed(strategy, OpKind::reduce),
            (Sent{kMicroBatches * tensors, kMicroBatches * all}));
  EXPECT_EQ(executed(strategy, OpKind::broadcast), (Sent{tensors, all}));
}

// 12 tensors in a layer, 2 in the embedding, 3 in the head, which stays from forward to backward.
// Every other tensor is broadcast for forward and for backward; the embedding's backward reads
// none.
TEST(OwnerStages, Stage3BroadcastsForEveryPass) {
  const std::int64_t L = nano_job().layers;
  const Strategy tensor =
      owned("sharding_stage=3,collective_fusion=none,gather=tensor,prefetch_depth=0");
  EXPECT_EQ(executed(tensor, OpKind::broadcast).count, kMicroBatches * (2 * 12 * L + 2 + 3));
  // One for each owner of what is gathered, here of a bundle: the layers' twice.
  for (const ShardingOwner owner : {ShardingOwner::prefix, ShardingOwner::greedy}) {
    Strategy layer = owned("sharding_stage=3,gather=layer,prefetch_depth=0");
    layer.owners.sharding_owner = owner;
    std::set<std::tuple<std::string, std::int64_t, std::int64_t>> owners;
    std::int64_t broadcasts = 0;
    const auto programs = nano_programs(layer);
    for (const Segment& segment : programs[0].segments) {
      const std::string block = segment.parameter.substr(0, segment.parameter.find('.'));
      const bool fresh = owners.emplace(block, segment.layer, *segment.owner).second;
      if (fresh) broadcasts += block == "layer" ? 2 : 1;
    }
    EXPECT_EQ(executed(layer, OpKind::broadcast).count, kMicroBatches * broadcasts);
    // Fewer than tensor by tensor, more than layer by layer.
    layer.gathers.unit = ParameterGather::module;
    const std::int64_t modules = executed(layer, OpKind::broadcast).count;
    EXPECT_GT(modules, kMicroBatches * broadcasts);
    EXPECT_LT(modules, kMicroBatches * (2 * 12 * L + 2 + 3));
  }
}

// 7.E: ranks that do not own a tensor have a temporary for each broadcast, its owner has none.
TEST(OwnerStages, OwnersHaveNoTemporaries) {
  const auto programs = nano_programs(owned("sharding_stage=3,gather=layer"));
  Bytes broadcast, temporaries;
  for (const Program& program : programs) {
    for (const Buffer& buffer : program.buffers) {
      if (buffer.name == "gathered_parameters") temporaries += buffer.bytes;
    }
  }
  for (const Call& call : programs[0].calls) {
    const Routine& routine = programs[0].at(call.routine);
    if (routine.ops[0].kind == OpKind::broadcast) broadcast += routine.slots[0].bytes;
  }
  EXPECT_GT(broadcast, Bytes(0));
  EXPECT_EQ(temporaries, broadcast);  // on one of two ranks
}

// 5.5: once per segment that reads it, of a micro-batch. Backward of a layer reads its four weights
// and the scales of its norms, that of the head one of each.
TEST(OwnerStages, SegmentsShareBroadcasts) {
  const std::int64_t L = nano_job().layers;
  const std::string fields = "sharding_stage=3,collective_fusion=none,gather=segment,";
  EXPECT_EQ(executed(owned(fields + "segment_broadcast_bytes=1"), OpKind::broadcast).count,
            kMicroBatches * (12 * L + 2 + 3 + 6 * L + 2));
  EXPECT_EQ(executed(owned(fields + "segment_broadcast_bytes=1GiB"), OpKind::broadcast).count,
            kMicroBatches * (12 * L + 2 + 3));
  // The tied weight: once where embedding, head and the head's backward are one segment.
  Job tied = nano_job();
  tied.tied_embeddings = true;
  EXPECT_EQ(executed(owned(fields + "segment_broadcast_bytes=1GiB"), OpKind::broadcast, tied).count,
            kMicroBatches * (12 * L + 2 + 2));
  EXPECT_EQ(executed(owned(fields + "segment_broadcast_bytes=1"), OpKind::broadcast, tied).count,
            kMicroBatches * (12 * L + 2 + 3 + 6 * L + 2));
}

// The segment that computes and the next one.
TEST(OwnerStages, SegmentsComeAheadAndGo) {
  Job job = nano_job();
  job.layers = 8;
  for (const std::int64_t depth : {0, 1, 2}) {
    Strategy strategy = owned("sharding_stage=3,gather=segment,segment_broadcast_bytes=1");
    strategy.gathers.prefetch_depth = depth;
    for (const Program& program : nano_programs(strategy, job)) {
      std::vector<std::int64_t> live(program.calls.size() + 1);
      for (const Buffer& buffer : program.buffers) {
        if (buffer.name != "gathered_parameters") continue;
        for (std::size_t call = buffer.begin; call < buffer.end; ++call) ++live[call];
      }
      EXPECT_EQ(*std::max_element(live.begin(), live.end()), depth + 1);
    }
  }
}

// ---- gather = use ----

struct InRoutines {
  std::int64_t broadcasts = 0, tied = 0, temporaries = 0;
};

InRoutines in_routines(const Program& program) {
  InRoutines found;
  for (const Call& call : program.calls) {
    const Routine& routine = program.at(call.routine);
    for (const Op& op : routine.ops) {
      if (op.kind != OpKind::broadcast) continue;
      const Tensor& tensor = routine.tensors[op.outputs[0].index()];
      ++found.broadcasts;
      found.tied += tensor.name.starts_with("embedding.word") || tensor.name.starts_with("head.w");
      found.temporaries += !routine.places[op.outputs[0].index()].slot;
    }
  }
  return found;
}

// 5.4: one before every op that reads it. The temporary of a rank that does not own it dies after
// that op: it is of the routine's frame.
TEST(OwnerStages, EveryUseIsABroadcast) {
  const std::int64_t L = nano_job().layers, all = 12 * L + 2 + 3 + 6 * L + 2;
  const Strategy strategy = owned("sharding_stage=3,gather=use");
  EXPECT_EQ(executed(strategy, OpKind::broadcast).count, kMicroBatches * all);
  Strategy again = strategy;  // recompute repeats what backward reads of the layers' forward
  again.recompute = Recompute::full;
  EXPECT_GT(executed(again, OpKind::broadcast).count, kMicroBatches * (all + 6 * L));
  EXPECT_LE(executed(again, OpKind::broadcast).count, kMicroBatches * (all + 12 * L));

  Job tied = nano_job();
  tied.tied_embeddings = true;
  std::int64_t temporaries = 0;
  const auto programs = nano_programs(strategy, tied);
  for (const Program& program : programs) {
    const InRoutines found = in_routines(program);
    EXPECT_EQ(found.broadcasts, kMicroBatches * all);
    EXPECT_EQ(found.tied, kMicroBatches * 3);  // embedding, head, the head's backward
    temporaries += found.temporaries;
  }
  EXPECT_EQ(temporaries, kMicroBatches * all);  // each on one of two ranks
  EXPECT_EQ(executed(strategy, OpKind::broadcast, tied).count, kMicroBatches * all);
}

// A frame has a temporary for the largest parameter, not for the layer.
TEST(OwnerStages, TemporariesDieAfterTheirOp) {
  const auto frame = [](const char* fields) {
    Bytes largest;
    for (const Program& program : nano_programs(owned(fields))) {
      for (const Routine& routine : program.routines) {
        if (routine.name == "layer.forward") largest = std::max(largest, routine.frame_bytes);
      }
    }
    return largest;
  };
  const Job job = nano_job();
  const Bytes weight = 4 * Bytes(job.hidden * job.ffn_hidden);
  const Bytes biases = 4 * Bytes(job.ffn_hidden + 64);
  EXPECT_LE(frame("sharding_stage=3,gather=use"),
            frame("sharding_stage=3,gather=layer") + weight + biases);
}

// A parameter that every use casts travels in the type of the cast.
TEST(OwnerStages, CastParametersTravelInTheSmallType) {
  Job job = nano_job();
  Strategy strategy = owned("sharding_stage=3,gather=layer");
  const auto bytes = [&](DType precision) {
    job.precision = precision;
    const auto programs = nano_programs(strategy, job);
    std::vector<std::vector<Traffic>> ranks;
    for (std::int64_t rank = 0; rank < 2; ++rank)
      ranks.push_back(step_traffic(programs[std::size_t(rank)], rank));
    return sent(ranks, OpKind::broadcast).bytes;
  };
  EXPECT_EQ(2 * bytes(DType::bf16), bytes(DType::f32));
  // Also where casts stay with the uses: the owner's cast is what travels, others cast nothing.
  strategy = owned("sharding_stage=3,gather=use,cast_placement=every_use");
  EXPECT_EQ(2 * bytes(DType::bf16), bytes(DType::f32));
  job.precision = DType::bf16;
  std::int64_t casts = 0;
  const auto programs = nano_programs(strategy, job);
  for (const Program& program : programs) {
    for (const Call& call : program.calls) {
      const Routine& routine = program.at(call.routine);
      casts += std::count_if(routine.ops.begin(), routine.ops.end(), [&](const Op& op) {
        if (op.kind != OpKind::cast) return false;
        return routine.tensors[op.inputs[0].index()].role == TensorRole::parameter;
      });
    }
  }
  EXPECT_EQ(casts, kMicroBatches * (12 * nano_job().layers + 2 + 3));
}

}  // namespace
}  // namespace plimsoll
