// Looks for the fewest single changes that make a strategy legal and let it fit.
#include <algorithm>
#include <utility>

#include "planner/bounds/bounds.h"
#include "planner/explain/likely_changes.h"
#include "planner/explain/why_not.h"

namespace plimsoll {
namespace {

constexpr std::size_t kNamed = 3;
/// After so many changes of one kind of which none fits, the next kind is looked at.
constexpr std::size_t kMostAssessed = 64;

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
  /// Returns the changes that fit, fastest first.
  std::vector<AssessedChange> fitting(const std::vector<Fixed>& changes) const {
    const std::vector<LikelyChange> order = likely_changes(request_, bounds_, changed_, changes);
    const std::size_t most = std::min(order.size(), kMostAssessed);
    std::vector<AssessedChange> found;
    for (std::size_t i = 0; i < most; i += kAssessedAtOnce) {
      std::vector<Fixed> round;
      for (std::size_t k = i; k < std::min(order.size(), i + kAssessedAtOnce); ++k)
        round.push_back(order[k].change);
      for (AssessedChange& change : assess_changes(request_, changed_, round, plan_, i, most)) {
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
