// Pipeline schedules and send lifetimes in executed runs: the serial model, live send buffers and
// bytes as predicted at every call, and memory against the number of micro-batches.
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "tests/runtime/nano.h"

namespace plimsoll {
namespace {

Job job_of(std::int64_t layers, std::int64_t micro_batches) {
  Job job = nano_job();
  job.layers = layers;
  job.global_batch = micro_batches;
  return job;
}

std::vector<Program> lowered(const Job& job, const std::string& fields) {
  Strategy strategy = parse_strategy(fields);
  strategy.gradients.bucket_bytes = Bytes(64 << 10);
  const Verdict verdict = legal(job, strategy, grid_of(strategy).world_size());
  EXPECT_TRUE(verdict) << verdict.reason();
  return nano_programs(strategy, job);
}

/// The calls at which the host acquires or releases anything.
std::vector<std::size_t> changes(const Program& program) {
  std::vector<bool> changes(program.calls.size() + 1);
  for (const Buffer& buffer : program.buffers) {
    if (!buffer.persistent) changes[buffer.begin] = changes[buffer.end] = true;
  }
  std::vector<std::size_t> calls;
  for (std::size_t call = 0; call < program.calls.size(); ++call) {
    if (changes[call]) calls.push_back(call);
  }
  return calls;
}

/// Compares, for every rank, the peak and the bytes of every class at every call.
void expect_bytes_as_predicted(const std::vector<Program>& programs, const Measured& measured) {
  const Grid& grid = programs[0].grid;
  ASSERT_EQ(std::int64_t(measured.timeline.memory.size()), grid.world_size());
  for (const RankMemory& counted : measured.timeline.memory) {
    const Program& program =
        programs[std::size_t(grid.coordinates(counted.rank)[std::size_t(Axis::pp)])];
    const MemoryPeak predicted = memory_peak(program);
    const std::vector<BytesByRole> live = live_bytes(program);
    EXPECT_EQ(counted.peak, predicted.peak) << "rank " << counted.rank;
    EXPECT_EQ(counted.by_role, predicted.by_role) << "rank " << counted.rank;
    // Before the first and after the last call nothing but what is persistent is alive.
    const std::vector<std::size_t> calls = changes(program);
    ASSERT_EQ(counted.curve.size(), calls.size() + 2) << "rank " << counted.rank;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      ASSERT_EQ(counted.curve[i + 1].by_role, live[calls[i]])
          << "rank " << counted.rank << ", call " << calls[i];
    }
  }
}

constexpr Bytes kBoundary(32 * 64 * 4);  // sequence x hidden x f32

/// Most copies of this name alive in the run: of the boundary tensors counted at a call, those that
/// have no other name in the Program.
std::int64_t most_copies(const Program& program, const RankMemory& counted,
                         const std::string& name) {
  const std::vector<std::size_t> calls = changes(program);
  Bytes most;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    Bytes copies = counted.curve[i + 1].by_role[std::size_t(TensorRole::communication)];
    for (const Buffer& buffer : program.buffers) {
      const bool alive = buffer.begin <= calls[i] && calls[i] < buffer.end;
      if (alive && buffer.role == TensorRole::communication && buffer.name != name) {
        copies = copies - buffer.bytes;
      }
    }
    most = std::max(most, copies);
  }
  return most.count() / kBoundary.count();
}

TEST(ExecutedSends, C1FourStagesAndEightMicroBatches) {
  const Job job = job_of(4, 8);
  using Table = std::vector<std::pair<std::int64_t, std::int64_t>>;  // backward, forward copies
  const auto counted = [&](const std::string& fields) {
    const auto programs = lowered(job, fields);
    const Measured measured = train_nano(programs, steps_of(2), job).measured;
    expect_bytes_as_predicted(programs, measured);
    Table table;
    for (std::size_t rank = 0; rank < 4; ++rank) {
      const RankMemory& memory = measured.timeline.memory[rank];
      table.emplace_back(most_copies(programs[rank], memory, "sent_gradient"),
                         most_copies(programs[rank], memory, "sent_activation"));
    }
    return table;
  };
  EXPECT_EQ(counted("pp=4,send_lifetime=held"), (Table{{0, 4}, {8, 3}, {8, 2}, {8, 0}}));
  EXPECT_EQ(counted("pp=4,send_lifetime=published"), (Table{{0, 4}, {4, 3}, {3, 2}, {2, 0}}));
  EXPECT_EQ(counted("pp=4"), (Table{{0, 2}, {2, 2}, {2, 2}, {2, 0}}));
  EXPECT_EQ(counted("pp=4,send_slots=1"), (Table{{0, 1}, {1, 1}, {1, 1}, {1, 0}}));
}

