// The executor on Programs small enough to follow by hand: what is counted, waited for, bound and
// recorded, and what checking mode finds.
#include "runtime/executor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "base/error.h"
#include "runtime/cpu/backend.h"
#include "tests/runtime/hand_built.h"
#include "tests/runtime/patience.h"
#include "tests/states.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kElements = 25;  // 100 bytes, counted as 128
constexpr std::int64_t kBytes = kElements * 4;
using Floats = std::vector<float>;

Bytes of(const BytesByRole& by_role, TensorRole role) { return by_role[std::size_t(role)]; }

Grid mp_grid(std::int64_t ranks) {
  Grid grid;
  grid.degree[std::size_t(Axis::mp)] = ranks;
  return grid;
}

ExecutorOptions options_of(std::int64_t rank, bool checking) {
  ExecutorOptions options;
  options.rank = rank;
  options.checking = checking;
  options.epoch = std::chrono::steady_clock::now();
  return options;
}

/// Runs `steps` steps on a thread per rank; returns the gradient buffers and each rank's error.
struct Outcome {
  std::vector<Floats> gradients;
  std::vector<std::string> errors;
  std::vector<Timeline> traces;
  std::vector<RankMemory> memory;
};
Outcome run(const std::vector<Program>& by_rank, bool checking, int steps = 2,
            const std::function<std::unique_ptr<Backend>()>& backend = make_cpu_backend) {
  const auto options = options_of(0, checking);
  auto handles = make_local_communicators(by_rank[0].grid, kPatient, options.epoch);
  const std::size_t ranks = by_rank.size();
  Outcome outcome{std::vector<Floats>(ranks), std::vector<std::string>(ranks),
                  std::vector<Timeline>(ranks), std::vector<RankMemory>(ranks)};
  std::vector<std::jthread> threads;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      auto device = backend();
      ExecutorOptions mine = options;
      mine.rank = std::int64_t(rank);
      try {
        Executor executor(by_rank[rank], *device, *handles[rank], {}, mine);
        for (int step = 0; step < steps; ++step) {
          executor.step(step, step + 1 == steps ? &outcome.traces[rank] : nullptr);
        }
        outcome.gradients[rank] = executor.gradients();
        outcome.memory[rank] = executor.memory();
      } catch (const std::exception& error) {
        outcome.errors[rank] = error.what();
      }
    });
  }
  threads.clear();
  return outcome;
}

/// A := 1, B := 2, C := A + B (with a frame), D := 4. A and B die before D is born.
Program four_calls() {
  HandBuilder builder;
  const BufferId c = builder.persistent("c", TensorRole::gradient, kBytes);
  const BufferId a = builder.buffer("a", TensorRole::activation, kBytes, 0, 3);
  const BufferId b = builder.buffer("b", TensorRole::saved, kBytes, 1, 3);
  const BufferId frame = builder.buffer("frame", TensorRole::activation, 64, 2, 3);
  const BufferId d = builder.buffer("d", TensorRole::communication, 320, 3, 4);
  builder.call(builder.fill(kElements, 1), {a});
  builder.call(builder.fill(kElements, 2), {b});
  builder.call(builder.add(kElements, 16), {a, b, c});
  builder.last().frame = frame;
  builder.call(builder.fill(80, 4), {d});
  return builder.build();
}

TEST(Executor, CountsBlocksAsTheyComeAndGo) {
  for (const bool checking : {false, true}) {
    const Program program = four_calls();
    const Outcome outcome = run({program}, checking);
    ASSERT_EQ(outcome.errors[0], "");
    // c 128 | + a 128 | + b 128 | + frame 64 | then c + d = 128 + 320: as much, but later.
    const RankMemory& memory = outcome.memory[0];
    EXPECT_EQ(memory.peak, Bytes(448));
    EXPECT_EQ(of(memory.by_role, TensorRole::gradient), Bytes(128));
    EXPECT_EQ(of(memory.by_role, TensorRole::activation), Bytes(192));
    EXPECT_EQ(of(memory.by_role, TensorRole::saved), Bytes(128));
    EXPECT_EQ(of(memory.by_role, TensorRole::communication), Bytes(0));
    EXPECT_EQ(memory.peak, memory_peak(program).peak);

    const std::vector<MemoryPoint>& curve = outcome.traces[0].memory[0].curve;
    const std::vector<std::int64_t> live = {128, 256, 384, 448, 448, 128};
    ASSERT_EQ(curve.size(), live.size());
    for (std::size_t i = 0; i < live.size(); ++i) {
      Bytes sum;
      for (const Bytes bytes : curve[i].by_role) sum += bytes;
      EXPECT_EQ(sum, Bytes(live[i])) << i;
      if (i > 0) {
        EXPECT_LE(curve[i - 1].time, curve[i].time);
      }
    }
    EXPECT_EQ(outcome.gradients[0], Floats(kElements, 3));
  }
}

