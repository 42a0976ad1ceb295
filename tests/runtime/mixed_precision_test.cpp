// Training gpt-nano in 16-bit types: close to f32, the same model whatever the strategy and
// wherever parameters are cast, bytes as predicted, casts as counted by the closed forms of Paddle
// PR 35878.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "graph/op_table.h"
#include "passes/pipeline.h"
#include "tests/runtime/nano.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kMixedSteps = 12;

Job mixed_job(DType type) {
  Job job = nano_job();
  job.precision = type;
  // No step is skipped: gradients of the loss times this lie well within f16.
  if (type == DType::f16) job.loss_scale = LossScale{.initial = 0x1p14};
  return job;
}

std::vector<Program> programs_of(const std::string& fields, CastPlacement placement, const Job& job,
                                 Recompute recompute = Recompute::none,
                                 std::int64_t micro_batches = 4) {
  Strategy strategy = nano_strategy(fields, micro_batches, recompute);
  strategy.optimizer.cast_placement = placement;
  return nano_programs(strategy, job);
}

/// Largest difference of two curves, relative to the second.
double distance(const std::vector<double>& found, const std::vector<double>& expected) {
  double largest = 0;
  EXPECT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    EXPECT_TRUE(std::isfinite(found[i])) << i;
    largest = std::max(largest, std::abs(found[i] - expected[i]) / expected[i]);
  }
  return largest;
}

const Program& program_of(const std::vector<Program>& programs, std::int64_t rank) {
  const Coordinates at = programs[0].grid.coordinates(rank);
  return programs[std::size_t(at[std::size_t(Axis::pp)])];
}

// Every rank then has the whole sum and updates its part.
TEST(MixedPrecision, ShardsOfWholeSumsTrainAsTheSerialRun) {
  const Job job = mixed_job(DType::bf16);
  Framework framework = bundled_framework();
  framework.memory.gradients = GradientMemory::bf16_also_in_f32;
  const auto serial = train_nano(programs_of("", CastPlacement::fused, job), steps_of(5), job);
  for (const char* fields :
       {"sharding_degree=2", "pp=2,sharding_degree=2", "dp=2,sharding_degree=2"}) {
    SCOPED_TRACE(fields);
    const auto programs = lower({job, nano_strategy(fields, 4, Recompute::none), framework});
    TrainOptions options = steps_of(5);
    const Measured found = train_nano(programs, options, job).measured;
    EXPECT_LE(distance(found.losses, serial.measured.losses), 0x1p-9);
    EXPECT_LE(distance(found.gradient_norms, serial.measured.gradient_norms), 0.02);
  }
}

class MixedTraining : public testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(Types, MixedTraining, testing::Values(DType::bf16, DType::f16),
                         [](const auto& info) { return std::string(to_text(info.param)); });

// A step's loss is a mean over thousands of tokens of logits that a unit roundoff of 2^-8 (bf16) or
// 2^-11 (f16) disturbs; a bound of 2^-8 holds where the disturbances do not add up.
TEST_P(MixedTraining, TheLossCurveIsCloseToThatOfF32) {
  const auto plain =
      train_nano(programs_of("", CastPlacement::fused, nano_job()), steps_of(kMixedSteps));
  const Job job = mixed_job(GetParam());
  const auto mixed =
      train_nano(programs_of("", CastPlacement::fused, job), steps_of(kMixedSteps), job);
  EXPECT_LT(mixed.measured.losses.back(), mixed.measured.losses.front());
  EXPECT_LE(distance(mixed.measured.losses, plain.measured.losses), 0x1p-8);
  EXPECT_LE(distance(mixed.measured.gradient_norms, plain.measured.gradient_norms), 0.05);
}

