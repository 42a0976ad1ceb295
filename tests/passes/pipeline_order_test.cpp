// Orders against the published ones, and how long a step of them takes with unit costs.
#include "passes/strategy/pipeline_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

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

TEST(PipelineOrder, PairsHaveOneMoreForwardFirst) {
  const auto order = [](std::int64_t stages, std::int64_t stage, std::int64_t virtual_stages) {
    return pipeline_order(Schedule::one_f_one_b, stages, stage, virtual_stages, 4, true);
  };
  EXPECT_EQ(text(order(1, 0, 1)), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(text(order(2, 0, 1)), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(text(order(2, 1, 1)), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(text(order(2, 1, 2), true),
            "F0.0 F1.0 F0.1 F1.1 B0.1 F2.0 B1.1 F3.0 B0.0 F2.1 B1.0 F3.1 B2.1 B3.1 B2.0 B3.0");
}

TEST(PipelineOrder, ForwardsBehindTheFirstOnesAreIssuedInTurnsWithABackward) {
  const auto pairs = [](Schedule schedule, std::int64_t stage, std::int64_t chunks,
                        std::int64_t m) {
    const auto order = pipeline_order(schedule, 2, stage, chunks, m, true);
    std::vector<Action> found;
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (!order[i].in_turns) continue;
      EXPECT_EQ(order[i].kind, ActionKind::forward);
      EXPECT_NE(order[i + 1].kind, ActionKind::forward);
      EXPECT_NE(order[i + 1].micro_batch, order[i].micro_batch);
      found.push_back(order[i]);
    }
    return text(found);
  };
  EXPECT_EQ(pairs(Schedule::one_f_one_b, 0, 1, 4), "F2 F3");
  EXPECT_EQ(pairs(Schedule::one_f_one_b, 1, 1, 4), "F1 F2 F3");
  EXPECT_EQ(pairs(Schedule::one_f_one_b, 0, 1, 2), "");  // all come first
  EXPECT_EQ(pairs(Schedule::one_f_one_b, 1, 2, 2), "F1");
  EXPECT_EQ(pairs(Schedule::dualpipe_v, 1, 2, 6), "F2 F2 F3 F3 F4 F4 F5 F5");
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

TEST(PipelineOrder, ZeroBubbleH2BeginsWithTwiceAsManyForwards) {
  // Qi et al. 2023, figure 3: ZB-H2 of 4 stages.
  const auto order = [](std::int64_t stage) {
    return text(pipeline_order(Schedule::zb_h2, 4, stage, 1, 8));
  };
  EXPECT_EQ(order(0), "F0 F1 F2 F3 F4 F5 F6 I0 W0 F7 I1 W1 I2 W2 I3 W3 I4 W4 I5 W5 I6 W6 I7 W7");
  EXPECT_EQ(order(3), "F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 F5 I5 F6 I6 W0 F7 I7 W1 W2 W3 W4 W5 W6 W7");
}

TEST(PipelineOrder, ZeroBubbleVAsPyTorch) {
  // torch/distributed/pipelining/schedules.py, ScheduleZBVZeroBubble, 2 ranks, 4 micro-batches.
  const auto order = [](std::int64_t stage) {
    return text(pipeline_order(Schedule::zb_v, 2, stage, 2, 4), true);
  };
  EXPECT_EQ(order(0),
            "F0.0 F1.0 F2.0 F0.1 I0.1 W0.1 F1.1 I1.1 W1.1 F3.0 I0.0 W0.0 F2.1 I2.1 W2.1 I1.0 W1.0 "
            "F3.1 I3.1 W3.1 I2.0 W2.0 I3.0 W3.0");
  EXPECT_EQ(order(1),
            "F0.0 F0.1 F1.0 F1.1 I0.1 W0.1 F2.0 I0.0 W0.0 F2.1 I1.1 W1.1 F3.0 I1.0 W1.0 F3.1 I2.1 "
            "W2.1 I2.0 I3.1 I3.0 W2.0 W3.1 W3.0");
}

TEST(PipelineOrder, DualPipeVAsDeepSeek) {
  // deepseek-ai/DualPipe dualpipe/dualpipev.py, 2 ranks, 4 micro-batches.
  const auto order = [](std::int64_t stage) {
    return text(pipeline_order(Schedule::dualpipe_v, 2, stage, 2, 4), true);
  };
  EXPECT_EQ(order(0),
            "F0.0 F1.0 F2.0 F0.1 I0.1 W0.1 F1.1 F3.0 I1.1 W1.1 F2.1 I0.0 W0.0 I2.1 W2.1 F3.1 I1.0 "
            "W1.0 I3.1 W3.1 I2.0 W2.0 I3.0 W3.0");
  EXPECT_EQ(order(1),
            "F0.0 F0.1 F1.0 F1.1 F2.0 I0.1 W0.1 F2.1 I0.0 W0.0 F3.0 I1.1 W1.1 F3.1 I1.0 W1.0 I2.1 "
            "W2.1 I2.0 W2.0 I3.1 I3.0 W3.1 W3.0");
}

TEST(PipelineOrder, DualPipeHasTheOrderOfItsHalves) {
  // deepseek-ai/DualPipe dualpipe/dualpipe.py: 4 ranks with 4 micro-batches from each end are two
  // halves of 2 stages, and the ranks of a half have dualpipev.py's order.
  for (std::int64_t stage = 0; stage < 2; ++stage) {
    EXPECT_EQ(pipeline_order(Schedule::dualpipe, 2, stage, 2, 4),
              pipeline_order(Schedule::dualpipe_v, 2, stage, 2, 4));
  }
  EXPECT_TRUE(swaps_halves(Schedule::dualpipe));
  EXPECT_FALSE(swaps_halves(Schedule::dualpipe_v));
}

struct PipelineShape {
  Schedule schedule;
  std::int64_t stages, virtual_stages, micro_batches;
};

const PipelineShape kShapes[] = {
    {Schedule::gpipe, 1, 1, 3},       {Schedule::gpipe, 4, 1, 8},
    {Schedule::gpipe, 4, 1, 1},       {Schedule::one_f_one_b, 1, 1, 5},
    {Schedule::one_f_one_b, 4, 1, 8}, {Schedule::one_f_one_b, 4, 1, 2},
    {Schedule::one_f_one_b, 2, 2, 2}, {Schedule::one_f_one_b, 2, 3, 8},
    {Schedule::one_f_one_b, 4, 2, 4}, {Schedule::one_f_one_b, 4, 3, 12},
    {Schedule::zb_h1, 1, 1, 4},       {Schedule::zb_h1, 4, 1, 8},
    {Schedule::zb_h1, 4, 1, 3},       {Schedule::zb_h1, 8, 1, 16},
    {Schedule::zb_h2, 1, 1, 4},       {Schedule::zb_h2, 4, 1, 3},
    {Schedule::zb_h2, 4, 1, 8},       {Schedule::zb_h2, 8, 1, 24},
    {Schedule::zb_v, 2, 2, 1},        {Schedule::zb_v, 3, 2, 2},
    {Schedule::zb_v, 4, 2, 8},        {Schedule::zb_v, 8, 2, 24},
    {Schedule::v_half, 2, 2, 5},      {Schedule::v_half, 3, 2, 6},
    {Schedule::v_half, 4, 2, 1},      {Schedule::v_half, 7, 2, 21},
    {Schedule::v_half, 8, 2, 24},     {Schedule::v_min, 2, 2, 5},
    {Schedule::v_min, 3, 2, 9},       {Schedule::v_min, 4, 2, 1},
    {Schedule::v_min, 7, 2, 21},      {Schedule::v_min, 8, 2, 24},
    {Schedule::dualpipe_v, 2, 2, 1},  {Schedule::dualpipe_v, 3, 2, 4},
    {Schedule::dualpipe_v, 4, 2, 8},  {Schedule::dualpipe_v, 8, 2, 24},
    {Schedule::dualpipe, 4, 2, 8},
};

std::vector<std::vector<Action>> orders(const PipelineShape& shape) {
  std::vector<std::vector<Action>> result;
  for (std::int64_t stage = 0; stage < shape.stages; ++stage) {
    result.push_back(pipeline_order(shape.schedule, shape.stages, stage, shape.virtual_stages,
                                    shape.micro_batches));
  }
  return result;
}

TEST(PipelineOrder, EveryPartSeesEveryMicroBatchOnce) {
  for (const PipelineShape& shape : kShapes) {
    const std::size_t kinds = splits_backward(shape.schedule) ? 3 : 2;
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

/// Ends of the stages' steps where transfers cost nothing, from when the stages may begin. Nothing
/// where the orders wait for each other.
std::vector<std::int64_t> step_ends(const PipelineShape& shape, const Cost& cost,
                                    const std::vector<std::int64_t>& begins) {
  const auto all = orders(shape);
  const std::int64_t last = shape.stages * shape.virtual_stages - 1;
  std::map<std::tuple<ActionKind, std::int64_t, std::int64_t>, std::int64_t> done;
  std::vector<std::int64_t> clock = begins;
  std::vector<std::size_t> next(all.size());
  const auto try_next = [&](std::size_t stage) {
    const Action& action = all[stage][next[stage]];
    const std::int64_t part =
        part_of(shape.schedule, shape.stages, std::int64_t(stage), action.chunk);
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
    if (next[stage] < all[stage].size()) return {};
  }
  return clock;
}

/// End of the step of stages that begin together; -1 where the orders wait for each other.
std::int64_t step_time(const PipelineShape& shape, const Cost& cost) {
  const auto ends = step_ends(shape, cost, std::vector<std::int64_t>(std::size_t(shape.stages)));
  return ends.empty() ? -1 : *std::max_element(ends.begin(), ends.end());
}

/// Time from step to step where no stage waits for others between steps.
std::int64_t period(const PipelineShape& shape, const Cost& cost) {
  std::vector<std::int64_t> ends(std::size_t(shape.stages)), before;
  for (int step = 0; step < 4; ++step) before = std::exchange(ends, step_ends(shape, cost, ends));
  std::int64_t longest = 0;
  for (std::size_t s = 0; s < ends.size(); ++s) longest = std::max(longest, ends[s] - before[s]);
  return longest;
}

TEST(PipelineOrder, StepsTakeWhatThePapersSay) {
  for (const PipelineShape& shape : kShapes) {
    if (shape.micro_batches < shape.stages) continue;  // the closed forms are for full pipelines
    const auto [schedule, p, v, m] = shape;
    if (splits_backward(schedule) && schedule != Schedule::zb_h1) continue;  // below
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
  for (const PipelineShape& shape : kShapes) EXPECT_GT(step_time(shape, {1, 1, 1}), 0);
}

TEST(PipelineOrder, ZeroBubbleSchedulesHaveThePublishedBubbles) {
  // Qi et al. 2023, arXiv 2401.10241, sections 2.3 and 6, and 2024, arXiv 2405.15362, in times of a
  // chunk, for passes that take the same. Stages end the step as they began it, one after another.
  for (std::int64_t p = 2; p <= 8; ++p) {
    for (std::int64_t m : {2 * p, 2 * p + 3, 4 * p}) {
      SCOPED_TRACE(testing::Message() << "p=" << p << " m=" << m);
      const Cost unit{1, 1, 1};
      EXPECT_EQ(period({Schedule::zb_h2, p, 1, m}, unit), 3 * m);
      EXPECT_EQ(period({Schedule::zb_v, p, 2, m}, unit), 6 * m);
      // Where all meet between steps, the warm-up to the last stage shows.
      EXPECT_EQ(step_time({Schedule::zb_h2, p, 1, m}, unit), 3 * m + p - 1);
      EXPECT_EQ(step_time({Schedule::zb_v, p, 2, m}, unit), 6 * m + p - 1);
      // ZB-H2: (p - 1)(f + b_input - 2 b_weight).
      EXPECT_EQ(period({Schedule::zb_h2, p, 1, m}, {3, 4, 2}), 9 * m + 3 * (p - 1));
      // About p / 2 and 2 p / 3 micro-batches of six passes. The paper reorders V-Half besides,
      // which takes as many as p / 2 passes away.
      EXPECT_LE(step_time({Schedule::v_half, p, 2, m}, unit), 6 * m + 3 * p + p / 2);
      EXPECT_LE(step_time({Schedule::v_min, p, 2, m}, unit), 6 * m + 4 * p);
    }
  }
}

/// Bubble of DualPipeV where a forward and the backward that it overlaps with begin and end
/// together, for passes that take 1 and pairs that take as long as their passes.
std::int64_t bubble_of_pairs(const PipelineShape& shape) {
  const auto all = orders(shape);
  const std::int64_t last = 2 * shape.stages - 1;
  std::map<std::tuple<bool, std::int64_t, std::int64_t>, std::int64_t> done;
  std::vector<std::int64_t> clock(all.size());
  std::vector<std::size_t> next(all.size());
  // F of one chunk with I and W of the other behind it, in the steps in which both are under way.
  const auto length = [&](std::size_t stage) -> std::size_t {
    const auto& order = all[stage];
    const std::size_t i = next[stage];
    const auto behind = shape.stages - std::int64_t(stage) - 1;
    const auto warm_up = std::size_t(2 * behind + 2 * (std::int64_t(stage) + 1) + 3 * behind);
    const bool pairs =
        i >= warm_up && i + 2 < order.size() && order[i].kind == ActionKind::forward &&
        order[i + 1].kind == ActionKind::input_gradient && order[i].chunk != order[i + 1].chunk;
    if (pairs && (behind > 0 || i > warm_up)) return 3;  // the last stage's first pair is apart
    const bool whole = i + 1 < order.size() && order[i].kind == ActionKind::input_gradient &&
                       order[i + 1].kind == ActionKind::weight_gradient &&
                       order[i + 1].micro_batch == order[i].micro_batch &&
                       order[i + 1].chunk == order[i].chunk;
    return whole && i >= warm_up ? 2 : 1;
  };
  const auto try_next = [&](std::size_t stage) {
    const std::size_t count = length(stage);
    std::int64_t begin = clock[stage];
    std::vector<std::tuple<bool, std::int64_t, std::int64_t>> ends;
    for (std::size_t i = next[stage]; i < next[stage] + count; ++i) {
      const Action& action = all[stage][i];
      if (action.kind == ActionKind::weight_gradient) continue;
      const std::int64_t part =
          part_of(shape.schedule, shape.stages, std::int64_t(stage), action.chunk);
      const bool forward = action.kind == ActionKind::forward;
      ends.emplace_back(forward, part, action.micro_batch);
      if (forward ? part == 0 : part == last) continue;
      const auto from = done.find({forward, part + (forward ? -1 : 1), action.micro_batch});
      if (from == done.end()) return false;
      begin = std::max(begin, from->second);
    }
    clock[stage] = begin + std::int64_t(count);
    for (const auto& end : ends) done[end] = clock[stage];
    next[stage] += count;
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t stage = 0; stage < all.size(); ++stage) {
      while (next[stage] < all[stage].size() && try_next(stage)) moved = true;
    }
  }
  return *std::max_element(clock.begin(), clock.end()) - 6 * shape.micro_batches;
}

TEST(PipelineOrder, DualPipeVHasThePublishedBubble) {
  // DeepSeek-AI 2024, arXiv 2412.19437, table 2: (p - 1)(F&B + B - 3W) on as many stages as half of
  // DualPipe's, where F&B is an overlapped pair: 3 + 2 - 3 for passes that take 1.
  for (std::int64_t p = 2; p <= 8; ++p) {
    for (std::int64_t m : {2 * p, 2 * p + 3, 4 * p}) {
      const PipelineShape shape{Schedule::dualpipe_v, p, 2, m};
      EXPECT_EQ(bubble_of_pairs(shape), 2 * (p - 1)) << p << " " << m;
      // Run one after the other, a forward is sent on before its pair is over.
      EXPECT_EQ(step_time(shape, {1, 1, 1}), 6 * m + p - 1) << p << " " << m;
    }
  }
}

std::int64_t most_alive(const std::vector<Action>& order, ActionKind leaves) {
  std::int64_t alive = 0, peak = 0;
  for (const Action& action : order) {
    if (action.kind == ActionKind::forward) peak = std::max(peak, ++alive);
    if (action.kind == leaves) --alive;
  }
  return peak;
}

TEST(PipelineOrder, ZeroBubbleSchedulesKeepAtMostThePublishedActivations) {
  for (std::int64_t p = 2; p <= 9; ++p) {
    const std::int64_t m = 4 * p;
    for (std::int64_t stage = 0; stage < p; ++stage) {
      SCOPED_TRACE(testing::Message() << "p=" << p << " stage=" << stage);
      const auto most = [&](Schedule schedule, std::int64_t chunks) {
        return most_alive(pipeline_order(schedule, p, stage, chunks, m),
                          ActionKind::weight_gradient);
      };
      EXPECT_EQ(most(Schedule::zb_h2, 1), 2 * p - 1);
      // The others in chunks, two of which are a micro-batch's share of a stage: p, p + 1 of 2 p,
      // (p + 2) / 2 and (p + 4) / 3 micro-batches.
      EXPECT_LE(most(Schedule::zb_v, 2), 2 * p);
      EXPECT_LE(most(Schedule::dualpipe_v, 2), 2 * p + 1);
      EXPECT_LE(most(Schedule::v_half, 2), (p + 2) / 2 * 2);
      EXPECT_LE(most(Schedule::v_min, 2), (p + 4) / 3 * 2);
    }
  }
}

TEST(PipelineOrder, ChunksLieAsAV) {
  for (std::int64_t part = 0; part < 8; ++part) {
    const PartPlace round = place_of(Schedule::one_f_one_b, 4, part);
    const PartPlace v = place_of(Schedule::zb_v, 4, part);
    EXPECT_EQ(round, (PartPlace{part % 4, part / 4}));
    EXPECT_EQ(v, (PartPlace{part < 4 ? part : 7 - part, part / 4}));
    EXPECT_EQ(part_of(Schedule::one_f_one_b, 4, round.stage, round.chunk), part);
    EXPECT_EQ(part_of(Schedule::zb_v, 4, v.stage, v.chunk), part);
  }
}

TEST(PipelineOrder, MicroBatchesInFlight) {
  const auto most = most_alive;
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
