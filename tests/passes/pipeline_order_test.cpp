// Orders against the published ones, and how long a step of them takes with unit costs.
#include "passes/strategy/pipeline_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

namespace plimsoll {
namespace {

/// "F0 B0 I1 W1": micro-batches; with several chunks "F0.1" is micro-batch 0 of chunk 1.
std::string text(const std::vector<Action>& order, bool chunks = false) {
  std::string result;
  for (const Action& action : order) {
    if (!result.empty()) result += ' ';
    result += "FBIW"[std::size_t(action.kind)] + std::to_string(action.micro_batch);
    if (chunks) result += '.' + std::to_string(action.chunk);
  }
  return result;
}

TEST(PipelineOrder, GPipeRunsBackwardFromTheLastMicroBatch) {
  // Huang et al. 2019, figure 2c: the same on every stage.
  for (std::int64_t stage : {0, 3}) {
    EXPECT_EQ(text(pipeline_order(Schedule::gpipe, 4, stage, 1, 4)), "F0 F1 F2 F3 B3 B2 B1 B0");
  }
}

TEST(PipelineOrder, OneForwardOneBackward) {
  // Narayanan et al. 2021, figure 4 top: 4 stages, 8 micro-batches.
  const auto order = [](std::int64_t stage) {
    return text(pipeline_order(Schedule::one_f_one_b, 4, stage, 1, 8));
  };
  EXPECT_EQ(order(0), "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7");
  EXPECT_EQ(order(1), "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7");
  EXPECT_EQ(order(2), "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7");
  EXPECT_EQ(order(3), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7");
}

TEST(PipelineOrder, InterleavedAsMegatron) {
  // Narayanan et al. 2021, figure 4 bottom: 4 stages, 8 micro-batches, chunks 0 and 1.
  const auto order = [](std::int64_t stage) {
    return text(pipeline_order(Schedule::one_f_one_b, 4, stage, 2, 8), true);
  };
  EXPECT_EQ(order(0),
            "F0.0 F1.0 F2.0 F3.0 F0.1 F1.1 F2.1 F3.1 F4.0 F5.0 F6.0 B0.1 F7.0 B1.1 F4.1 B2.1 F5.1 "
            "B3.1 F6.1 B0.0 F7.1 B1.0 B2.0 B3.0 B4.1 B5.1 B6.1 B7.1 B4.0 B5.0 B6.0 B7.0");
  EXPECT_EQ(order(3),
            "F0.0 F1.0 F2.0 F3.0 F0.1 B0.1 F1.1 B1.1 F2.1 B2.1 F3.1 B3.1 F4.0 B0.0 F5.0 B1.0 F6.0 "
            "B2.0 F7.0 B3.0 F4.1 B4.1 F5.1 B5.1 F6.1 B6.1 F7.1 B7.1 B4.0 B5.0 B6.0 B7.0");
}

TEST(PipelineOrder, ZeroBubbleDelaysWeightGradientsByTheStage) {
  // Qi et al. 2023, figure 2 top: ZB-H1 of 4 stages and 8 micro-batches.
  const auto order = [](std::int64_t stage) {
    return text(pipeline_order(Schedule::zb_h1, 4, stage, 1, 8));
  };
  EXPECT_EQ(order(0), "F0 F1 F2 F3 I0 W0 F4 I1 W1 F5 I2 W2 F6 I3 W3 F7 I4 W4 I5 W5 I6 W6 I7 W7");
  EXPECT_EQ(order(3), "F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 F5 I5 W2 F6 I6 W3 F7 I7 W4 W5 W6 W7");
}

struct Shape {
  Schedule schedule;
  std::int64_t stages, virtual_stages, micro_batches;
};

const Shape kShapes[] = {
    {Schedule::gpipe, 1, 1, 3},       {Schedule::gpipe, 4, 1, 8},
    {Schedule::gpipe, 4, 1, 1},       {Schedule::one_f_one_b, 1, 1, 5},
    {Schedule::one_f_one_b, 4, 1, 8}, {Schedule::one_f_one_b, 4, 1, 2},
    {Schedule::one_f_one_b, 2, 2, 2}, {Schedule::one_f_one_b, 2, 3, 8},
    {Schedule::one_f_one_b, 4, 2, 4}, {Schedule::one_f_one_b, 4, 3, 12},
    {Schedule::zb_h1, 1, 1, 4},       {Schedule::zb_h1, 4, 1, 8},
    {Schedule::zb_h1, 4, 1, 3},       {Schedule::zb_h1, 8, 1, 16},
};

std::vector<std::vector<Action>> orders(const Shape& shape) {
  std::vector<std::vector<Action>> result;
  for (std::int64_t stage = 0; stage < shape.stages; ++stage) {
    result.push_back(pipeline_order(shape.schedule, shape.stages, stage, shape.virtual_stages,
                                    shape.micro_batches));
  }
  return result;
}

TEST(PipelineOrder, EveryPartSeesEveryMicroBatchOnce) {
  for (const Shape& shape : kShapes) {
    const bool split = shape.schedule == Schedule::zb_h1;
    const std::size_t kinds = split ? 3 : 2;
    for (const std::vector<Action>& order : orders(shape)) {
      std::map<std::tuple<ActionKind, std::int64_t, std::int64_t>, int> seen;
      for (const Action& action : order) ++seen[{action.kind, action.chunk, action.micro_batch}];
      EXPECT_EQ(order.size(), kinds * std::size_t(shape.virtual_stages * shape.micro_batches));
      EXPECT_EQ(seen.size(), order.size());
    }
  }
}

struct Cost {
  std::int64_t forward, input, weight;
};

/// End of the step where transfers cost nothing; -1 where the orders wait for each other.
std::int64_t step_time(const Shape& shape, const Cost& cost) {
  const auto all = orders(shape);
  const std::int64_t last = shape.stages * shape.virtual_stages - 1;
  std::map<std::tuple<ActionKind, std::int64_t, std::int64_t>, std::int64_t> done;
  std::vector<std::int64_t> clock(all.size());
  std::vector<std::size_t> next(all.size());
  const auto try_next = [&](std::size_t stage) {
    const Action& action = all[stage][next[stage]];
    const std::int64_t part = part_of(shape.stages, std::int64_t(stage), action.chunk);
    const bool forward = action.kind == ActionKind::forward;
    const bool waits =
        forward ? part > 0 : action.kind != ActionKind::weight_gradient && part < last;
    if (waits) {
      const auto from = done.find({action.kind, part + (forward ? -1 : 1), action.micro_batch});
      if (from == done.end()) return false;
      clock[stage] = std::max(clock[stage], from->second);
    }
    const std::int64_t costs[] = {cost.forward, cost.input + cost.weight, cost.input, cost.weight};
    clock[stage] += costs[std::size_t(action.kind)];
    done[{action.kind, part, action.micro_batch}] = clock[stage];
    ++next[stage];
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t stage = 0; stage < all.size(); ++stage) {
      while (next[stage] < all[stage].size() && try_next(stage)) moved = true;
    }
  }
  for (std::size_t stage = 0; stage < all.size(); ++stage) {
    if (next[stage] < all[stage].size()) return -1;
  }
  return *std::max_element(clock.begin(), clock.end());
}

TEST(PipelineOrder, StepsTakeWhatThePapersSay) {
  for (const Shape& shape : kShapes) {
    if (shape.micro_batches < shape.stages) continue;  // the closed forms are for full pipelines
    const auto [schedule, p, v, m] = shape;
    for (const Cost& cost : {Cost{1, 1, 1}, Cost{2, 3, 2}}) {
      const std::int64_t part = cost.forward + cost.input + cost.weight;
      // A chunk is one v-th of a stage: (p-1) parts of bubble are (p-1)/v stages.
      const std::int64_t bubble =
          (p - 1) * (schedule == Schedule::zb_h1 ? cost.forward + cost.input - cost.weight : part);
      EXPECT_EQ(step_time(shape, cost), m * v * part + bubble)
          << int(schedule) << " p=" << p << " v=" << v << " m=" << m;
    }
  }
}

TEST(PipelineOrder, NoOrderWaitsForItself) {
  for (const Shape& shape : kShapes) EXPECT_GT(step_time(shape, {1, 1, 1}), 0);
}

TEST(PipelineOrder, MicroBatchesInFlight) {
  const auto most = [](const std::vector<Action>& order, ActionKind leaves) {
    std::int64_t alive = 0, peak = 0;
    for (const Action& action : order) {
      if (action.kind == ActionKind::forward) peak = std::max(peak, ++alive);
      if (action.kind == leaves) --alive;
    }
    return peak;
  };
  for (std::int64_t stage = 0; stage < 4; ++stage) {
    EXPECT_EQ(most(pipeline_order(Schedule::gpipe, 4, stage, 1, 8), ActionKind::backward), 8);
    EXPECT_EQ(most(pipeline_order(Schedule::one_f_one_b, 4, stage, 1, 8), ActionKind::backward),
              4 - stage);
    // Interleaved: (v-1) p + 2 (p-s-1) + 1 chunks, so (1 + (p-1)/(p v)) of 1F1B's memory on stage
    // 0.
    EXPECT_EQ(most(pipeline_order(Schedule::one_f_one_b, 4, stage, 2, 8), ActionKind::backward),
              4 + 2 * (3 - stage) + 1);
    // ZB-H1: as many as 1F1B's first stage, on all of them; activations whose input gradient is
    // pending as in 1F1B.
    const auto split = pipeline_order(Schedule::zb_h1, 4, stage, 1, 8);
    EXPECT_EQ(most(split, ActionKind::weight_gradient), 4);
    EXPECT_EQ(most(split, ActionKind::input_gradient), 4 - stage);
  }
}

}  // namespace
}  // namespace plimsoll
