// The rounds of the search; bounds.h has the bounds, runners_up.h what has to be found.
#include "planner/explore.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/parallel.h"
#include "planner/assess.h"
#include "planner/bounds.h"
#include "planner/incumbents.h"

namespace plimsoll {
namespace {

/// Leaves simulated, choices sharpened, and simulated leaves whose allocators are replayed, per
/// round. Fixed: what a round learns is used from the next one on, so these are part of the
/// result's definition.
constexpr std::size_t kSimulated = 4, kSharpened = 32, kReplayed = 4;

enum Reason : std::size_t {
  kPersistent,
  kInFlight,
  kTooLong,
  kBottleneck,
  kPipeline,
  kNoAllocator,
  kReasons
};
constexpr std::array<const char*, kReasons> kReasonTexts = {
    "memory bound: what lives between steps does not fit",
    "memory bound: with its micro-batches in flight it does not fit",
    "time bound: a step longer than a plan's timeline can show",
    "time bound of the slowest stage: neither among the fastest nor on the Pareto front",
    "time bound of the pipeline: neither among the fastest nor on the Pareto front",
    "time bound of a step whose allocator is not replayed: neither among the fastest nor on the "
    "Pareto front"};

/// A run of strategies in canonical order that differ in bucket bytes only (a choice), or one (a
/// leaf), whose step is known once it is simulated.
struct Node {
  enum class Kind : std::uint8_t { choice, leaf, simulated };
  Picoseconds bound;
  std::size_t first = 0, last = 0;  ///< range of Space::legal
  Bytes peak;                       ///< bound
  Kind kind = Kind::choice;
  bool operator<(const Node& other) const {
    return std::tuple(bound, first, kind) < std::tuple(other.bound, other.first, other.kind);
  }
  std::int64_t count() const { return std::int64_t(last - first); }
};

bool same_degrees(const Strategy& a, const Strategy& b) {
  return a.mp == b.mp && a.pp == b.pp && a.dp == b.dp && a.sharding_degree == b.sharding_degree &&
         a.sharding_stage == b.sharding_stage;
}

/// Where a property of neighbours changes.
template <class Same>
std::vector<std::pair<std::size_t, std::size_t>> runs(const std::vector<Strategy>& strategies,
                                                      std::size_t first, std::size_t last,
                                                      Same same) {
  std::vector<std::pair<std::size_t, std::size_t>> found;
  for (std::size_t i = first; i < last; ++i) {
    if (i > first && same(strategies[i - 1], strategies[i])) {
      ++found.back().second;
    } else {
      found.emplace_back(i, i + 1);
    }
  }
  return found;
}

/// No stage can use more, whichever devices it is on.
Bytes largest_memory(const Cluster& cluster, std::int64_t devices) {
  Bytes largest;
  for (const auto& [kind, count] : devices_by_kind(cluster, devices)) {
    largest = std::max(largest, device_of(cluster, kind).memory);
  }
  return largest;
}

class Explorer {
 public:
  Explorer(const SearchRequest& request, const CostModel& costs, const Space& space)
      : request_(request),
        costs_(costs),
        legal_(space.legal),
        bounds_(request.job, request.framework, costs, request.devices),
        capacity_(largest_memory(costs.cluster(), request.devices)) {
    if (request.time_limit) {
      deadline_ = std::chrono::steady_clock::now() +
                  std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                      std::chrono::duration<double>(request.time_limit->value()));
    }
  }

  /// What the bounds that need no incumbent say.
  BoundCounts count() {
    bound_degrees();
    BoundCounts counts;
    counts.cannot_live = cut_[kPersistent];
    counts.cannot_fly = cut_[kInFlight];
    counts.may_fit = left();
    if (queue_.empty()) return counts;
    counts.least_time = queue_.begin()->bound.seconds();
    for (double times : {1.1, 1.5, 2.0, 4.0}) {
      std::int64_t slower = 0;
      for (const Node& node : queue_) {
        if (node.bound.seconds() > times * *counts.least_time) slower += node.count();
      }
      counts.slower.emplace_back(times, slower);
    }
    return counts;
  }

  Explored run() {
    bound_degrees();
    while (!queue_.empty() && !passed()) {
      incumbents_.learn(explored_.candidates);
      if (const std::size_t taken = take_simulated(); taken > 0) {
        const std::span<Candidate> all(explored_.candidates);
        confirm_memory(request_, costs_, all.last(taken), request_.threads);
      } else {
        take_round();
        if (!choices_.empty()) {
          sharpen_choices();
        } else {
          simulate_leaves();
        }
        put_back(choices_);
        put_back(leaves_);
        confirm_fastest();
      }
      report();
    }
    return finish();
  }

