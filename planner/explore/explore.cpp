// The rounds of the search. bounds.h has the bounds, and runners_up.h says what has to be found.
#include "planner/explore/explore.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <span>

#include "base/parallel.h"
#include "planner/bounds/bounds.h"
#include "planner/explore/assess.h"
#include "planner/explore/candidate_pool.h"
#include "planner/explore/family_bounds.h"
#include "planner/explore/first_plan.h"
#include "planner/explore/incumbents.h"
#include "planner/explore/search_node.h"

namespace plimsoll {
namespace {

/// A NodeQueue holds the nodes that branch and bound still has to look at, the least merit first.
class NodeQueue {
 public:
  /// Sets the strategy that was evaluated before all others. It never counts as left.
  void set_first_plan(std::size_t index) { first_plan_ = index; }
  std::optional<std::size_t> first_plan() const { return first_plan_; }

  /// Counts strategies with an index from `first` to `last`, without the first plan.
  std::int64_t count_in(std::size_t first, std::size_t last) const {
    const bool has = first_plan_ && *first_plan_ >= first && *first_plan_ < last;
    return std::int64_t(last - first) - std::int64_t(has);
  }
  std::int64_t count_in(const SearchNode& node) const { return count_in(node.first, node.last); }
  /// Counts the strategies of all nodes that are left.
  std::int64_t strategies() const { return strategies_; }

  bool empty() const { return nodes_.empty(); }
  /// Returns the least bound of a step time. The queue must not be empty.
  Picoseconds least_bound() const {
    return std::ranges::min_element(nodes_, {}, &SearchNode::bound)->bound;
  }

  void insert(const SearchNode& node) {
    if (nodes_.insert(node).second) strategies_ += count_in(node);
  }
  void insert(std::span<const SearchNode> nodes) {
    for (const SearchNode& node : nodes) insert(node);
  }
  SearchNode take_least() {
    const SearchNode node = *nodes_.begin();
    nodes_.erase(nodes_.begin());
    strategies_ -= count_in(node);
    return node;
  }

 private:
  std::optional<std::size_t> first_plan_;
  std::set<SearchNode> nodes_;
  std::int64_t strategies_ = 0;
};

/// How many leaves are simulated, pipelines split, and other nodes sharpened per round. A round's
/// results are used from the next round on, so these numbers are part of the result's definition.
constexpr std::size_t kSimulated = 4, kSplit = 8, kSharpened = 32;

class Explorer {
 public:
  Explorer(const SearchRequest& request, const Space& space, const Bounds& bounds)
      : request_(request),
        target_(request.target),
        legal_(space.legal),
        bounds_(bounds),
        family_bounds_(target_, bounds_),
        capacity_(largest_memory(target_)),
        handicaps_(request),
        pool_(request),
        incumbents_(request.tolerance, request.shown) {}

  Explored run() {
    find_first_plan();
    bound_families();
    while (!passed()) {
      incumbents_.learn(pool_.all());
      if (queue_.empty()) {
        proven_ = confirm_shown();
        if (proven_) break;
      } else {
        take_round();
        if (!families_.empty()) {
          sharpen_families();
        } else if (!groups_.empty()) {
          sharpen_groups();
        } else if (!choices_.empty()) {
          sharpen_choices();
        } else if (!pipelines_.empty()) {
          split_pipelines();
        } else {
          simulate_leaves();
        }
        for (auto* nodes : {&groups_, &choices_, &pipelines_, &leaves_}) put_back(*nodes);
        // A search that is stopped early shows this one.
        if (!passed()) pool_.confirm_best();
      }
      report();
    }
    return finish();
  }

 private:
  bool passed() const { return request_.stop && request_.stop(); }

  /// Returns the bytes that the framework may reserve on the largest device.
  Bytes room(const Strategy& strategy) const {
    return room_for_program(target_, strategy, capacity_);
  }

  bool fits(Bytes reserved, const Strategy& strategy) const {
    return reserved + outside_program(target_, strategy) + target_.reserve <= capacity_;
  }

  std::int64_t& cut_by(Cut reason) { return explored_.bounded[std::size_t(reason)]; }
  void cut(Cut reason, std::int64_t count) { cut_by(reason) += count; }
  void cut(Cut reason, const SearchNode& node) { cut(reason, queue_.count_in(node)); }

  Strategy strategy_of(const SearchNode& node) const { return legal_[node.first]; }

  double handicap_of(const Strategy& strategy, Bytes peak) const {
    return handicap(handicaps_.of(strategy, peak));
  }

  void find_first_plan() {
    auto found = first_plan(
        {target_, legal_, bounds_, family_bounds_, [this] { return passed(); }, request_.threads});
    if (!found) return;
    queue_.set_first_plan(found->index);
    pool_.add(std::move(*found));
  }