/// Most bytes of boundary tensors that are alive in a Program at once.
Bytes predicted_boundaries(const Program& program) {
  Bytes most;
  for (std::size_t call = 0; call < program.calls.size(); ++call) {
    Bytes live;
    for (const Buffer& buffer : program.buffers) {
      const bool boundary = buffer.role == TensorRole::communication;
      if (boundary && buffer.begin <= call && call < buffer.end) live += buffer.bytes;
    }
    most = std::max(most, live);
  }
  return most;
}

/// Most bytes of boundary tensors that were alive on each rank, in boundary tensors.
std::vector<std::int64_t> boundaries(std::int64_t micro_batches, const std::string& fields,
                                     const std::string& backend) {
  const Job job = job_of(4, micro_batches);
  const auto programs = lowered(job, fields);
  TrainOptions options = steps_of(1);
  options.backend = backend;
  const Measured measured = train_nano(programs, options, job).measured;
  expect_bytes_as_predicted(programs, measured);
  std::vector<std::int64_t> most;
  for (const RankMemory& memory : measured.timeline.memory) {
    Bytes bytes;
    for (const MemoryPoint& point : memory.curve) {
      bytes = std::max(bytes, point.by_role[std::size_t(TensorRole::communication)]);
    }
    EXPECT_EQ(bytes, predicted_boundaries(programs[std::size_t(memory.rank)]));
    most.push_back(bytes.count() / kBoundary.count());
  }
  return most;
}

TEST(ExecutedSends, FlatInTheNumberOfMicroBatchesUnlessHeld) {
  for (const auto& [backend, few, many] : {std::tuple("cpu", 8, 512), std::tuple("null", 8, 512)}) {
    EXPECT_EQ(boundaries(few, "pp=4", backend), boundaries(many, "pp=4", backend)) << backend;
    const auto before = boundaries(few, "pp=4,send_lifetime=held", backend);
    const auto after = boundaries(many, "pp=4,send_lifetime=held", backend);
    for (std::size_t rank = 0; rank < 4; ++rank) {
      // Only the first stage sends no gradient back.
      EXPECT_EQ(after[rank] - before[rank], rank == 0 ? 0 : many - few) << backend << " " << rank;
    }
  }
}

struct Case {
  std::string fields;
  std::int64_t layers, micro_batches;
  bool tied = false;
};