 private:
  using Range = std::pair<std::size_t, std::size_t>;

  bool passed() const { return deadline_ && std::chrono::steady_clock::now() >= *deadline_; }

  bool fits(Bytes reserved, const Strategy& strategy) const {
    return reserved + memory_outside_program(request_.job, strategy, request_.framework) +
               request_.reserve <=
           capacity_;
  }

  void cut(Reason reason, std::int64_t count) { cut_[reason] += count; }

  /// Memory first: it needs no incumbent. What may fit enters the queue as choices.
  void bound_degrees() {
    const std::vector<Range> grids = runs(legal_, 0, legal_.size(), same_degrees);
    std::vector<char> may_fit(grids.size(), true);
    for_each_index(grids.size(), request_.threads, [&](std::size_t i) {
      if (passed()) return;
      const Strategy& strategy = legal_[grids[i].first];
      may_fit[i] = fits(bounds_.persistent(strategy), strategy);
    });
    std::vector<Range> choices;
    for (std::size_t i = 0; i < grids.size(); ++i) {
      const auto [first, last] = grids[i];
      if (may_fit[i]) {
        const std::vector<Range> more = runs(legal_, first, last, same_but_buckets);
        choices.insert(choices.end(), more.begin(), more.end());
      } else {
        cut(kPersistent, std::int64_t(last - first));
      }
    }
    bound_choices(choices);
  }

  void bound_choices(const std::vector<Range>& choices) {
    std::vector<std::optional<Node>> nodes(choices.size());
    for_each_index(choices.size(), request_.threads, [&](std::size_t i) {
      if (passed()) {  // no bound is known
        nodes[i] = Node{Picoseconds(), choices[i].first, choices[i].second, Bytes()};
        return;
      }
      const Strategy& strategy = legal_[choices[i].first];
      const MemoryBound memory = bounds_.memory(strategy);
      if (!fits(memory.reserved, strategy)) return;
      nodes[i] = Node{bottleneck(strategy), choices[i].first, choices[i].second, memory.peak};
    });
    for (std::size_t i = 0; i < choices.size(); ++i) {
      if (nodes[i]) {
        queue_.insert(*nodes[i]);
      } else {
        cut(kInFlight, std::int64_t(choices[i].second - choices[i].first));
      }
    }
  }

  /// What the clock cannot hold is longer than any plan's step.
  Picoseconds bottleneck(const Strategy& strategy) const {
    try {
      return std::min(bounds_.bottleneck(strategy), kLongestStep);
    } catch (const InfeasibleError&) {
      return kLongestStep;
    }
  }
  std::vector<std::optional<Picoseconds>> pipeline_bounds(const Node& choice) const {
    try {
      auto bounds = bounds_.pipelines({&legal_[choice.first], choice.last - choice.first});
      for (auto& bound : bounds) {
        if (bound) bound = std::min(*bound, kLongestStep);
      }
      return bounds;
    } catch (const InfeasibleError&) {
      return std::vector<std::optional<Picoseconds>>(choice.last - choice.first, kLongestStep);
    }
  }

  std::optional<Reason> why_cut(const Node& node) const {
    if (node.bound > kLongestTimeline) return kTooLong;
    if (may_matter(node.bound.seconds(), node.peak, legal_[node.first])) return std::nullopt;
    if (node.kind == Node::Kind::simulated) return kNoAllocator;
    return node.kind == Node::Kind::leaf ? kPipeline : kBottleneck;
  }

  bool may_matter(Seconds step, Bytes peak, const Strategy& strategy) const {
    return incumbents_.may_be_on_front(step, peak) || incumbents_.may_be_listed(step, strategy);
  }

  /// Makes candidates of the simulated leaves that come first, as if their allocators fitted, which
  /// has to be found out; how many. Of those after the first only what matters even so.
  std::size_t take_simulated() {
    std::size_t taken = 0;
    std::vector<Node> later;
    while (!queue_.empty() && queue_.begin()->kind == Node::Kind::simulated && taken < kReplayed) {
      const Node node = *queue_.begin();
      queue_.erase(queue_.begin());
      if (const std::optional<Reason> reason = why_cut(node); !reason) {
        explored_.candidates.push_back(std::move(simulated_.extract(node.first).mapped()));
        incumbents_.learn(explored_.candidates);
        ++taken;
      } else if (taken > 0) {
        later.push_back(node);
      } else {
        cut(*reason, node.count());
        simulated_.erase(node.first);
      }
    }
    put_back(later);
    return taken;
  }