// Splits round partial sums that one rank keeps in f32.
TEST_P(MixedTraining, AnySplitIsCloseToTheSerialRunAndTakesThePredictedBytes) {
  const Job job = mixed_job(GetParam());
  const auto serial = train_nano(programs_of("", CastPlacement::fused, job), steps_of(5), job);
  for (const std::string fields : {"mp=2", "pp=2", "dp=2", "sharding_degree=2", "mp=2,pp=2",
                                   "pp=2,sharding_degree=2", "dp=2,sharding_degree=2"}) {
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      if (recompute == Recompute::full && fields != "mp=2,pp=2") continue;
      SCOPED_TRACE(fields);
      const auto programs = programs_of(fields, CastPlacement::fused, job, recompute);
      const Measured found = train_nano(programs, steps_of(5), job).measured;
      EXPECT_LE(distance(found.losses, serial.measured.losses), 0x1p-9);
      EXPECT_LE(distance(found.gradient_norms, serial.measured.gradient_norms), 0.02);
      expect_predicted_bytes(programs, found);
    }
  }
}

// A parameter is the master rounded, wherever that is done.
TEST_P(MixedTraining, WhereParametersAreCastChangesNoBit) {
  const Job job = mixed_job(GetParam());
  for (const std::string fields : {"", "pp=2,sharding_degree=2", "mp=2,pp=2"}) {
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      if (fields.empty() != (recompute == Recompute::selective)) continue;  // selective on one rank
      SCOPED_TRACE(fields);
      std::vector<std::vector<double>> losses, norms;
      for (const CastPlacement placement :
           {CastPlacement::fused, CastPlacement::after_update, CastPlacement::every_use}) {
        const auto programs = programs_of(fields, placement, job, recompute);
        const Measured measured = train_nano(programs, steps_of(4), job).measured;
        expect_predicted_bytes(programs, measured);
        losses.push_back(measured.losses);
        norms.push_back(measured.gradient_norms);
      }
      EXPECT_EQ(losses[1], losses[0]);
      EXPECT_EQ(losses[2], losses[0]);
      EXPECT_EQ(norms[1], norms[0]);
      EXPECT_EQ(norms[2], norms[0]);
    }
  }
}

// ---- closed forms (Paddle PR 35878) ----

/// Intervals of one kind on one rank in the traced step.
std::int64_t executed(const Measured& measured, std::int64_t rank, OpKind kind) {
  return std::count_if(
      measured.timeline.intervals.begin(), measured.timeline.intervals.end(),
      [&](const Interval& interval) { return interval.rank == rank && interval.kind == kind; });
}

Measured run_bf16(const std::vector<Program>& programs) {
  return train_nano(programs, steps_of(2), mixed_job(DType::bf16)).measured;
}

/// Casts and the bytes that they move, of one step on one rank.
struct Casts {
  std::int64_t count = 0;
  Bytes bytes;
};

/// Counts casts of parameters in the Program's calls. Casts of activations (logits and their
/// gradient) do not count.
Casts parameter_casts(const Program& program) {
  Casts casts;
  for (const Call& call : program.calls) {
    const Routine& routine = program.at(call.routine);
    for (const Op& op : routine.ops) {
      const bool in_use = op.kind == OpKind::cast &&
                          routine.tensors[op.inputs[0].index()].role == TensorRole::parameter;
      if (!in_use && op.kind != OpKind::cast_parameters) continue;
      ++casts.count;
      casts.bytes += bytes_moved(op, routine.tensors);
    }
  }
  return casts;
}

std::int64_t elements_of(const Program& program) {
  std::int64_t count = 0;
  for (const Segment& segment : program.segments) count += segment.elements;
  return count;
}

// n m casts without recompute: every parameter in every micro-batch's forward.
TEST(CastCounts, EveryUseCastsEachParameterInEveryMicroBatch) {
  const Job job = mixed_job(DType::bf16);
  for (const std::string fields : {"", "pp=2"}) {
    const auto programs = programs_of(fields, CastPlacement::every_use, job);
    const auto moved = programs_of(fields, CastPlacement::fused, job);
    const Measured with = run_bf16(programs), without = run_bf16(moved);
    for (std::int64_t rank = 0; rank < programs[0].grid.world_size(); ++rank) {
      const Program& program = program_of(programs, rank);
      const auto n = std::int64_t(program.segments.size());
      const std::int64_t m = program.micro_batches;
      const Casts casts = parameter_casts(program);
      EXPECT_EQ(casts.count, n * m);
      EXPECT_EQ(casts.bytes, 6 * m * Bytes(elements_of(program)));
      EXPECT_EQ(executed(with, rank, OpKind::cast) - executed(without, rank, OpKind::cast), n * m);
      EXPECT_EQ(parameter_casts(program_of(moved, rank)).count, 0);
      EXPECT_EQ(executed(without, rank, OpKind::cast_parameters), 0);
    }
  }
}