TEST(Schedules, TrainTheSerialModelInThePredictedBytes) {
  const Case cases[] = {
      {"pp=4,schedule=gpipe", 4, 8},
      {"pp=2,schedule=gpipe,send_lifetime=held,dp=2", 4, 8},
      {"pp=1,schedule=zb_h1", 2, 4},
      {"pp=4,schedule=zb_h1", 4, 8},
      {"pp=2,mp=2,schedule=zb_h1,recompute=full", 4, 4},
      {"pp=2,schedule=zb_h1,sharding_degree=2,sharding_stage=1", 3, 8, true},
      {"pp=3,schedule=zb_h1,recompute=selective", 4, 2, true},
      {"schedule=zb_h1,sharding_degree=2,sharding_stage=3", 2, 4, true},
      {"pp=2,schedule=zb_h1,dp=2,grad_reduction=per_micro_batch", 3, 4, true},
      {"pp=4,schedule=zb_h2", 4, 8},
      {"pp=3,schedule=zb_h2,dp=2,recompute=full,send_slots=1", 4, 6, true},
      {"pp=2,schedule=zb_v", 4, 4},
      {"pp=4,schedule=zb_v,send_slots=1", 8, 8, true},
      {"pp=2,schedule=zb_v,mp=2,recompute=full", 5, 6},
      {"pp=2,schedule=zb_v,sharding_degree=2,sharding_stage=1", 4, 5, true},
      {"pp=2,schedule=zb_v,sharding_degree=2,sharding_stage=3", 4, 4, true},
      {"pp=2,schedule=zb_v,dp=2,grad_reduction=per_micro_batch", 4, 4, true},
      {"pp=3,schedule=v_half", 6, 6, true},
      {"pp=4,schedule=v_min", 8, 8},
      {"pp=3,schedule=dualpipe_v", 6, 8, true},
      {"pp=2,dp=2,schedule=dualpipe", 4, 4},
      {"pp=2,dp=2,schedule=dualpipe,mp=2,recompute=full", 5, 3, true},
      {"pp=2,dp=4,schedule=dualpipe,send_slots=1", 4, 3, true},
      {"pp=3,sharding_degree=2,sharding_stage=2,schedule=dualpipe", 6, 6, true},
      {"pp=2,sharding_degree=2,sharding_stage=3,schedule=dualpipe", 4, 4},
      {"pp=2,dp=2,schedule=dualpipe,layer_split=1+0+3+0", 4, 5},
      {"pp=2,schedule=zb_v,layer_split=0+2+0+2", 4, 5},
      {"pp=2,schedule=dualpipe_v,layer_split=1+0+3+0", 4, 5},
      {"pp=3,virtual_stages=2,layer_split=2+1+0+0+1+1", 5, 6},
      {"pp=2,virtual_stages=2", 4, 4},
      {"pp=4,virtual_stages=2,send_slots=1", 8, 8, true},
      {"pp=2,virtual_stages=3,mp=2,recompute=full", 6, 4},
      {"pp=2,virtual_stages=2,dp=2,layer_split=1+2+1+1", 5, 8},
      {"pp=2,virtual_stages=2,send_lifetime=held", 4, 6},
      {"pp=4,send_lifetime=published", 4, 4},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.fields);
    const Strategy strategy = parse_strategy(one.fields);
    Job job = job_of(one.layers, one.micro_batches * strategy.dp * strategy.sharding_degree);
    job.tied_embeddings = one.tied;
    TrainOptions options = steps_of(3);
    options.keep_gradients = true;
    const auto serial = lowered(job, "micro_batch=" + std::to_string(job.global_batch));
    const auto programs = lowered(job, one.fields);
    const TrainResult expected = train_nano(serial, options, job);
    const TrainResult found = train_nano(programs, options, job);
    expect_bytes_as_predicted(programs, found.measured);
    for (std::size_t step = 0; step < 3; ++step) {
      const double loss = expected.measured.losses[step];
      const double norm = expected.measured.gradient_norms[step];
      EXPECT_NEAR(found.measured.losses[step], loss, 1e-4 * loss) << step;
      EXPECT_NEAR(found.measured.gradient_norms[step], norm, 1e-4 * norm) << step;
    }
    const WholeTensors one_rank = put_together(serial, expected.gradients, true, 0);
    const WholeTensors many = put_together(programs, found.gradients, true, 1e-4);
    ASSERT_EQ(one_rank.size(), many.size());
    for (const auto& [name, gradient] : one_rank) {
      EXPECT_LE(relative_distance(many.at(name), gradient), 1e-4)
          << name.first << " of layer " << name.second;
    }
    options.checking = true;  // guard zones, and what is released is poisoned
    EXPECT_EQ(train_nano(programs, options, job).measured.losses, found.measured.losses);
  }
}

TEST(Schedules, ZeroBubbleKeepsNoMoreThanTheFirstStageOf1F1BAndWhatWeightsNeed) {
  const Job job = job_of(4, 8);
  const auto plain = lowered(job, "pp=4"), split = lowered(job, "pp=4,schedule=zb_h1");
  const auto most = [](const Program& program, const std::string& name) {
    Bytes most;
    for (std::size_t call = 0; call < program.calls.size(); ++call) {
      Bytes live;
      for (const Buffer& buffer : program.buffers) {
        if (buffer.name == name && buffer.begin <= call && call < buffer.end) live += buffer.bytes;
      }
      most = std::max(most, live);
    }
    return most;
  };
  for (std::size_t stage = 0; stage < 4; ++stage) {
    const auto in_flight = std::int64_t(4 - stage);
    // Until the gradient of its input a micro-batch keeps what it keeps in 1F1B.
    const Bytes saved = most(plain[stage], "saved");
    EXPECT_LE(most(split[stage], "saved"), saved);
    // Until those of its weights: at most 4 keep their share of it and what was deferred.
    const Bytes late = most(split[stage], "saved_for_weights");
    EXPECT_GT(late, Bytes(0));
    EXPECT_LE(late * in_flight, saved * 4);
    EXPECT_GT(most(split[stage], "deferred"), Bytes(0));
  }
}

}  // namespace
}  // namespace plimsoll