  /// A simulated leaf that would be the best so far is not left to its turn: a search that is
  /// stopped early has it to show, and others have it to beat.
  void confirm_fastest() {
    const auto step = [](const auto& one) { return one.second.score.prediction.step_time; };
    const auto fastest = std::ranges::min_element(simulated_, {}, step);
    if (fastest == simulated_.end() || passed()) return;
    if (incumbents_.best() && step(*fastest) >= *incumbents_.best()) return;
    queue_.erase(node_of(fastest->second));
    explored_.candidates.push_back(std::move(fastest->second));
    simulated_.erase(fastest);
    confirm_memory(request_, costs_, std::span(explored_.candidates).last(1), request_.threads);
  }

  static Node node_of(const Candidate& simulated) {
    return {to_picoseconds(simulated.score.prediction.step_time), simulated.index,
            simulated.index + 1, simulated.score.peak, Node::Kind::simulated};
  }

  /// Takes nodes in order until there is enough for a round of one kind. The turn of simulated
  /// leaves comes when they are first: what is known by then may spare them the replay.
  void take_round() {
    std::vector<Node> later;
    while (!queue_.empty() && leaves_.size() < kSimulated && choices_.size() < kSharpened) {
      const Node node = *queue_.begin();
      queue_.erase(queue_.begin());
      if (node.kind == Node::Kind::simulated) {
        later.push_back(node);
      } else if (const std::optional<Reason> reason = why_cut(node)) {
        cut(*reason, node.count());
      } else {
        (node.kind == Node::Kind::leaf ? leaves_ : choices_).push_back(node);
      }
    }
    put_back(later);
  }

  void put_back(std::vector<Node>& nodes) {
    queue_.insert(nodes.begin(), nodes.end());
    nodes.clear();
  }

  /// Splits choices into leaves with sharper bounds. Buckets that come out alike are one leaf.
  void sharpen_choices() {
    std::vector<std::vector<Node>> leaves(choices_.size());
    for_each_index(choices_.size(), request_.threads, [&](std::size_t i) {
      if (passed()) return;
      const Node& choice = choices_[i];
      const auto bounds = pipeline_bounds(choice);
      for (std::size_t leaf = choice.first; leaf < choice.last; ++leaf) {
        const std::optional<Picoseconds>& bound = bounds[leaf - choice.first];
        if (!bound) continue;
        leaves[i].push_back(
            {std::max(choice.bound, *bound), leaf, leaf + 1, choice.peak, Node::Kind::leaf});
      }
    });
    std::vector<Node> left;
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      if (leaves[i].empty()) {
        left.push_back(choices_[i]);
        continue;
      }
      explored_.duplicates += choices_[i].count() - std::int64_t(leaves[i].size());
      queue_.insert(leaves[i].begin(), leaves[i].end());
    }
    choices_ = std::move(left);
  }

  void simulate_leaves() {
    std::vector<std::optional<Candidate>> found(leaves_.size());
    for_each_index(leaves_.size(), request_.threads, [&](std::size_t i) {
      if (passed()) return;
      found[i] = assess(request_, costs_, legal_[leaves_[i].first], leaves_[i].first);
    });
    std::vector<Node> left;
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (!found[i]) {
        left.push_back(leaves_[i]);
      } else if (has_allocator() && feasible(*found[i])) {
        queue_.insert(node_of(*found[i]));
        simulated_.emplace(found[i]->index, std::move(*found[i]));
      } else {
        explored_.candidates.push_back(std::move(*found[i]));
      }
    }
    leaves_ = std::move(left);
  }

  bool has_allocator() const { return request_.framework.allocator.kind != AllocatorKind::arena; }

  std::int64_t left() const {
    std::int64_t count = 0;
    for (const Node& node : queue_) count += node.count();
    return count;
  }

  void report() const {
    if (!request_.progress) return;
    const auto all = std::int64_t(legal_.size());
    request_.progress(all - left(), all);
  }

  Explored finish() {
    for (std::size_t i = 0; i < kReasons; ++i) {
      if (cut_[i] > 0) explored_.bounded.push_back({kReasonTexts[i], cut_[i]});
    }
    explored_.unexplored = left();
    if (!queue_.empty()) explored_.least_left = queue_.begin()->bound.seconds();
    std::sort(explored_.candidates.begin(), explored_.candidates.end(),
              [](const Candidate& a, const Candidate& b) { return a.index < b.index; });
    return std::move(explored_);
  }

  const SearchRequest& request_;
  const CostModel& costs_;
  const std::vector<Strategy>& legal_;
  const Bounds bounds_;
  const Bytes capacity_;
  std::optional<std::chrono::steady_clock::time_point> deadline_;
  std::set<Node> queue_;
  std::vector<Node> choices_, leaves_;          ///< of this round
  std::map<std::size_t, Candidate> simulated_;  ///< of nodes of that kind, by Node::first
  Incumbents incumbents_;
  Explored explored_;
  std::array<std::int64_t, kReasons> cut_ = {};
};

}  // namespace