// 2 n m and 12 N m bytes where a checkpoint repeats its segment whole; of a stage of layers alone.
TEST(CastCounts, RecomputeCastsTwice) {
  const Job job = mixed_job(DType::bf16);
  Strategy strategy = nano_strategy("", 4, Recompute::full);
  strategy.optimizer.cast_placement = CastPlacement::every_use;
  Framework framework = bundled_framework();
  framework.parallelism.recompute_repeats_all = true;
  const std::vector<Program> programs = lower({job, strategy, framework});
  std::int64_t expected = 0, elements = 0;
  for (const Segment& segment : programs[0].segments) {
    const bool layer = segment.parameter.starts_with("layer.");
    expected += (layer ? 2 : 1) * programs[0].micro_batches;
    elements += (layer ? 2 : 1) * programs[0].micro_batches * segment.elements;
  }
  const Casts casts = parameter_casts(programs[0]);
  EXPECT_EQ(casts.count, expected);
  EXPECT_EQ(casts.bytes, Bytes(6 * elements));
  const Measured measured = train_nano(programs, steps_of(2), job).measured;
  const std::int64_t of_logits = 2 * programs[0].micro_batches;
  EXPECT_EQ(executed(measured, 0, OpKind::cast), expected + of_logits);
}

// One cast per step, of the owned elements: 6 N / d bytes.
TEST(CastCounts, AfterTheUpdateOneCastOfWhatTheRankOwns) {
  const Job job = mixed_job(DType::bf16);
  for (const std::int64_t degree : {1, 2, 4}) {
    const auto programs = programs_of("sharding_degree=" + std::to_string(degree),
                                      CastPlacement::after_update, job, Recompute::none, 1);
    const Casts casts = parameter_casts(programs[0]);
    EXPECT_EQ(casts.count, 1);
    EXPECT_EQ(casts.bytes, Bytes(6 * owned_elements(programs[0])));
    const Measured measured = run_bf16(programs);
    for (std::int64_t rank = 0; rank < degree; ++rank) {
      EXPECT_EQ(executed(measured, rank, OpKind::cast_parameters), 1);
      EXPECT_EQ(executed(measured, rank, OpKind::cast), 2);  // logits and their gradient
    }
  }
}

// Without flattening one cast for each tensor that the rank owns: n / d in the mean, 6 N / d bytes.
TEST(CastCounts, AfterTheUpdateTensorByTensor) {
  const Job job = mixed_job(DType::bf16);
  for (const std::int64_t degree : {2, 4}) {
    const auto programs =
        programs_of("sharding_owner=greedy,flatten=none,sharding_degree=" + std::to_string(degree),
                    CastPlacement::after_update, job, Recompute::full, 2);
    const Measured measured = run_bf16(programs);
    Casts all;
    for (std::int64_t rank = 0; rank < degree; ++rank) {
      const Program& program = programs[std::size_t(rank)];
      const auto owned = std::count_if(program.segments.begin(), program.segments.end(),
                                       [&](const Segment& one) { return one.owner == rank; });
      const Casts casts = parameter_casts(program);
      EXPECT_EQ(casts.count, owned);
      EXPECT_EQ(executed(measured, rank, OpKind::cast_parameters), owned);
      EXPECT_EQ(executed(measured, rank, OpKind::cast), 2 * program.micro_batches);  // of logits
      all.count += casts.count;
      all.bytes += casts.bytes;
    }
    EXPECT_EQ(all.count, std::int64_t(programs[0].segments.size()));
    EXPECT_EQ(all.bytes, Bytes(6 * elements_of(programs[0])));
  }
}