TEST(Executor, CountsWhatTensorsNeedNotWhatThePlanSays) {
  Program program = four_calls();
  program.buffers[2].bytes = Bytes(4096);  // b: the plan wastes memory
  program.buffers[2].offset = program.arena_bytes;
  program.arena_bytes += Bytes(4096);
  const Outcome outcome = run({program}, false);
  EXPECT_EQ(outcome.memory[0].peak, Bytes(448));
  EXPECT_NE(outcome.memory[0].peak, memory_peak(program).peak);
}

TEST(Executor, RecordsEveryOpOfATracedStep) {
  Program program = four_calls();
  program.calls[1].layer = 5;
  program.calls[1].micro_batch = 3;
  const Outcome outcome = run({program}, false);
  const std::vector<Interval>& intervals = outcome.traces[0].intervals;
  ASSERT_EQ(intervals.size(), 5u);
  const std::vector<OpKind> kinds = {OpKind::fill, OpKind::fill, OpKind::fill, OpKind::add,
                                     OpKind::fill};
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    EXPECT_EQ(intervals[i].kind, kinds[i]);
    EXPECT_EQ(intervals[i].posted, intervals[i].begin);
    EXPECT_LE(intervals[i].begin, intervals[i].end);
    if (i > 0) {
      EXPECT_LE(intervals[i - 1].end, intervals[i].begin);
    }
  }
  EXPECT_EQ(intervals[1].routine, "fill");
  EXPECT_EQ(intervals[1].layer, 5);
  EXPECT_EQ(intervals[1].micro_batch, 3);
  EXPECT_EQ(intervals[0].layer, std::nullopt);
}

TEST(Executor, CheckingPoisonsWhatIsReleasedTooEarly) {
  const auto program = [](std::size_t end_of_a) {
    HandBuilder builder;
    const BufferId c = builder.persistent("c", TensorRole::gradient, kBytes);
    const BufferId a = builder.buffer("a", TensorRole::activation, kBytes, 0, end_of_a);
    builder.call(builder.fill(kElements, 3), {a});
    builder.call(builder.fill(kElements, 0), {c});
    builder.call(builder.add(kElements), {a, c, c});
    return builder.build();
  };
  const Outcome right = run({program(3)}, true);
  EXPECT_EQ(right.gradients[0], Floats(kElements, 3));
  const Outcome shortened = run({program(2)}, true);
  ASSERT_EQ(shortened.errors[0], "");
  for (const float value : shortened.gradients[0]) EXPECT_TRUE(std::isnan(value));
}

/// Writes one float behind its output.
class OverrunningBackend final : public Backend {
 public:
  std::string_view name() const override { return "overrunning"; }
  Verdict supports(const Op&, std::span<const Tensor>) const override { return Verdict::yes(); }
  std::unique_ptr<Kernel> prepare(const Op& op, std::span<const Tensor> tensors,
                                  const RankContext&) override {
    class Overrun final : public Kernel {
     public:
      explicit Overrun(std::int64_t count) : count_(count) {}
      void run(std::span<std::byte* const>, std::span<std::byte* const> outputs,
               const RunPosition&) override {
        auto* const values = reinterpret_cast<float*>(outputs[0]);
        for (std::int64_t i = 0; i <= count_; ++i) values[i] = 1;
      }

     private:
      std::int64_t count_;
    };
    return std::make_unique<Overrun>(elements(tensors[op.outputs[0].index()].shape));
  }
};

TEST(Executor, CheckingFindsAWriteBehindABlock) {
  const Outcome outcome =
      run({four_calls()}, true, 1, [] { return std::make_unique<OverrunningBackend>(); });
  EXPECT_TRUE(states(outcome.errors[0],
                     {"rank 0", "step 1", "routine fill", "buffer a", "1 bytes", "100 bytes"}));
}

/// Rank r: A := r + 1, sum over mp, C := A + A; `waits` tell the addition to wait for the sum.
Program summing(std::int64_t rank, std::size_t end_of_a, std::vector<Wait> waits) {
  HandBuilder builder(mp_grid(2));
  const BufferId c = builder.persistent("c", TensorRole::gradient, kBytes);
  const BufferId a = builder.buffer("a", TensorRole::communication, kBytes, 0, end_of_a);
  const BufferId b = builder.buffer("b", TensorRole::activation, kBytes, 2, 3);
  builder.call(builder.fill(kElements, double(rank + 1)), {a});
  builder.call(builder.collective(OpKind::all_reduce, Axis::mp, kElements), {a});
  builder.call(builder.fill(kElements, 0), {b});
  builder.call(builder.add(kElements), {a, a, c}, std::move(waits));
  return builder.build();
}

TEST(Executor, WaitsForAPortOrAWholeCall) {
  for (const Wait wait : {Wait{1, 0}, Wait{1, std::nullopt}}) {
    const Outcome outcome = run({summing(0, 4, {wait}), summing(1, 4, {wait})}, true, 5);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(outcome.errors[rank], "");
      EXPECT_EQ(outcome.gradients[rank], Floats(kElements, 6));
      EXPECT_EQ(outcome.traces[rank].intervals.size(), 4u);
    }
  }
}