  /// Bounds all families and puts those that may fit into the queue.
  void bound_families() {
    const std::span<const StrategyFamily> families = legal_.families();
    summaries_.resize(families.size());
    is_coarse_.resize(families.size());
    for_each_index(families.size(), request_.threads, [&](std::size_t f) {
      if (passed()) return;
      is_coarse_[f] = family_bounds_.takes_long(families[f]);
      summaries_[f] =
          summary_of(is_coarse_[f] ? family_bounds_.coarse(families[f], room(families[f].base))
                                   : family_bounds_.work(families[f], room(families[f].base)));
    });
    for (std::size_t f = 0; f < families.size(); ++f) {
      insert_family(f);
      if (!summaries_[f] || summaries_[f]->fits) explored_.may_fit.push_back(f);
    }
  }

  FamilyBound bound_of(std::size_t f) const {
    const StrategyFamily& family = legal_.families()[f];
    return family_bounds_.of(family, room(family.base));
  }

  void insert_family(std::size_t f) {
    const StrategyFamily& family = legal_.families()[f];
    const FamilySummary all = summaries_[f].value_or(FamilySummary());
    const SearchNode node{all.step,
                          family.first,
                          family.first + family.count(),
                          all.peak,
                          SearchNode::Kind::family,
                          f,
                          {},
                          handicap_of(family.base, all.peak)};
    if (all.fits) {
      queue_.insert(node);
    } else {
      cut(all.lasting_fits ? Cut::bytes_in_flight : Cut::lasting_bytes, node);
    }
  }

  /// Bounds the families again whose bound was coarse.
  void sharpen_families() {
    for_each_index(families_.size(), request_.threads, [&](std::size_t i) {
      const std::size_t f = families_[i].family;
      if (passed()) return;
      summaries_[f] = summary_of(bound_of(f));
      is_coarse_[f] = false;
    });
    for (const SearchNode& node : families_) insert_family(node.family);
    families_.clear();
  }

  /// Puts a family's groups into the queue and cuts those of its arrangements that cannot fit.
  void expand(const SearchNode& node) {
    const StrategyFamily& family = legal_.families()[node.family];
    const FamilyBound bound = bound_of(node.family);
    std::size_t next = 0;
    std::size_t lasting = bound.lasting_too_large;
    const auto cut_until = [&](std::size_t arrangement) {
      const std::int64_t count = queue_.count_in(family.first + next * family.buckets,
                                                 family.first + arrangement * family.buckets);
      const auto cut_by_lasting =
          std::min<std::int64_t>(count, std::int64_t(lasting * family.buckets));
      lasting -= std::size_t(cut_by_lasting) / family.buckets;
      cut(Cut::lasting_bytes, cut_by_lasting);
      cut(Cut::bytes_in_flight, count - cut_by_lasting);
    };
    for (const GroupBound& group : bound.groups) {
      cut_until(group.first);
      next = group.last;
      queue_.insert(node_of(node.family, group));
    }
    cut_until(family.arrangements->all.size());
  }

  SearchNode node_of(std::size_t f, const GroupBound& group) const {
    const StrategyFamily& family = legal_.families()[f];
    return {group.step,
            family.first + group.first * family.buckets,
            family.first + group.last * family.buckets,
            group.peak,
            SearchNode::Kind::group,
            f,
            group,
            handicap_of(legal_.of(family, group.first, 0), group.peak)};
  }

  /// Returns a leaf with the step and the live bytes of its candidate, whose allocator was not
  /// replayed.
  SearchNode node_of(SearchNode leaf, const Candidate& candidate) const {
    leaf.bound = std::max(leaf.bound, to_picoseconds(candidate.prediction.step_time));
    leaf.peak = largest(candidate.prediction.stages, &StagePrediction::peak);
    leaf.handicap = handicap_of(candidate.strategy, leaf.peak);
    return leaf;
  }

  std::optional<Cut> why_cut(const SearchNode& node) const {
    if (node.bound > kLongestTimeline) return Cut::longest_step;
    const Seconds bound = node.merit().seconds();
    if (incumbents_.may_be_best(node) || incumbents_.may_be_on_front(bound, node.peak))
      return std::nullopt;
    // Strategies of a family or a group may differ in more than details.
    const bool alone = node.kind > SearchNode::Kind::group;
    if (alone ? incumbents_.may_be_listed(bound, strategy_of(node))
              : incumbents_.may_be_listed(bound)) {
      return std::nullopt;
    }
    if (node.kind > SearchNode::Kind::choice) return Cut::pipeline;
    return node.kind == SearchNode::Kind::choice ? Cut::slowest_stage : Cut::layers_work;
  }

