#include "planner/refusal/least_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "planner/explore/assess.h"
#include "planner/explore/explore.h"
#include "planner/refusal/leanest.h"

namespace plimsoll {
namespace {

/// Types that take less memory than those that are searched, fewest settings first, of as many the
/// closest to f32 first. The last two narrow all there is.
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

class Changes {
 public:
  Changes(const SearchRequest& request, const CostModel& costs, const std::function<bool()>& passed)
      : request_(request), costs_(costs), passed_(passed) {}

  std::vector<std::string> find(bool lives) {
    without_held_choices();
    with_narrower_types();
    if (lives) with_smaller_batches();
    with_more_devices();
    if (!left_.empty()) {
      lines_.push_back(fmt::format("not looked at to the end in the time there was: {}",
                                   fmt::join(left_, ", ")));
    }
    return std::move(lines_);
  }

 private:
  /// The request, held to the smallest micro-batch and to whole layers recomputed where it holds
  /// neither.
  static SearchRequest leanest(SearchRequest changed) {
    if (!is_fixed(changed.fixed, "micro_batch")) changed.fixed.emplace_back("micro_batch", "1");
    const bool repeats = changed.framework.can.recompute.value.has(Recompute::full);
    const bool free =
        !is_fixed(changed.fixed, "recompute") && !is_fixed(changed.fixed, "recompute_list");
    if (repeats && free) changed.fixed.emplace_back("recompute", "full");
    return changed;
  }

  /// A plan that fits: the first that is found.
  std::optional<Candidate> fitting(const SearchRequest& changed) const {
    if (passed_()) return std::nullopt;
    const SearchRequest request = leanest(changed);
    const Cluster& cluster = costs_.cluster();
    const Space space = enumerate(request.job, request.framework, request.devices, request.fixed,
                                  units_of(cluster));
    if (space.legal.empty()) return std::nullopt;
    const Bytes limit =
        std::max(largest_memory(cluster, request.devices) - request.reserve, Bytes());
    std::optional<Candidate> fits;
    const auto look = [&](const Strategy& strategy, std::size_t index) {
      Candidate found = assess(request, costs_, strategy, index);
      confirm_memory(request, costs_, {&found, 1}, request.threads);
      if (feasible(found)) fits = std::move(found);
      return !fits;
    };
    visit_leanest(request, costs_, space, {[&] { return limit; }, look, passed_});
    return fits;
  }

  void add(const std::string& change, const SearchRequest& changed, const Candidate& found) {
    const Bytes taken = found.score.reserved +
                        memory_outside_program(changed.job, found.strategy, changed.framework);
    lines_.push_back(fmt::format("{}: {} takes {} of a device with the reserve, a step {}", change,
                                 strategy_summary(found.strategy), to_text(taken + changed.reserve),
                                 to_text(found.score.prediction.step_time)));
  }

  /// Whether there is no time for `what`.
  bool leaves(const std::string& what) {
    if (!passed_()) return false;
    left_.push_back(what);
    return true;
  }

  void without_held_choices() {
    for (std::size_t i = 0; i < request_.fixed.size(); ++i) {
      const std::string text = fix_text({request_.fixed[i]});
      SearchRequest changed = request_;
      changed.fixed.erase(changed.fixed.begin() + std::ptrdiff_t(i));
      const auto found = fitting(changed);
      if (found) {
        add("without " + text, changed, *found);
      } else if (leaves("fewer held choices")) {
        return;
      }
    }
  }

  std::optional<SearchRequest> with(const Fixed& choices) const {
    SearchRequest changed = request_;
    for (const auto& choice : choices) {
      if (is_fixed(request_.fixed, choice.first)) return std::nullopt;
      changed.fixed.push_back(choice);
    }
    return changed;
  }

  void with_narrower_types() {
    for (const Fixed& types : narrower_types()) {
      const auto changed = with(types);
      if (!changed) continue;
      if (const auto found = fitting(*changed)) {
        add("with " + fix_text(types), *changed, *found);
        return;
      }
      if (leaves("narrower types of gradients and optimizer states")) return;
    }
  }

  void with_smaller_batches() {
    SearchRequest changed = request_;
    while (changed.job.global_batch % 2 == 0) {
      changed.job.global_batch /= 2;
      if (const auto found = fitting(changed)) {
        add(fmt::format("with a global batch of {}", changed.job.global_batch), changed, *found);
        return;
      }
      if (leaves("smaller global batches")) return;
    }
  }

  std::optional<Candidate> fitting_on(std::int64_t devices) const {
    SearchRequest changed = request_;
    changed.devices = devices;
    try {
      return fitting(changed);
    } catch (const InputError&) {  // some of these devices have no peak of the job's type
      return std::nullopt;
    }
  }

  void with_more_devices() {
    const Cluster& cluster = costs_.cluster();
    const std::int64_t per_node = cluster.devices_per_node;
    const std::int64_t most =
        cluster.nodes ? std::min(*cluster.nodes * per_node, kMostDevices) : kMostDevices;
    std::int64_t low = request_.devices, high = 0;
    std::optional<Candidate> found;
    while (!found && (high = more_devices(low, per_node, most)) > 0) {
      found = fitting_on(high);
      if (!found && leaves(fmt::format("more than {}", devices_text(low)))) return;
      if (!found) low = high;
    }
    if (!found) {
      if (low == request_.devices) return;  // all that there are
      lines_.push_back(
          fmt::format("none of the larger numbers of devices that were tried, up to {}", low));
      return;
    }
    while (const std::int64_t middle = devices_between(low, high, per_node)) {
      auto fewer = fitting_on(middle);
      if (!fewer && leaves(fmt::format("from {} to {}", low + 1, devices_text(high - 1)))) break;
      (fewer ? high : low) = middle;
      if (fewer) found = std::move(fewer);
    }
    SearchRequest changed = request_;
    changed.devices = high;
    const std::int64_t nodes = (high + per_node - 1) / per_node;
    add(fmt::format("on {} ({} node{})", devices_text(high), nodes, nodes == 1 ? "" : "s"), changed,
        *found);
  }

  const SearchRequest& request_;
  const CostModel& costs_;
  const std::function<bool()>& passed_;
  std::vector<std::string> lines_, left_;
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

std::vector<std::string> least_changes(const SearchRequest& request, const CostModel& costs,
                                       bool lives, const std::function<bool()>& passed) {
  return Changes(request, costs, passed).find(lives);
}

}  // namespace plimsoll
