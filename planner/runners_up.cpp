// Runners-up: which plans are worth showing beside the best, and why they lose.
#include "planner/runners_up.h"

#include <algorithm>
#include <array>
#include <set>
#include <tuple>

namespace plimsoll {
namespace {

constexpr std::size_t kNextFastest = 5;
constexpr std::size_t kMostRunnersUp = 8;

auto split_of(const Strategy& s) { return std::tuple(s.mp, s.pp, s.dp, s.sharding_degree); }

struct Term {
  std::string_view name;
  Seconds time;
};

std::array<Term, 6> terms(const Breakdown& b) {
  return {{{"compute", b.forward + b.backward},
           {"recompute", b.recompute},
           {"optimizer", b.optimizer},
           {"exposed communication", b.exposed_communication},
           {"bubble", b.bubble},
           {"dispatch", b.dispatch}}};
}

Bytes most_over_capacity(const Prediction& prediction, Bytes reserve) {
  Bytes most;
  for (const StagePrediction& stage : prediction.stages) {
    most = std::max(most, stage.arena + reserve - stage.capacity);
  }
  return most;
}

}  // namespace

bool better(const Candidate& a, const Candidate& b) {
  const auto key = [](const Candidate& c) {
    const Score& score = c.score;
    if (!c.too_long.empty()) return std::tuple(2, 0.0, std::int64_t{0});
    // What does not fit has not been simulated: a step that cannot be taken has no merit.
    if (!score.fits) return std::tuple(1, 0.0, score.arena.count());
    return std::tuple(0, score.prediction.step_time.value(), score.peak.count());
  };
  return key(a) < key(b);
}

std::vector<std::size_t> choose_runners_up(std::span<const Candidate> candidates,
                                           std::span<const std::size_t> ranked) {
  std::vector<std::size_t> chosen;
  if (ranked.empty()) return chosen;
  std::set<std::string> shown = {candidates[ranked[0]].programs};
  std::set<decltype(split_of(Strategy()))> splits = {split_of(candidates[ranked[0]].strategy)};
  const auto take = [&](std::size_t index) {
    if (!candidates[index].too_long.empty()) return;
    if (!shown.insert(candidates[index].programs).second) return;
    splits.insert(split_of(candidates[index].strategy));
    chosen.push_back(index);
  };
  for (std::size_t index : ranked) {
    if (chosen.size() < kNextFastest) take(index);
  }
  for (std::size_t index : ranked) {
    if (chosen.size() == kMostRunnersUp) break;
    if (!splits.contains(split_of(candidates[index].strategy))) take(index);
  }
  return chosen;
}

RunnerUp runner_up(const Candidate& loser, const Candidate& best, Bytes reserve) {
  RunnerUp result;
  result.strategy = loser.strategy;
  result.step_time = loser.score.prediction.step_time;
  result.peak = loser.score.peak;
  result.fits = loser.score.fits;
  if (!result.fits) {
    result.term = "memory";
    result.term_bytes = most_over_capacity(loser.score.prediction, reserve);
    return result;
  }
  const auto mine = terms(loser.score.prediction.breakdown);
  const auto theirs = terms(best.score.prediction.breakdown);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const Seconds more = mine[i].time - theirs[i].time;
    if (more > result.term_time) {
      result.term = mine[i].name;
      result.term_time = more;
    }
  }
  if (result.step_time == best.score.prediction.step_time || result.term.empty()) {
    result.term_time = Seconds();
    result.term_bytes = std::max(Bytes(), loser.score.peak - best.score.peak);
    result.term = result.term_bytes > Bytes() ? "memory" : "tie";
  }
  return result;
}

}  // namespace plimsoll
