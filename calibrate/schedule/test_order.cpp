// Tests are ordered by shares of the budget, and a reference kernel is watched.
#include "calibrate/schedule/test_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

namespace plimsoll {
namespace {

/// Shares of the budget by TestSubject. Dispatch, memory, launches and copies take as long as they
/// need.
constexpr std::array kShares = {1.0, 1.0, 0.3, 0.2, 0.25, 0.25, 1.0, 1.0};
static_assert(kShares.size() == std::variant_size_v<TestSubject>);

/// The doubt at the ends of a curve, where nothing is interpolated yet. It comes before the flat
/// parts of other curves.
constexpr double kDoubtOfEnds = 0.1;
/// The least doubt per distance, for a curve that looks straight.
constexpr double kLeastDoubt = 0.02;

/// The weight of points that no plan runs, relative to the one that it runs most of.
constexpr double kLeastWeight = 0.01;

}  // namespace

TestOrder::TestOrder(std::span<const CalibrationTest> tests, Seconds budget,
                     std::vector<double> weights)
    : tests_(tests),
      budget_(budget),
      weights_(std::move(weights)),
      times_(tests.size()),
      unsteady_(tests.size()),
      found_(tests.size()),
      curve_of_(tests.size()) {
  using Key = std::tuple<OpKind, std::int64_t, std::int64_t, std::int64_t>;
  std::map<Key, std::size_t> known;
  for (std::size_t i = 0; i < tests.size(); ++i) {
    const auto* point = std::get_if<CollectivePoint>(&tests[i].subject);
    if (point == nullptr) continue;
    const Key key{point->kind, point->ranks, point->nodes, point->groups_per_node};
    const auto [at, added] = known.emplace(key, curves_.size());
    if (added) curves_.emplace_back();
    curve_of_[i] = at->second;
    curves_[at->second].push_back(i);
  }
  for (auto& curve : curves_) {
    std::sort(curve.begin(), curve.end(), [&](std::size_t a, std::size_t b) {
      return std::get<CollectivePoint>(tests[a].subject).payload <
             std::get<CollectivePoint>(tests[b].subject).payload;
    });
  }
}

double TestOrder::doubt(std::size_t i) const {
  const auto* point = std::get_if<CollectivePoint>(&tests_[i].subject);
  if (point == nullptr) return 0;
  const std::vector<std::size_t>& curve = curves_[curve_of_[i]];
  const auto own = std::find(curve.begin(), curve.end(), i);
  const auto is_found = [&](std::size_t other) { return found_[other].has_value(); };
  const auto above = std::find_if(own, curve.end(), is_found);
  const auto below = std::find_if(std::make_reverse_iterator(own), curve.rend(), is_found);
  if (above == curve.end() || below == curve.rend()) return kDoubtOfEnds;
  const auto bytes = [&](std::size_t other) {
    return double(std::get<CollectivePoint>(tests_[other].subject).payload.count());
  };
  const double distance = std::log(bytes(*above) / bytes(*below));
  const double slope = std::log(*found_[*above] / *found_[*below]) / distance;
  return distance * std::max({slope * (1 - slope), slope - 1, kLeastDoubt});
}

double TestOrder::urgency(std::size_t i) const {
  const bool communication = std::holds_alternative<CollectivePoint>(tests_[i].subject);
  if (weights_.empty()) return communication ? doubt(i) : 0;
  return std::max(kLeastWeight, weights_[i]) * (communication ? doubt(i) : 1);
}

std::optional<std::size_t> TestOrder::next(Seconds elapsed) {
  for (std::size_t i = 0; i < tests_.size(); ++i) {
    if (tests_[i].essential && times_[i] == 0) return i;
  }
  if (elapsed > budget_) return std::nullopt;
  std::optional<std::size_t> best;
  double most = 0;
  for (std::size_t i = 0; i < tests_.size(); ++i) {
    if (times_[i] > 0) continue;
    const double own = urgency(i);
    const auto behind = [&](std::size_t test) { return spent_[part(test)] / kShares[part(test)]; };
    const bool first = !best || (part(i) == part(*best) ? own > most : behind(i) < behind(*best));
    if (!first) continue;
    best = i;
    most = own;
  }
  if (best) return best;
  for (const bool unsteady : {true, false}) {
    for (std::size_t i = 0; i < tests_.size(); ++i) {
      if (times_[i] == 1 && (!unsteady || unsteady_[i])) return i;
    }
  }
  return std::nullopt;
}

void TestOrder::measured(std::size_t i, bool unsteady, std::optional<Seconds> time, Seconds took) {
  restored(i, unsteady, time);
  spent_[part(i)] += took.value();
}

void TestOrder::restored(std::size_t i, bool unsteady, std::optional<Seconds> time) {
  ++times_[i];
  unsteady_[i] = unsteady;
  if (time && std::holds_alternative<CollectivePoint>(tests_[i].subject)) found_[i] = time;
}

void TestOrder::forget(std::size_t i) {
  times_[i] = 0;
  unsteady_[i] = false;
  found_[i].reset();
}

std::size_t TestOrder::left_out() const {
  return std::size_t(std::count(times_.begin(), times_.end(), 0));
}

bool ReferenceDrift::due(Seconds elapsed) const {
  if (!usual_) return true;
  return since_.size() >= kMostTests && elapsed - last_ >= kLeastInterval;
}

std::vector<std::size_t> ReferenceDrift::check_reference(Seconds reference, Seconds elapsed) {
  last_ = elapsed;
  std::vector<std::size_t> again = std::exchange(since_, {});
  if (!usual_ || reference <= *usual_ * (1 + kMostSlowdown)) {
    usual_ = usual_ ? std::min(*usual_, reference) : reference;
    slow_ = false;
    return {};
  }
  worst_ = std::max(worst_, reference / *usual_ - 1);
  if (std::exchange(slow_, true)) {
    usual_ = reference;
    slow_ = false;
    return {};
  }
  ++drifts_;
  std::sort(again.begin(), again.end());
  again.erase(std::unique(again.begin(), again.end()), again.end());
  discarded_ += again.size();
  return again;
}

std::string ReferenceDrift::summary() const {
  if (drifts_ == 0) return "";
  return fmt::format(
      "the reference matmul slowed down {} {}, by {:.0f} % at most: {} measurements were discarded",
      drifts_, drifts_ == 1 ? "time" : "times", 100 * worst_, discarded_);
}

}  // namespace plimsoll