// Persistent bytes per element: 16 with casts in every use, 18 with masters beside the parameters;
// over d shards 8 + 8/d and 6 + 12/d: equal at d = 2.
TEST(CastBytes, PersistentBytesPerParameter) {
  const Job job = mixed_job(DType::bf16);
  const auto bytes = [&](std::int64_t degree, CastPlacement placement) {
    const Program program = programs_of("sharding_degree=" + std::to_string(degree), placement, job,
                                        Recompute::none, 1)[0];
    std::int64_t elements = 0;
    for (const Bucket& bucket : program.buckets) elements += bucket.elements;
    Bytes total;
    for (const Buffer& buffer : program.buffers) {
      const bool counts = buffer.persistent && buffer.role != TensorRole::scalar &&
                          buffer.role != TensorRole::workspace;
      if (counts) total += buffer.bytes;
    }
    return double(total.count()) / double(elements);
  };
  EXPECT_EQ(bytes(1, CastPlacement::every_use), 16);
  EXPECT_EQ(bytes(1, CastPlacement::after_update), 18);
  EXPECT_EQ(bytes(1, CastPlacement::fused), 18);
  for (const std::int64_t degree : {2, 4}) {
    EXPECT_EQ(bytes(degree, CastPlacement::every_use), 8 + 8.0 / double(degree));
    EXPECT_EQ(bytes(degree, CastPlacement::fused), 6 + 12.0 / double(degree));
  }
}

// Each micro-batch in flight keeps its own copies of what backward reads: min(m, P - s) of them.
TEST(CastBytes, CopiesInFlightGrowWithThePipeline) {
  const Job job = mixed_job(DType::bf16);
  for (const std::int64_t m : {1, 2, 4, 8}) {
    const auto every = programs_of("pp=4", CastPlacement::every_use, job, Recompute::none, m);
    const auto moved = programs_of("pp=4", CastPlacement::fused, job, Recompute::none, m);
    const Measured with = run_bf16(every), without = run_bf16(moved);
    for (std::int64_t stage = 0; stage < 4; ++stage) {
      // Forward casts and backward reads these copies: weights of products and gains of norms.
      Bytes copies;
      for (const Segment& segment : every[std::size_t(stage)].segments) {
        const std::string& name = segment.parameter;
        const bool read = (name.ends_with("weight") || name.ends_with("gamma"));
        if (read) copies += round_up(Bytes(2 * segment.elements), kBlockAlignment);
      }
      const auto saved = [&](const Measured& measured) {
        Bytes most;
        for (const MemoryPoint& point : measured.timeline.memory[std::size_t(stage)].curve)
          most = std::max(most, point.by_role[std::size_t(TensorRole::saved)]);
        return most;
      };
      EXPECT_EQ((saved(with) - saved(without)).count(),
                (copies * std::min<std::int64_t>(m, 4 - stage)).count())
          << "stage " << stage << ", " << m << " micro-batches";
    }
  }
}

// A scale that f16 cannot hold costs steps, not the run: it is halved until gradients are finite.
TEST(LossScaling, AScaleThatIsTooLargeSkipsStepsUntilItFits) {
  Job job = mixed_job(DType::f16);
  job.loss_scale = LossScale{.initial = 0x1p32};
  for (const std::string fields : {"pp=2,sharding_degree=2"}) {
    SCOPED_TRACE(fields);
    const auto programs = programs_of(fields, CastPlacement::fused, job);
    const Measured measured = train_nano(programs, steps_of(30), job).measured;
    ASSERT_EQ(measured.loss_scales.size(), 30u);
    EXPECT_LT(measured.loss_scales.back(), 0x1p32);
    EXPECT_GT(measured.loss_scales.back(), 0x1p10);
    for (std::size_t step = 1; step < 30; ++step) {
      const double ratio = measured.loss_scales[step] / measured.loss_scales[step - 1];
      EXPECT_TRUE(ratio == 1 || ratio == 0.5) << step;
    }
    EXPECT_LT(measured.losses.back(), measured.losses.front());
  }
}

}  // namespace
}  // namespace plimsoll
