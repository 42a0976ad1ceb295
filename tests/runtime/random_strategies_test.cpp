// Strategies drawn over all switches: each trains the model that one rank trains, in exactly the
// bytes that were predicted, and is simulated to the same times with and without folding.
//
// PLIMSOLL_DRAWS=FIRST:COUNT draws others than the fixed subset; of these PLIMSOLL_DRAWS_WITH=
// "schedule=zb_h1 sequence_parallel=true" keeps those whose summary has all of these words.
#include "tests/passes/random_strategies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <sstream>

#include "passes/pipeline.h"
#include "simulator/simulate.h"
#include "tests/draws.h"
#include "tests/runtime/nano.h"
#include "tests/runtime/random_clusters.h"

namespace plimsoll {
namespace {

#ifdef PLIMSOLL_SANITIZED
constexpr std::int64_t kDraws = 6;  // instrumented steps are slow
#else
constexpr std::int64_t kDraws = kFixedDraws;
#endif
constexpr std::size_t kDrawnSteps = 4;

bool has_wanted_words(std::uint64_t seed) {
  const char* wanted = std::getenv("PLIMSOLL_DRAWS_WITH");
  if (wanted == nullptr) return true;
  const std::string summary = " " + strategy_summary(draw(seed).strategy) + " ";
  std::istringstream words(wanted);
  for (std::string word; words >> word;) {
    if (summary.find(" " + word + " ") == std::string::npos) return false;
  }
  return true;
}

std::vector<std::uint64_t> seeds() {
  const Draws draws = wanted_draws({.first = 1, .count = kDraws});
  std::vector<std::uint64_t> seeds;
  for (std::int64_t i = 0; i < draws.count; ++i) {
    const auto seed = std::uint64_t(draws.first + i);
    if (has_wanted_words(seed)) seeds.push_back(seed);
  }
  return seeds;
}

/// How far a run may be from the serial one, relative to its value. Sums in another order: f32
/// agrees to 5.5e-7 per matmul.
struct Tolerance {
  double loss, norm, gradient;
};
Tolerance tolerance(const Job& job) {
  // Values that one rank keeps in f32 inside a product or a sum are rounded where it is split: by
  // up to 2^-8 of themselves in bf16, 2^-11 in f16, and the errors of some thousand elements mostly
  // cancel.
  // Norms behind branches enlarge them.
  const bool enlarged = job.norm_place != NormPlace::before;
  if (job.precision != DType::f32 && enlarged) return {0x1p-8, 0x1p-4, 0x1p-3};
  if (job.precision != DType::f32) return {0x1p-8, 0x1p-5, 0x1p-4};
  return enlarged ? Tolerance{1e-4, 5e-4, 5e-4} : Tolerance{1e-4, 1e-4, 1e-4};
}

class Drawn : public testing::TestWithParam<std::uint64_t> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Drawn);
INSTANTIATE_TEST_SUITE_P(Random, Drawn, testing::ValuesIn(seeds()),
                         [](const auto& info) { return "seed" + std::to_string(info.param); });

/// Returns the FLOPs of products of a step over all ranks, by the published formula: backward has
/// twice the forward. Ranks of mp pad the vocabulary to a multiple. They copy key and value heads
/// where there are too few, and each multiplies by the parameters that are not split: the pooler,
/// the join of trunk and branch, routers, the latents of attention and of experts, and what MTP
/// modules join.
Flops model_flops(Job job, const Strategy& strategy) {
  job.vocab = (job.vocab + strategy.mp - 1) / strategy.mp * strategy.mp;
  if (job.kv_heads < strategy.mp) job.kv_heads = strategy.mp;
  Flops forward = forward_matmul_flops_per_sequence(job), whole;
  if (job.pooler) {
    Job without = job;
    without.pooler = false;
    whole += forward - forward_matmul_flops_per_sequence(without);
  }
  if (job.branch && !strategy.tokens.sequence_parallel)  // else each joins its own tokens
    whole += Flops(2.0 * double(job.sequence * job.hidden * job.branch->hidden));
  if (job.experts && !strategy.tokens.sequence_parallel) {  // the router, and a gate
    std::int64_t layers = 0;
    for (std::int64_t layer = 0; layer < job.layers; ++layer) layers += has_experts(job, layer);
    if (job.mtp && has_experts(job, job.layers - 1)) layers += job.mtp->depths;
    const std::int64_t columns = job.experts->count + (job.experts->shared_gate ? 1 : 0);
    const std::int64_t narrow = 2 * job.experts->latent_hidden;  // before and behind experts
    whole += Flops(2.0 * double(job.sequence * job.hidden * (columns + narrow) * layers));
  }
  if (job.latent && !strategy.tokens.sequence_parallel) {  // what all heads share
    const Latent& latent = *job.latent;
    const std::int64_t columns = latent.q_rank + latent.kv_rank + latent.rope;
    whole += Flops(2.0 * double(job.sequence * job.hidden * columns * total_layers(job)));
  }
  if (job.mtp && !strategy.tokens.sequence_parallel)
    whole += Flops(4.0 * double(job.sequence * job.hidden * job.hidden * job.mtp->depths));
  forward += whole * double(strategy.mp - 1);
  return 3.0 * forward * double(job.global_batch);
}

/// Where ranks share sequences, attention is one kernel: it computes the scores within the window,
/// and backward computes them once more, which is half of what forward multiplies.
Flops scores_again(const Job& job) {
  const AttentionParams params{.sequence = job.sequence, .window = job.window};
  const double scores = double(job.sequence * job.sequence) * share_in_window(params);
  return Flops(double(total_layers(job) * job.global_batch) * 2 *
               double(job.heads * head_width(job)) * scores);
}

/// Multiplied as each rank's Program says, and beside what is repeated as the model says.
void expect_predicted_flops(const std::vector<Program>& programs, const Draw& drawn,
                            const std::vector<PhaseFlops>& counted) {
  const Grid& grid = programs[0].grid;
  ASSERT_EQ(std::int64_t(counted.size()), grid.world_size());
  Flops once, repeated;
  for (std::int64_t rank = 0; rank < grid.world_size(); ++rank) {
    const PhaseFlops& flops = counted[std::size_t(rank)];
    const PhaseFlops predicted = step_flops(programs[class_of(programs, grid.coordinates(rank))]);
    for (std::size_t phase = 0; phase < kPhases; ++phase) {
      // Scores within a window or examples are a share of all, so their sum depends on the order.
      const double value = predicted[phase].value();
      EXPECT_NEAR(flops[phase].value(), value, 1e-13 * value) << "rank " << rank;
      if (Phase(phase) == Phase::optimizer) continue;  // of Muon
      (Phase(phase) == Phase::recompute ? repeated : once) += flops[phase];
    }
  }
  if (has_frozen(drawn.job)) {  // backward is less than twice the forward
    const Strategy& s = drawn.strategy;
    const Flops all =
        training_matmul_flops_per_sequence(drawn.job) * double(drawn.job.global_batch);
    if (s.mp * s.cp == 1 && !drawn.job.experts && drawn.job.window == 0 &&
        drawn.job.lengths.empty()) {
      EXPECT_NEAR(once / all, 1, 1e-9);
    }
    return;
  }
  Job whole = drawn.job;
  const bool parts = drawn.strategy.cp > 1;
  if (!parts) whole.window = 0;  // kernels that keep scores compute all of them
  whole.lengths = {};            // and products those of padding
  const Flops model = model_flops(whole, drawn.strategy) + (parts ? scores_again(whole) : Flops(0));
  // Scores within a window, and expected rows of a rank, are no whole numbers.
  const bool some_layers = parts && (!whole.window_pattern.empty() || whole.window_chunks);
  if (some_layers || (parts && !drawn.job.lengths.empty())) {
    once = model;  // the formula of scores has one window, and whole sequences
  } else if (parts || experts_apart(drawn.strategy)) {
    EXPECT_NEAR(once / model, 1, 1e-9);
    once = model;
  } else {
    EXPECT_EQ(once, model);
  }
  const bool recomputes = drawn.strategy.recompute != Recompute::none;
  EXPECT_LE(repeated, recomputes ? once / 3 : Flops(0));
}

/// Vocabulary rows beyond the serial ones are padding: nothing may flow into them.
void drop_padding(std::vector<float>& gradient, std::size_t real) {
  for (std::size_t i = real; i < gradient.size(); ++i) ASSERT_EQ(gradient[i], 0) << i;
  gradient.resize(std::min(real, gradient.size()));
}

/// Gradients as backward left them: the fused update leaves them scaled with the loss, the other
/// forms unscale them, and without flattening they are clipped where they lie; but not those of
/// which the update has an f32 copy.
void undo_update(const std::vector<Program>& programs, const Job& job, const Strategy& strategy,
                 double norm, std::vector<std::vector<float>>& gradients) {
  const bool copied = strategy.precision.gradients == GradientType::computed;
  const bool fused = strategy.optimizer.flatten == Flatten::fused || copied;
  const bool none = strategy.optimizer.flatten == Flatten::none && !copied;
  const double unscale = fused && job.loss_scale ? 1 / job.loss_scale->initial : 1;
  const double unclip = none && job.clip_norm > 0 ? std::max(1.0, norm / job.clip_norm) : 1;
  const Grid& grid = programs[0].grid;
  for (std::int64_t rank = 0; rank < grid.world_size(); ++rank) {
    const std::size_t stage = class_of(programs, grid.coordinates(rank));
    std::vector<float>& arena = gradients[std::size_t(rank)];
    arena = at_its_place(programs[stage], grid.coordinates(rank), arena);
    for (const Segment& segment : programs[stage].segments) {
      for (std::int64_t i = 0; i < segment.elements; ++i) {
        arena[std::size_t(segment.offset + i)] *= float(segment.clip ? unscale * unclip : unscale);
      }
    }
  }
}

TEST_P(Drawn, TrainsTheSerialModelInThePredictedBytes) {
  const Draw drawn = draw(GetParam());
  SCOPED_TRACE(describe(drawn));
  TrainOptions options;
  options.steps = kDrawnSteps;
  options.warm_up_steps = 0;
  options.keep_gradients = true;
  const Tolerance within = tolerance(drawn.job);
  const auto one = nano_programs(serial(drawn), drawn.job);
  TrainResult expected = train_nano(one, options, drawn.job);
  const auto many = nano_programs(drawn.strategy, drawn.job);
  TrainResult found = train_nano(many, options, drawn.job);

  expect_predicted_bytes(many, found.measured);
  expect_predicted_flops(many, drawn, found.flops);
  for (std::int64_t rank = 0; rank < drawn.devices; ++rank) {
    const Grid& grid = many[0].grid;
    EXPECT_EQ(found.traffic[std::size_t(rank)],
              step_traffic(many[class_of(many, grid.coordinates(rank))], rank))
        << "rank " << rank;
  }
  ASSERT_EQ(found.measured.losses.size(), kDrawnSteps);
  for (std::size_t step = 0; step < kDrawnSteps; ++step) {
    const double loss = expected.measured.losses[step];
    const double norm = expected.measured.gradient_norms[step];
    EXPECT_GT(loss, 0);
    EXPECT_GT(norm, 0);
    EXPECT_NEAR(found.measured.losses[step], loss, within.loss * loss) << step;
    if (drawn.strategy.gradients.release) {
      EXPECT_TRUE(std::isnan(found.measured.gradient_norms[step])) << step;
    } else {
      EXPECT_NEAR(found.measured.gradient_norms[step], norm, within.norm * norm) << step;
    }
  }
  if (drawn.strategy.gradients.release) return;  // backward has freed them
  const double first_norm = expected.measured.gradient_norms[0];
  undo_update(one, drawn.job, serial(drawn), first_norm, expected.gradients);
  undo_update(many, drawn.job, drawn.strategy, first_norm, found.gradients);
  const WholeTensors serial_gradients = put_together(one, expected.gradients, true, 0);
  WholeTensors gradients = put_together(many, found.gradients, true, within.gradient);
  EXPECT_EQ(gradients.size(), serial_gradients.size());
  for (const auto& [name, gradient] : serial_gradients) {
    ASSERT_TRUE(gradients.contains(name)) << name.first << " of layer " << name.second;
    SCOPED_TRACE(name.first + " of layer " + std::to_string(name.second));
    drop_padding(gradients.at(name), gradient.size());
    EXPECT_LE(relative_distance(gradients.at(name), gradient), within.gradient);
  }
}

/// The totals of every rank, from its own simulation or from that of the rank that stands for it.
struct RankTotals {
  Picoseconds first{std::int64_t{1} << 60}, last, busy;
  Bytes peak;
  bool operator==(const RankTotals&) const = default;
};

std::vector<RankTotals> totals(const Simulation& simulation) {
  std::map<std::int64_t, RankTotals> simulated;
  for (const Interval& interval : simulation.timeline.intervals) {
    RankTotals& rank = simulated[interval.rank];
    rank.first = std::min(rank.first, interval.begin);
    rank.last = std::max(rank.last, interval.end);
    rank.busy += interval.end - interval.begin;
  }
  for (const RankMemory& memory : simulation.timeline.memory) {
    simulated[memory.rank].peak = memory.peak;
  }
  std::vector<RankTotals> by_rank;
  for (const std::int64_t rank : simulation.represented_by) by_rank.push_back(simulated.at(rank));
  return by_rank;
}

TEST_P(Drawn, IsSimulatedAlikeFoldedAndUnfolded) {
  const Draw drawn = draw(GetParam());
  const auto programs = nano_programs(drawn.strategy, drawn.job);
  for (std::uint64_t placed = 0; placed < 4; ++placed) {
    const Cluster cluster = draw_cluster(GetParam() * 4 + placed);
    SCOPED_TRACE(describe(drawn) + cluster_text(cluster));
    const CostModel costs(cluster, std::nullopt, bundled_framework());
    const Simulation folded = simulate(programs, costs, Folding::folded);
    const Simulation unfolded = simulate(programs, costs, Folding::unfolded);
    EXPECT_GT(folded.step_time.value(), 0);
    EXPECT_EQ(folded.step_time.value(), unfolded.step_time.value());
    EXPECT_EQ(totals(folded), totals(unfolded));
    EXPECT_EQ(std::int64_t(totals(unfolded).size()), drawn.devices);
  }
}

}  // namespace
}  // namespace plimsoll