  /// Whether all candidates that would be shown fit as they were thought to. One that does not is a
  /// lesser incumbent or none any more, so that the nodes that were set aside return.
  bool confirm_shown() {
    if (pool_.confirm_shown()) return true;
    for (const auto& [node, reason] : set_aside_) queue_.insert(node);
    set_aside_.clear();
    return false;
  }

  /// Takes nodes in order until a round of one kind is full, or a node waits for another. Sets
  /// nodes aside that lose against the incumbents, since some of these may turn out not to fit.
  void take_round() {
    std::vector<SearchNode> later;
    while (!queue_.empty() && leaves_.size() < kSimulated && choices_.size() < kSharpened &&
           pipelines_.size() < kSplit && groups_.size() < kSharpened &&
           families_.size() < kSharpened) {
      const SearchNode node = queue_.take_least();
      if (const std::optional<Cut> reason = why_cut(node)) {
        set_aside_.emplace_back(node, *reason);
      } else if (node.kind == SearchNode::Kind::family) {
        if (!summaries_[node.family]) {  // the time limit passed before it was bounded
          later.push_back(node);
          break;
        }
        if (is_coarse_[node.family]) {
          families_.push_back(node);
        } else {
          expand(node);
        }
      } else if (node.kind == SearchNode::Kind::leaf && queue_.first_plan() == node.first) {
        continue;
      } else if (awaits_another(node)) {
        later.push_back(node);
        break;
      } else {
        round_of(node).push_back(node);
      }
    }
    put_back(later);
  }

  /// Whether a leaf waits for another leaf of this round from which it differs in details only. It
  /// cannot be best, and most such leaves lose as soon as the other is known.
  bool awaits_another(const SearchNode& node) const {
    if (node.kind != SearchNode::Kind::leaf || incumbents_.may_be_best(node)) return false;
    const Strategy strategy = strategy_of(node);
    return std::ranges::any_of(leaves_, [&](const SearchNode& leaf) {
      return are_alike(strategy_of(leaf), strategy, request_.shown.likeness);
    });
  }

  std::vector<SearchNode>& round_of(const SearchNode& node) {
    if (node.kind == SearchNode::Kind::group) return groups_;
    if (node.kind == SearchNode::Kind::choice) return choices_;
    return node.kind == SearchNode::Kind::pipeline ? pipelines_ : leaves_;
  }

  void put_back(std::vector<SearchNode>& nodes) {
    queue_.insert(nodes);
    nodes.clear();
  }

  /// Makes a choice of the arrangement with the fewest recomputed layers in each group, by the
  /// bounds of single strategies. The other arrangements stay a group.
  void sharpen_groups() {
    std::vector<std::optional<SearchNode>> found(groups_.size());
    std::vector<char> done(groups_.size(), false);
    for_each_index(groups_.size(), request_.threads, [&](std::size_t i) {
      if (passed()) return;
      done[i] = true;
      const Strategy strategy = strategy_of(groups_[i]);
      const MemoryBound memory = bounds_.memory(strategy);
      if (!fits(memory.reserved, strategy)) return;
      const std::size_t buckets = legal_.families()[groups_[i].family].buckets;
      const Picoseconds own = capped([&] { return bounds_.bottleneck(strategy); });
      found[i] = SearchNode{std::max(groups_[i].bound, own),
                            groups_[i].first,
                            groups_[i].first + buckets,
                            memory.peak,
                            SearchNode::Kind::choice,
                            groups_[i].family,
                            {},
                            handicap_of(strategy, memory.reserved)};
    });
    std::vector<SearchNode> left;
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      SearchNode group = groups_[i];
      if (!done[i]) {
        left.push_back(group);
        continue;
      }
      const std::size_t next = group.first + legal_.families()[group.family].buckets;
      if (found[i]) {
        queue_.insert(*found[i]);
      } else {
        cut(Cut::bytes_in_flight, queue_.count_in(group.first, next));
      }
      group.first = next;
      ++group.group.first;
      if (group.first < group.last) queue_.insert(group);
    }
    groups_ = std::move(left);
  }

  /// Bounds choices by the order of their actions alone. Most then lose against plans that are
  /// found before their turn comes again.
  void sharpen_choices() {
    std::vector<std::optional<Picoseconds>> bounds(choices_.size());
    for_each_index(choices_.size(), request_.threads, [&](std::size_t i) {
      if (passed()) return;
      bounds[i] = capped([&] {
        return bounds_.actions(strategy_of(choices_[i]), [&](Picoseconds bound) {
          return why_cut(pipeline_of(choices_[i], bound)).has_value();
        });
      });
    });
    std::vector<SearchNode> left;
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      if (bounds[i]) {
        queue_.insert(pipeline_of(choices_[i], *bounds[i]));
      } else {
        left.push_back(choices_[i]);
      }
    }
    choices_ = std::move(left);
  }

