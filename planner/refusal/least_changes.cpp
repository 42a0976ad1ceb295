// Changes a request in one respect at a time until something fits.
#include "planner/refusal/least_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "planner/explore/assess.h"
#include "planner/explore/explore.h"
#include "planner/explore/handicaps.h"

namespace plimsoll {
namespace {

/// Types that take less memory than those that are searched, fewest settings first. Among as many
/// settings the closest to f32 come first. The last two narrow all types.
const std::vector<Fixed>& narrower_types() {
  static const std::vector<Fixed> all = {
      {{"main_parameter_type", "remainder"}},
      {{"gradient_type", "computed"}},
      {{"moment_type", "bf16"}},
      {{"moment_type", "fp8"}},
      {{"main_parameter_type", "f16"}},
      {{"gradient_type", "computed"}, {"main_gradient_type", "computed"}},
      {{"main_parameter_type", "remainder"}, {"moment_type", "bf16"}},
      {{"main_parameter_type", "f16"}, {"moment_type", "bf16"}},
      {{"main_parameter_type", "remainder"}, {"moment_type", "fp8"}},
      {{"main_parameter_type", "f16"}, {"moment_type", "fp8"}},
      {{"gradient_type", "computed"},
       {"main_gradient_type", "computed"},
       {"main_parameter_type", "remainder"},
       {"moment_type", "fp8"}},
      {{"gradient_type", "computed"},
       {"main_gradient_type", "computed"},
       {"main_parameter_type", "f16"},
       {"moment_type", "fp8"}}};
  return all;
}

std::string fix_text(const Fixed& fixed) {
  std::string text;
  for (const auto& [key, value] : fixed)
    text += fmt::format("{}--fix {}={}", text.empty() ? "" : " ", key, value);
  return text;
}

/// Returns the kind of a change that frees a choice.
ChangeKind kind_of(std::string_view key) {
  if (key == "dp" || key == kAllReplicas || key.starts_with("sharding_"))
    return ChangeKind::sharding;
  if (key == "offload_optimizer_percent") return ChangeKind::offload;
  return key.starts_with("recompute") ? ChangeKind::recompute : ChangeKind::other;
}

/// Layouts that people start from, the plainest first: shards alone, no context split, any.
const std::vector<Fixed>& plain_layouts() {
  static const std::vector<Fixed> all = {
      {{"mp", "1"}, {"pp", "1"}, {"cp", "1"}}, {{"cp", "1"}}, {}};
  return all;
}

/// The most further strategies that are visited to find one without unusual choices.
constexpr std::int64_t kMostMore = 32;

class Changes {
 public:
  Changes(const SearchRequest& request, const Passed& passed)
      : request_(request), passed_(passed) {}

  FoundChanges find(bool lasting_fits) {
    without_held_choices();
    with_offload();
    with_more_devices();
    with_even_routing();
    with_narrower_types();
    if (lasting_fits) with_smaller_batches();
    if (!not_tried_.empty()) {
      found_.notes.push_back(fmt::format("not looked at to the end in the time there was: {}",
                                         fmt::join(not_tried_, ", ")));
    }
    return std::move(found_);
  }

 private:
  /// Returns the request with the smallest micro-batch and whole layers recomputed, unless it fixes
  /// or limits these. Modules may need less: while a layer is repeated as a whole, all that it
  /// saves is there at once.
  static SearchRequest leanest(SearchRequest changed) {
    const auto is_free = [&](std::string_view key) {
      return !is_fixed(changed.constraints.fixed, key) &&
             !is_limited(changed.constraints.limits, key);
    };
    if (is_free("micro_batch")) changed.constraints.fixed.emplace_back("micro_batch", "1");
    const SetOf<Recompute> forms = changed.target.framework().can.recompute.value;
    const bool may_repeat_all = is_free("recompute") && is_free("recompute_list") &&
                                is_free("recompute_modules") &&
                                !is_limited(changed.constraints.limits, "recompute_layers");
    if (!forms.has(Recompute::full) || !may_repeat_all) return changed;
    if (!forms.has(Recompute::modules)) {
      changed.constraints.fixed.emplace_back("recompute", "full");
      return changed;
    }
    for (const Recompute form : {Recompute::none, Recompute::selective, Recompute::per_op})
      changed.constraints.limits.push_back(
          make_limit(LimitKind::excluded, "recompute", to_text(form)));
    return changed;
  }