TEST(Executor, WaitsForEverythingAtTheEndOfTheStep) {
  // Nobody waits for the sum; it must still be over, and recorded once, when the step ends.
  const Outcome outcome = run({summing(0, 4, {}), summing(1, 4, {})}, true, 5);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(outcome.errors[rank], "");
    EXPECT_EQ(outcome.traces[rank].intervals.size(), 4u);
  }
}

TEST(Executor, RefusesToReleaseWhatACommunicationStillUses) {
  const Outcome outcome = run({summing(0, 2, {}), summing(1, 2, {})}, false, 1);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_NE(outcome.errors[rank].find("buffer a is released while a communication still uses it"),
              std::string::npos)
        << outcome.errors[rank];
  }
}

TEST(Executor, KeepsTheOrderOfAStreamAcrossGroups) {
  // Sum over mp, then behind it on the same stream over dp, of the same memory, without a wait.
  Grid grid = mp_grid(2);
  grid.degree[std::size_t(Axis::dp)] = 2;
  std::vector<Program> by_rank;
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    HandBuilder builder(grid);
    const BufferId c = builder.persistent("c", TensorRole::gradient, kBytes);
    builder.call(builder.fill(kElements, std::pow(10, rank)), {c});
    builder.call(builder.collective(OpKind::all_reduce, Axis::mp, kElements), {c});
    builder.call(builder.collective(OpKind::all_reduce, Axis::dp, kElements), {c});
    by_rank.push_back(builder.build());
  }
  for (int round = 0; round < 20; ++round) {
    const Outcome outcome = run(by_rank, false, 10);
    for (const Floats& values : outcome.gradients) EXPECT_EQ(values, Floats(kElements, 1111));
  }
}

TEST(Executor, GathersAndScattersPartsThatLieElsewhere) {
  // Each of 2 ranks holds a part: 3 and 30. Gathered, then summed back into the part.
  constexpr std::int64_t kPart = 16;
  std::vector<Program> by_rank;
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    HandBuilder builder(mp_grid(2));
    const BufferId part = builder.persistent("part", TensorRole::gradient, 4 * kPart);
    const BufferId whole = builder.buffer("whole", TensorRole::communication, 8 * kPart, 1, 3);
    builder.call(builder.fill(kPart, rank == 0 ? 3 : 30), {part});
    builder.call(builder.collective(OpKind::all_gather, Axis::mp, kPart, 2 * kPart), {part, whole});
    builder.call(builder.collective(OpKind::reduce_scatter, Axis::mp, 2 * kPart, kPart),
                 {whole, part}, {{1, 0}});
    by_rank.push_back(builder.build());
  }
  const Outcome outcome = run(by_rank, true, 3);
  EXPECT_EQ(outcome.errors, (std::vector<std::string>{"", ""}));
  EXPECT_EQ(outcome.gradients[0], Floats(kPart, 6));
  EXPECT_EQ(outcome.gradients[1], Floats(kPart, 60));
}

TEST(Executor, MovesActivationsToTheNextStage) {
  Grid grid;
  grid.degree[std::size_t(Axis::pp)] = 2;
  HandBuilder first(grid), second(grid);
  const BufferId c = first.persistent("c", TensorRole::gradient, kBytes);
  first.call(first.fill(kElements, 7), {c});
  first.call(first.transfer(OpKind::send, 1, kElements), {c});
  const BufferId d = second.persistent("d", TensorRole::gradient, kBytes);
  const BufferId x = second.buffer("x", TensorRole::communication, kBytes, 0, 2);
  second.call(second.transfer(OpKind::recv, -1, kElements), {x});
  second.call(second.add(kElements), {x, x, d}, {{0, 0}});
  Program last = second.build();
  last.stage = 1;
  const Outcome outcome = run({first.build(), last}, true, 3);
  EXPECT_EQ(outcome.errors, (std::vector<std::string>{"", ""}));
  EXPECT_EQ(outcome.gradients[1], Floats(kElements, 14));
}

TEST(Executor, BindsTheOwnPartOfAShardedRange) {
  // Each of 2 ranks fills its half of the arena; the other half keeps its zeros.
  Grid grid;
  grid.degree[std::size_t(Axis::sharding)] = 2;
  HandBuilder builder(grid);
  const BufferId c = builder.persistent("c", TensorRole::gradient, 160);
  builder.call(builder.fill(16, 5), {c});
  builder.last().bindings[0].offset = Bytes(32);
  builder.last().bindings[0].shard_stride = Bytes(64);
  const Program program = builder.build();
  const Outcome outcome = run({program, program}, true);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    Floats expected(40, 0);
    std::fill_n(expected.begin() + 8 + std::ptrdiff_t(16 * rank), 16, 5.0f);
    EXPECT_EQ(outcome.gradients[rank], expected);
  }
}

TEST(Executor, NamesRankStepAndRoutineOfAFailure) {
  const auto backend = [] {
    return make_watched_backend([](const Op& op, const RunPosition& position) {
      if (op.kind == OpKind::add && position.step == 1) throw std::runtime_error("out of luck");
    });
  };
  const Outcome outcome = run({four_calls()}, false, 3, backend);
  EXPECT_EQ(outcome.errors[0], "rank 0 failed in step 2, routine add: out of luck");
}

}  // namespace
}  // namespace plimsoll
