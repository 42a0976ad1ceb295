// Runners-up: which plans are worth showing beside the best, and why they lose.
#include "planner/explore/runners_up.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "planner/space/space.h"

namespace plimsoll {
namespace {

struct TermTime {
  LossTerm term;
  Seconds time;
};

std::array<TermTime, 6> times_of_terms(const Breakdown& b) {
  return {{{LossTerm::compute, b.forward + b.backward},
           {LossTerm::recompute, b.recompute},
           {LossTerm::optimizer, b.optimizer},
           {LossTerm::exposed_communication, b.exposed_communication},
           {LossTerm::bubble, b.bubble},
           {LossTerm::dispatch, b.dispatch}}};
}

}  // namespace

bool feasible(const Candidate& candidate) { return candidate.fits && !candidate.too_long; }

Seconds merit(const Candidate& candidate) {
  return merit(candidate.prediction.step_time, candidate.unusual);
}

namespace {

bool better_by(Seconds a_time, const Candidate& a, Seconds b_time, const Candidate& b) {
  if (a_time != b_time) return a_time < b_time;
  const Bytes peak = largest(a.prediction.stages, &StagePrediction::peak);
  const Bytes other = largest(b.prediction.stages, &StagePrediction::peak);
  return peak != other ? peak < other : a.index < b.index;
}

}  // namespace

bool better(const Candidate& a, const Candidate& b) { return better_by(merit(a), a, merit(b), b); }

std::optional<std::size_t> fastest_plan(std::span<const Candidate> candidates) {
  std::optional<std::size_t> fastest;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (!feasible(candidates[i])) continue;
    if (!fastest || better_by(candidates[i].prediction.step_time, candidates[i],
                              candidates[*fastest].prediction.step_time, candidates[*fastest]))
      fastest = i;
  }
  return fastest;
}

bool same_but_details(const Strategy& a, const Strategy& b) {
  Strategy alike = a;
  alike.gradients.bucket_bytes = b.gradients.bucket_bytes;
  alike.recomputed.layers = b.recomputed.layers;
  alike.gathers.prefetch_depth = b.gathers.prefetch_depth;
  alike.pipeline.embedding_as_layers = b.pipeline.embedding_as_layers;
  alike.pipeline.loss_as_layers = b.pipeline.loss_as_layers;
  alike.pipeline.virtual_stages = b.pipeline.virtual_stages;
  alike.pipeline.layer_split = b.pipeline.layer_split;
  alike.recomputed.list = b.recomputed.list;
  alike.experts.overlap_shared = b.experts.overlap_shared;
  alike.experts.overlap_exchange = b.experts.overlap_exchange;
  alike.recomputed.modules = b.recomputed.modules;
  if (a.dp * a.sharding_degree == b.dp * b.sharding_degree) {
    alike.dp = b.dp;
    alike.sharding_degree = b.sharding_degree;
  }
  return alike == b;
}

bool same_but_switches(const Strategy& a, const Strategy& b) {
  const auto split_of = [](const Strategy& s) {
    return std::tuple(s.mp, s.pp, s.cp, s.dp * s.sharding_degree, s.sharding_stage, s.micro_batch,
                      s.recompute, s.schedule, s.ep, s.experts.etp);
  };
  return split_of(a) == split_of(b) && beside_search(a) == beside_search(b);
}

bool are_alike(const Strategy& a, const Strategy& b, Likeness likeness) {
  return likeness == Likeness::details ? same_but_details(a, b) : same_but_switches(a, b);
}

namespace {

std::vector<std::size_t> in_order_of_merit(std::span<const Candidate> candidates) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (feasible(candidates[i])) order.push_back(i);
  }
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return better(candidates[a], candidates[b]); });
  return order;
}

}  // namespace

std::vector<std::size_t> best_plans(std::span<const Candidate> candidates, const Shown& shown) {
  std::vector<std::size_t> chosen;
  for (std::size_t i : in_order_of_merit(candidates)) {
    const bool is_there = std::any_of(chosen.begin(), chosen.end(), [&](std::size_t other) {
      return are_alike(candidates[i].strategy, candidates[other].strategy, shown.likeness);
    });
    if (!is_there) chosen.push_back(i);
    if (chosen.size() == shown.runners_up + 1) break;
  }
  return chosen;
}

std::vector<std::size_t> pareto_front(std::span<const Candidate> candidates) {
  std::vector<std::size_t> front;
  Bytes least;
  for (const std::size_t i : in_order_of_merit(candidates)) {
    const Prediction& prediction = candidates[i].prediction;
    const Bytes peak = largest(prediction.stages, &StagePrediction::peak);
    if (!front.empty()) {
      if (merit(candidates[i]) > kFrontTimes * merit(candidates[front.front()])) break;
      if (!saves_enough(peak, least)) continue;
    }
    front.push_back(i);
    least = peak;
  }
  return front;
}

RunnerUp runner_up(const Candidate& candidate, const Prediction& loser, const Prediction& best) {
  RunnerUp result;
  result.strategy = candidate.strategy;
  result.unusual = candidate.unusual;
  result.step_time = loser.step_time;
  result.peak = largest(loser.stages, &StagePrediction::peak);
  const auto mine = times_of_terms(loser.breakdown);
  const auto theirs = times_of_terms(best.breakdown);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const Seconds more = mine[i].time - theirs[i].time;
    if (more > result.term_time) {
      result.term = mine[i].term;
      result.term_time = more;
    }
  }
  if (result.step_time <= best.step_time && !result.unusual.empty()) {
    result.term_time = Seconds();
    result.term = LossTerm::unusual_choice;
  } else if (result.step_time == best.step_time || result.term == LossTerm::tie) {
    result.term_time = Seconds();
    result.term_bytes =
        std::max(Bytes(), result.peak - largest(best.stages, &StagePrediction::peak));
    result.term = result.term_bytes > Bytes() ? LossTerm::memory : LossTerm::tie;
  }
  return result;
}

}  // namespace plimsoll