  /// Returns a plan that fits, of the plainest layouts that any fits of: the first without unusual
  /// choices, or the best of the next kMostMore if all of them have some.
  std::optional<Candidate> find_plan(const SearchRequest& changed) const {
    for (const Fixed& layout : plain_layouts()) {
      SearchRequest plain = changed;
      for (const auto& choice : layout) {
        if (!is_fixed(changed.constraints.fixed, choice.first) &&
            !is_limited(changed.constraints.limits, choice.first))
          plain.constraints.fixed.push_back(choice);
      }
      if (auto found = find_in(plain)) {
        if (!is_fixed(changed.constraints.fixed, "micro_batch") &&
            !is_limited(changed.constraints.limits, "micro_batch"))
          enlarge_micro_batch(plain, *found);
        return found;
      }
      if (plain.constraints.fixed.size() == changed.constraints.fixed.size())
        break;  // the rest is the same space
    }
    return std::nullopt;
  }

  /// Doubles the micro-batch of a plan as long as that is better.
  void enlarge_micro_batch(const SearchRequest& request, Candidate& plan) const {
    const Handicaps handicaps(request);
    while (!passed_(0)) {
      Strategy larger = plan.strategy;
      larger.micro_batch *= 2;
      if (!legal(request.target, larger)) return;
      Candidate found = assess(request.target, larger, plan.index);
      confirm_memory(request.target, {&found, 1}, request.threads);
      handicaps.weigh(found);
      if (!feasible(found) || !better(found, plan)) return;
      plan = std::move(found);
    }
  }

  std::optional<Candidate> find_in(const SearchRequest& changed) const {
    if (passed_(0)) return std::nullopt;
    const SearchRequest request = leanest(changed);
    const Target& target = request.target;
    const Space space = enumerate(request);
    if (space.legal.empty() || passed_(work_of_families(space.legal.families().size())))
      return std::nullopt;
    const Bytes limit = std::max(largest_memory(target) - target.reserve, Bytes());
    const Handicaps handicaps(request);
    std::optional<Candidate> fits;
    std::int64_t more = kMostMore;
    const auto look = [&](const Strategy& strategy, std::size_t index) {
      if (fits && !handicaps.of(strategy, Bytes()).empty()) return --more > 0;
      Candidate found = assess(target, strategy, index);
      confirm_memory(target, {&found, 1}, request.threads);
      handicaps.weigh(found);
      if (feasible(found) && (!fits || better(found, *fits))) fits = std::move(found);
      return !fits || (!fits->unusual.empty() && --more > 0);
    };
    visit_leanest(request, space, {[&] { return limit; }, look, passed_});
    return fits;
  }

  FittingChange& add(ChangeKind kind, const std::string& words, const SearchRequest& changed,
                     const Candidate& found) {
    const Bytes need = taken_by(changed.target, found);
    return found_.fitting.emplace_back(
        FittingChange{kind, words, found.strategy, need, found.prediction.step_time});
  }

  /// Whether the time is over; then notes that `what` was not tried.
  bool is_out_of_time(const std::string& what) {
    if (!passed_(0)) return false;
    not_tried_.push_back(what);
    return true;
  }

  void without_held_choices() {
    for (std::size_t i = 0; i < request_.constraints.fixed.size(); ++i) {
      SearchRequest changed = request_;
      changed.constraints.fixed.erase(changed.constraints.fixed.begin() + std::ptrdiff_t(i));
      if (!without(request_.constraints.fixed[i].first, fix_text({request_.constraints.fixed[i]}),
                   changed))
        return;
    }
    std::set<std::string> freed;
    for (const Limit& limit : request_.constraints.limits) {
      if (!freed.insert(limit.key).second) continue;
      SearchRequest changed = request_;
      Constraints of_key;
      std::erase_if(changed.constraints.limits, [&](const Limit& other) {
        if (other.key != limit.key) return false;
        of_key.limits.push_back(other);
        return true;
      });
      std::string words;
      for (const auto& [flag, value] : flags_of(of_key))
        words += fmt::format("{}{} {}", words.empty() ? "" : " ", flag, value);
      if (!without(limit.key, words, changed)) return;
    }
  }

  /// Whether there is time for more.
  bool without(const std::string& key, const std::string& what, const SearchRequest& changed) {
    if (const auto found = find_plan(changed)) {
      add(kind_of(key), "without " + what, changed, *found).freed = key;
      return true;
    }
    return !is_out_of_time("fewer held choices");
  }

  std::optional<SearchRequest> with(const Fixed& choices) const {
    SearchRequest changed = request_;
    for (const auto& choice : choices) {
      if (is_fixed(request_.constraints.fixed, choice.first)) return std::nullopt;
      std::erase_if(changed.constraints.tried,
                    [&](const TriedKey& tried) { return tried.key == choice.first; });
      changed.constraints.fixed.push_back(choice);
    }
    return changed;
  }

  /// Memory for the rows of even routing alone may be enough, though a step may then get more rows.
  void with_even_routing() {
    const Fixed even = {{"expert_rows_percent", "100"}};
    const auto changed = with(even);
    if (!request_.target.job.experts || !changed) return;
    if (const auto found = find_plan(*changed)) {
      if (found->strategy.ep > 1)
        add(ChangeKind::other, "with even routing only, " + fix_text(even), *changed, *found).fix =
            even;
      return;
    }
    is_out_of_time("memory for even routing only");
  }

