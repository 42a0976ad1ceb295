// Layer cuts: dynamic programming against every cut there is.
#include "planner/layers/layer_cut.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/error.h"

namespace plimsoll {
namespace {

/// Options at random: some stages have no way to run so many layers, or several.
struct RandomStages {
  CutProblem problem;
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<StageOption>> options;

  explicit RandomStages(std::mt19937_64& random) {
    problem = {1 + std::int64_t(random() % 4), 1 + std::int64_t(random() % 6),
               1 + std::int64_t(random() % 6)};
    const auto time = [&] { return Picoseconds(1 + std::int64_t(random() % 20)); };
    for (std::int64_t stage = 0; stage < problem.stages; ++stage) {
      for (std::int64_t layers = 0; layers <= problem.layers; ++layers) {
        auto& all = options[{stage, layers}];
        for (std::size_t r = random() % 4; r > 0; --r) {
          const Picoseconds forward = time(), work = forward + time();
          all.push_back({std::int64_t(r), forward, work, work + time()});
        }
      }
    }
  }
  const std::vector<StageOption>& at(std::int64_t stage, std::int64_t layers) const {
    return options.at({stage, layers});
  }
};

/// Every way to share out `left` layers over the stages from chosen.size() on.
void try_all(const RandomStages& stages, std::int64_t left, std::vector<StageOption>& chosen,
             std::optional<Picoseconds>& least) {
  const auto stage = std::int64_t(chosen.size());
  if (stage == stages.problem.stages) {
    if (left > 0) return;
    const Picoseconds step = pipeline_objective(chosen, stages.problem.micro_batches);
    least = least ? std::min(*least, step) : step;
    return;
  }
  for (std::int64_t layers = 0; layers <= left; ++layers) {
    for (const StageOption& option : stages.at(stage, layers)) {
      chosen.push_back(option);
      try_all(stages, left - layers, chosen, least);
      chosen.pop_back();
    }
  }
}

/// The options that a cut names have its objective.
void expect_sound(const RandomStages& stages, const LayerCut& cut) {
  std::vector<StageOption> chosen;
  std::int64_t layers = 0;
  for (std::size_t s = 0; s < cut.stages.size(); ++s) {
    layers += cut.stages[s].layers;
    for (const StageOption& option : stages.at(std::int64_t(s), cut.stages[s].layers)) {
      if (option.recomputed == cut.stages[s].recomputed) chosen.push_back(option);
    }
  }
  EXPECT_EQ(layers, stages.problem.layers);
  ASSERT_EQ(chosen.size(), cut.stages.size());
  EXPECT_EQ(pipeline_objective(chosen, stages.problem.micro_batches), cut.step);
}

TEST(LayerCut, IsTheBestOfAll) {
  std::mt19937_64 random(5);
  int found = 0;
  for (int i = 0; i < 1000; ++i) {
    const RandomStages stages(random);
    std::vector<StageOption> chosen;
    std::optional<Picoseconds> least;
    try_all(stages, stages.problem.layers, chosen, least);
    const auto options = [&](std::int64_t stage, std::int64_t layers) {
      return stages.at(stage, layers);
    };
    const auto cut = best_cut(stages.problem, options);
    ASSERT_EQ(cut.has_value(), least.has_value()) << "problem " << i;
    if (!cut) continue;
    ++found;
    EXPECT_EQ(cut->step, *least) << "problem " << i;
    expect_sound(stages, *cut);
    CutProblem limited = stages.problem;
    limited.limit = *least + Picoseconds(1 + i % 9);
    const auto same = best_cut(limited, options);
    ASSERT_TRUE(same) << "problem " << i;
    EXPECT_EQ(same->stages, cut->stages) << "problem " << i;
    limited.limit = *least;
    EXPECT_FALSE(best_cut(limited, options)) << "problem " << i;
  }
  EXPECT_GT(found, 500);
}

/// Layers of 1 forward and 2 backward; the last stage has a head that takes as long as a layer.
std::vector<StageOption> with_head(std::int64_t stage, std::int64_t layers, std::int64_t stages) {
  const std::int64_t units = layers + (stage + 1 == stages ? 1 : 0);
  if (layers == 0) return {};
  return {{0, Picoseconds(units), Picoseconds(3 * units), Picoseconds(3 * units)}};
}

TEST(LayerCut, TheHeadWeighs) {
  const auto cut = best_cut({3, 8, 16}, [](std::int64_t stage, std::int64_t layers) {
    return with_head(stage, layers, 3);
  });
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->stages, (std::vector<StageChoice>{{3, 0}, {3, 0}, {2, 0}}));
  // Two stages before the last one, then 16 micro-batches there.
  EXPECT_EQ(cut->step, Picoseconds(9 + 9 + 16 * 9));
}

TEST(LayerCut, AnObjectiveByHand) {
  // Stage 0 runs two forwards of 2 while the first micro-batch is on stage 1 for 9; it waits 7.
  const std::vector<StageOption> stages = {{0, Picoseconds(2), Picoseconds(6), Picoseconds(6)},
                                           {0, Picoseconds(3), Picoseconds(9), Picoseconds(9)}};
  EXPECT_EQ(pipeline_objective(stages, 4), Picoseconds(6 + 4 * 9));
  EXPECT_EQ(pipeline_objective({stages.data(), 1}, 4), Picoseconds(24));
  const std::vector<StageOption> slow_first = {stages[1], stages[0]};
  EXPECT_EQ(pipeline_objective(slow_first, 4), Picoseconds(4 * 9 + 6 - 3));
}

TEST(LayerCut, TimesBeyondTheClockAreRefused) {
  const Picoseconds days(std::int64_t{1} << 61);  // 26 of them
  const std::vector<StageOption> long_work = {{0, Picoseconds(1), days, days}},
                                 long_forward = {{0, days, days, days}, {0, days, days, days}};
  EXPECT_EQ(pipeline_objective(long_work, 3), Picoseconds(3 * days.count()));
  EXPECT_THROW(pipeline_objective(long_work, 4), InfeasibleError);
  EXPECT_THROW(pipeline_objective(long_work, std::int64_t{1} << 40), InfeasibleError);
  EXPECT_THROW(pipeline_objective(long_forward, 4), InfeasibleError);
  EXPECT_THROW(best_cut({1, 1, 4}, [&](std::int64_t, std::int64_t) { return long_work; }),
               InfeasibleError);
}

TEST(LayerCut, NothingFits) {
  EXPECT_FALSE(best_cut({2, 4, 2}, [](std::int64_t stage, std::int64_t layers) {
    return stage == 1 ? std::vector<StageOption>() : with_head(stage, layers, 2);
  }));
}

}  // namespace
}  // namespace plimsoll
