// Fillings are computed from predictions, and neighbours that are alike are joined.
#include "plan/filling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace plimsoll {
namespace {

std::vector<AlikeStages> grouped_within(std::span<const Filling> fillings, double tolerance) {
  std::vector<AlikeStages> groups;
  for (std::size_t i = 0; i < fillings.size(); ++i) {
    const auto reserved = [&](std::size_t at) { return double(fillings[at].reserved.count()); };
    const bool alike = !groups.empty() && std::abs(reserved(i) - reserved(groups.back().first)) <=
                                              tolerance * reserved(groups.back().first);
    if (!alike) {
      groups.push_back({i, i, i});
      continue;
    }
    AlikeStages& group = groups.back();
    group.last = i;
    if (fillings[i].share() > fillings[group.fullest].share()) group.fullest = i;
  }
  return groups;
}

}  // namespace

double Filling::share() const {
  if (capacity == Bytes()) return 0;
  return double(taken().count()) / double(capacity.count());
}

Filling filling_of(const StagePrediction& stage, Bytes outside, Bytes reserve) {
  return {stage.reserved, outside, reserve, stage.capacity};
}

std::vector<Filling> fillings_of(const Plan& plan) {
  const Bytes outside = memory_outside_program(plan.job, plan.strategy, plan.framework);
  std::vector<Filling> fillings;
  for (const StagePrediction& stage : plan.prediction.stages) {
    fillings.push_back(filling_of(stage, outside, plan.reserve));
  }
  return fillings;
}

Bytes most_taken(const Plan& plan) {
  Bytes most;
  for (const Filling& filling : fillings_of(plan)) most = std::max(most, filling.taken());
  return most;
}

std::size_t fullest_of(std::span<const Filling> fillings) {
  const auto fullest =
      std::max_element(fillings.begin(), fillings.end(), [](const Filling& a, const Filling& b) {
        return b.room() - b.reserved < a.room() - a.reserved;
      });
  return std::size_t(fullest - fillings.begin());
}

std::vector<AlikeStages> alike_stages(std::span<const Filling> fillings, std::size_t most) {
  if (fillings.size() <= most) return grouped_within(fillings, -1);
  double tolerance = 0.01;
  std::vector<AlikeStages> groups = grouped_within(fillings, tolerance);
  while (groups.size() > most && tolerance < 1e3) {
    groups = grouped_within(fillings, tolerance *= 1.5);
  }
  return groups;
}

std::string name_of(const AlikeStages& alike, std::span<const StagePrediction> stages) {
  const StagePrediction& first = stages[alike.first];
  const StagePrediction& last = stages[alike.last];
  if (alike.first == alike.last) return name_of(first);
  if (first.owner || last.owner) return fmt::format("{} to {}", name_of(first), name_of(last));
  return fmt::format("stages {} to {}", first.stage, last.stage);
}

}  // namespace plimsoll