  void with_narrower_types() {
    for (const Fixed& types : narrower_types()) {
      const auto changed = with(types);
      if (!changed) continue;
      if (const auto found = find_plan(*changed)) {
        add(ChangeKind::other, "with " + fix_text(types), *changed, *found).fix = types;
        return;
      }
      if (is_out_of_time("narrower types of gradients and optimizer states")) return;
    }
  }

  /// The host's memory takes states, and its update takes longer than the device's.
  void with_offload() {
    if (!request_.target.framework().can.offload_optimizer.value) return;
    std::optional<Candidate> best;
    Fixed best_share;
    for (const char* percent : {"50", "100"}) {
      const Fixed share = {{"offload_optimizer_percent", percent}};
      const auto changed = with(share);
      if (!changed) return;
      auto found = find_plan(*changed);
      if (found && (!best || better(*found, *best))) {
        best = std::move(found);
        best_share = share;
      }
      if (is_out_of_time("states in the host's memory")) break;
    }
    if (best)
      add(ChangeKind::offload, "with " + fix_text(best_share), *with(best_share), *best).fix =
          best_share;
  }

  void with_smaller_batches() {
    SearchRequest changed = request_;
    while (changed.target.job.global_batch % 2 == 0) {
      changed.target.job.global_batch /= 2;
      if (const auto found = find_plan(changed)) {
        const std::int64_t batch = changed.target.job.global_batch;
        add(ChangeKind::other, fmt::format("with a global batch of {}", batch), changed, *found)
            .global_batch = batch;
        return;
      }
      if (is_out_of_time("smaller global batches")) return;
    }
  }

  std::optional<Candidate> plan_on(std::int64_t devices) const {
    SearchRequest changed = request_;
    changed.target.devices = devices;
    try {
      return find_plan(changed);
    } catch (const InputError&) {  // some of these devices have no peak of the job's type
      return std::nullopt;
    }
  }

  void with_more_devices() {
    const Cluster& cluster = request_.target.cluster();
    const std::int64_t per_node = cluster.devices_per_node;
    const std::int64_t most =
        cluster.nodes ? std::min(*cluster.nodes * per_node, kMostDevices) : kMostDevices;
    std::int64_t low = request_.target.devices, high = 0;
    std::optional<Candidate> found;
    while (!found && (high = more_devices(low, per_node, most)) > 0) {
      found = plan_on(high);
      if (!found && is_out_of_time(fmt::format("more than {}", devices_text(low)))) return;
      if (!found) low = high;
    }
    if (!found) {
      if (low == request_.target.devices) return;  // all that there are
      found_.notes.push_back(
          fmt::format("none of the larger numbers of devices that were tried, up to {}", low));
      return;
    }
    while (const std::int64_t middle = devices_between(low, high, per_node)) {
      auto fewer = plan_on(middle);
      if (!fewer && is_out_of_time(fmt::format("from {} to {}", low + 1, devices_text(high - 1))))
        break;
      const bool enough = fewer && handicap(fewer->unusual) <= handicap(found->unusual);
      (enough ? high : low) = middle;
      if (enough) found = std::move(fewer);
    }
    SearchRequest changed = request_;
    changed.target.devices = high;
    const std::int64_t nodes = (high + per_node - 1) / per_node;
    add(ChangeKind::more_devices,
        fmt::format("on {} ({} node{})", devices_text(high), nodes, nodes == 1 ? "" : "s"), changed,
        *found)
        .devices = high;
  }

  const SearchRequest& request_;
  const Passed& passed_;
  FoundChanges found_;
  std::vector<std::string> not_tried_;
};

}  // namespace

std::int64_t more_devices(std::int64_t low, std::int64_t per_node, std::int64_t most) {
  if (low >= most) return 0;
  if (low < per_node) return std::min({2 * low, per_node, most});
  const std::int64_t nodes = low / per_node;
  const std::int64_t next = low % per_node == 0 ? 2 * nodes : nodes + 1;
  const std::int64_t devices = std::min(next, most / per_node) * per_node;
  return devices > low ? devices : 0;
}

std::int64_t devices_between(std::int64_t low, std::int64_t high, std::int64_t per_node) {
  const std::int64_t unit = high <= per_node ? 1 : per_node;
  const std::int64_t middle = (low / unit + high / unit) / 2 * unit;
  return middle > low && middle < high ? middle : 0;
}

const FittingChange* first_of(std::span<const FittingChange> changes) {
  const auto first = std::ranges::min_element(changes, {}, &FittingChange::kind);
  return first == changes.end() ? nullptr : &*first;
}

FoundChanges least_changes(const SearchRequest& request, bool lasting_fits, const Passed& passed) {
  return Changes(request, passed).find(lasting_fits);
}

}  // namespace plimsoll