Explored explore_all(const SearchRequest& request, const CostModel& costs, const Space& space) {
  Explored explored;
  explored.candidates.resize(space.legal.size());
  for_each_index(space.legal.size(), request.threads, [&](std::size_t i) {
    explored.candidates[i] = assess(request, costs, space.legal[i], i);
    confirm_memory(request, costs, {&explored.candidates[i], 1}, 1);
  });
  return explored;
}

Explored branch_and_bound(const SearchRequest& request, const CostModel& costs,
                          const Space& space) {
  return Explorer(request, costs, space).run();
}

BoundCounts count_bounds(const SearchRequest& request, const CostModel& costs, const Space& space) {
  return Explorer(request, costs, space).count();
}

namespace {

struct Need {
  std::size_t index = 0;
  Footprint footprint;
  Bytes bytes;  ///< with what no tensor shows
};

/// The strategy that needs least, and the first of equals. Buckets take no memory of their own, so
/// the first strategy of each choice stands for all of them.
Need least_need(const SearchRequest& request, const CostModel& costs, const Space& space) {
  const Bounds bounds(request.job, request.framework, costs, request.devices);
  const auto outside = [&](std::size_t i) {
    return memory_outside_program(request.job, space.legal[i], request.framework);
  };
  std::vector<std::pair<Bytes, std::size_t>> order;
  for (const auto& [first, last] : runs(space.legal, 0, space.legal.size(), same_but_buckets)) {
    order.emplace_back(Bytes(), first);
  }
  for_each_index(order.size(), request.threads, [&](std::size_t i) {
    const std::size_t index = order[i].second;
    order[i].first = bounds.memory(space.legal[index]).reserved + outside(index);
  });
  std::sort(order.begin(), order.end());
  std::optional<Need> least;
  for (const auto& [bound, index] : order) {
    if (least && bound > least->bytes) break;
    Footprint footprint = lay_out(request.job, space.legal[index], request.framework,
                                  costs.cluster(), request.reserve, Proof::none);
    const Bytes bytes = footprint.reserved + outside(index);
    if (!least || std::pair(bytes, index) < std::pair(least->bytes, least->index)) {
      footprint.programs.clear();
      least = Need{index, std::move(footprint), bytes};
    }
  }
  return std::move(*least);
}

}  // namespace

void refuse(const SearchRequest& request, const CostModel& costs, const Space& space) {
  const Need need = least_need(request, costs, space);
  const std::string who = strategy_summary(space.legal[need.index]);
  if (need.footprint.fits) {
    throw InfeasibleError(
        fmt::format("{} takes too long on {}: of {} legal strategies some fit ({}), but no "
                    "step of those is shorter than the {} that a plan's timeline can show",
                    request.job.name, devices_text(request.devices), space.legal.size(), who,
                    to_text(kLongestTimeline.seconds())));
  }
  const StagePrediction& tightest = tightest_of(need.footprint.stages);
  const Bytes outside = need.bytes - need.footprint.reserved;
  throw InfeasibleError(fmt::format(
      "{} does not fit on {}: of {} legal strategies the one that needs least ({}) "
      "still needs {} ({} bytes) on {}, with {} outside its tensors and {} of reserve, and a "
      "device has {} ({} bytes)",
      request.job.name, devices_text(request.devices), space.legal.size(), who,
      to_text(tightest.reserved), tightest.reserved.count(), name_of(tightest), to_text(outside),
      to_text(request.reserve), to_text(tightest.capacity), tightest.capacity.count()));
}

}  // namespace plimsoll