  /// Splits pipelines into leaves. Bucket sizes that give the same Programs are one leaf.
  void split_pipelines() {
    std::vector<std::vector<SearchNode>> leaves(pipelines_.size());
    for_each_index(pipelines_.size(), request_.threads, [&](std::size_t i) {
      if (passed()) return;
      const SearchNode& node = pipelines_[i];
      std::vector<Strategy> strategies;
      for (std::size_t k = node.first; k < node.last; ++k) strategies.push_back(legal_[k]);
      for (const std::size_t k : bounds_.with_own_programs(strategies)) {
        const Picoseconds traffic = capped([&] { return bounds_.traffic(strategies[k]); });
        leaves[i].push_back(leaf_of(node, node.first + k, traffic));
      }
    });
    std::vector<SearchNode> left;
    for (std::size_t i = 0; i < pipelines_.size(); ++i) {
      if (leaves[i].empty()) {
        left.push_back(pipelines_[i]);
      } else {
        explored_.duplicates += pipelines_[i].count() - std::int64_t(leaves[i].size());
      }
      queue_.insert(leaves[i]);
    }
    pipelines_ = std::move(left);
  }

  void simulate_leaves() {
    std::vector<std::optional<Candidate>> found(leaves_.size());
    for_each_index(leaves_.size(), request_.threads, [&](std::size_t i) {
      if (passed()) return;
      found[i] = assess(
          target_, strategy_of(leaves_[i]), leaves_[i].first,
          [&](const Candidate& candidate) { return !why_cut(node_of(leaves_[i], candidate)); });
    });
    std::vector<SearchNode> left;
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (!found[i]) {
        left.push_back(leaves_[i]);
      } else {
        pool_.add(std::move(*found[i]));
      }
    }
    leaves_ = std::move(left);
  }

  void report() {
    const auto all = std::int64_t(legal_.size());
    done_ = std::max(done_, all - queue_.strategies());
    if (request_.progress) request_.progress(done_, all);
  }

  /// Sums up. Strategies that a search set aside before it was stopped early count as left.
  Explored finish() {
    for (const auto& [node, reason] : set_aside_) {
      if (proven_) {
        cut(reason, node);
      } else {
        queue_.insert(node);
      }
    }
    explored_.unexplored = queue_.strategies();
    if (!queue_.empty()) explored_.least_left = queue_.least_bound().seconds();
    for (Candidate& candidate : pool_.take()) {
      const Seconds step = candidate.prediction.step_time;
      if (pool_.memory_is_known(candidate)) {
        explored_.candidates.push_back(std::move(candidate));
      } else if (proven_) {
        cut(Cut::no_allocator, 1);
      } else {
        ++explored_.unexplored;
        explored_.least_left = std::min(explored_.least_left.value_or(step), step);
      }
    }
    std::sort(explored_.candidates.begin(), explored_.candidates.end(),
              [](const Candidate& a, const Candidate& b) { return a.index < b.index; });
    return std::move(explored_);
  }

  const SearchRequest& request_;
  const Target& target_;
  const StrategyList& legal_;
  const Bounds& bounds_;
  const FamilyBounds family_bounds_;
  const Bytes capacity_;
  std::vector<std::optional<FamilySummary>> summaries_;  ///< absent: the time limit passed first
  NodeQueue queue_;
  std::vector<char> is_coarse_;  ///< by family, whether its bound is coarse
  std::vector<SearchNode> families_, groups_, choices_, pipelines_, leaves_;  ///< of this round
  std::vector<std::pair<SearchNode, Cut>> set_aside_;  ///< cut if all of the pool fits
  const Handicaps handicaps_;
  CandidatePool pool_;
  std::int64_t done_ = 0;  ///< as reported: never fewer, though strategies set aside may return
  bool proven_ = false;    ///< nothing is left that could be shown
  Incumbents incumbents_;
  Explored explored_;
};

}  // namespace

void take_back_time_cuts(Explored& explored, Seconds step) {
  for (std::size_t i = 0; i < kCuts.size(); ++i) {
    if (!rests_on_a_plan(Cut(i)) || explored.bounded[i] == 0) continue;
    explored.unexplored += std::exchange(explored.bounded[i], 0);
    explored.least_left = std::min(explored.least_left.value_or(step), step);
  }
}

Explored branch_and_bound(const SearchRequest& request, const Space& space, const Bounds& bounds) {
  return Explorer(request, space, bounds).run();
}

}  // namespace plimsoll
