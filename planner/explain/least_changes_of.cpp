// Looks for the fewest single changes that make a strategy legal and let it fit.
#include <algorithm>
#include <optional>
#include <utility>

#include "base/parallel.h"
#include "planner/bounds/bounds.h"
#include "planner/explain/why_not.h"

namespace plimsoll {
namespace {

/// How many changes are named, and how many are assessed at once. A fixed number makes the result
/// independent of the number of threads.
constexpr std::size_t kNamed = 3, kRound = 8;
/// After so many changes of one kind of which none fits, the next kind is looked at.
constexpr std::size_t kMostAssessed = 64;

/// A change that is legal, that no bound says does not fit, and that does not lead back to the
/// plan.
struct Likely {
  Fixed change;
  Picoseconds least_time;
};

class Finder {
 public:
  Finder(const ExplainRequest& request, const Strategy& changed, const Fixed& asked,
         const PlanTime& plan)
      : request_(request), changed_(changed), plan_(plan), bounds_(request.target) {
    for (Fixed& change : single_choices(request.target, changed, Reach::all)) {
      (share_a_key(change, asked) ? of_asked_ : of_others_).push_back(std::move(change));
    }
  }

  LeastChanges find() const {
    std::vector<Fixed> mixed = pairs_of(of_asked_, of_others_);
    for (Fixed& pair : pairs_of(of_asked_, of_asked_)) mixed.push_back(std::move(pair));
    struct Kind {
      std::vector<Fixed> changes;
      std::size_t choices;
      bool keeps_asked;
    };
    const std::vector<Kind> kinds = {{of_others_, 1, true},
                                     {pairs_of(of_others_, of_others_), 2, true},
                                     {of_asked_, 1, false},
                                     {std::move(mixed), 2, false}};
    for (const Kind& kind : kinds) {
      std::vector<AssessedChange> found = fitting(kind.changes);
      if (!found.empty()) return {std::move(found), kind.choices, kind.keeps_asked};
    }
    return {};
  }

 private:
  static std::vector<Fixed> pairs_of(const std::vector<Fixed>& first,
                                     const std::vector<Fixed>& second) {
    std::vector<Fixed> pairs;
    for (std::size_t i = 0; i < first.size(); ++i) {
      for (std::size_t k = &first == &second ? i + 1 : 0; k < second.size(); ++k) {
        if (share_a_key(first[i], second[k])) continue;
        pairs.push_back(first[i]);
        pairs.back().insert(pairs.back().end(), second[k].begin(), second[k].end());
      }
    }
    return pairs;
  }

  std::optional<Likely> likely(const Fixed& change) const {
    const Target& target = request_.target;
    const Strategy strategy = with_choices(changed_, change, target.devices);
    if (strategy == request_.strategy || !legal(target, strategy)) return std::nullopt;
    const Bytes room = room_for_program(target, strategy, largest_memory(target));
    if (bounds_.persistent(strategy) > room) return std::nullopt;
    if (bounds_.memory(strategy).reserved > room) return std::nullopt;
    try {
      return Likely{change, bounds_.bottleneck(strategy)};
    } catch (const InfeasibleError&) {  // too long for the clock
      return std::nullopt;
    }
  }

  /// Returns the changes that fit, fastest first.
  std::vector<AssessedChange> fitting(const std::vector<Fixed>& changes) const {
    std::vector<std::optional<Likely>> all(changes.size());
    for_each_index(changes.size(), request_.threads,
                   [&](std::size_t i) { all[i] = likely(changes[i]); });
    std::vector<Likely> order;
    for (std::optional<Likely>& one : all) {
      if (one) order.push_back(std::move(*one));
    }
    std::ranges::stable_sort(order, {}, &Likely::least_time);
    std::vector<AssessedChange> found;
    for (std::size_t i = 0; i < std::min(order.size(), kMostAssessed); i += kRound) {
      std::vector<Fixed> round;
      for (std::size_t k = i; k < std::min(order.size(), i + kRound); ++k)
        round.push_back(order[k].change);
      for (AssessedChange& change :
           assess_changes(request_.target, changed_, round, plan_, request_.threads)) {
        if (change.outcome == ChangeOutcome::runs) found.push_back(std::move(change));
      }
      if (found.size() >= kNamed) break;
    }
    best_first(found);
    if (found.size() > kNamed) found.resize(kNamed);
    return found;
  }

  const ExplainRequest& request_;
  const Strategy& changed_;
  const PlanTime& plan_;
  const Bounds bounds_;
  std::vector<Fixed> of_others_, of_asked_;  ///< single changes
};

}  // namespace

LeastChanges least_changes_of(const ExplainRequest& request, const Strategy& changed,
                              const Fixed& asked, const PlanTime& plan) {
  return Finder(request, changed, asked, plan).find();
}

}  // namespace plimsoll
