// Finds the strategy of least need and words the refusal.
#include "planner/refusal/refuse.h"

#include <fmt/format.h>

#include <chrono>
#include <limits>

#include "planner/bounds/shorter_step.h"
#include "planner/refusal/leanest.h"
#include "planner/refusal/least_changes.h"

namespace plimsoll {
namespace {

/// The strategy that needs least memory.
struct LeastNeed {
  std::size_t index = 0;
  std::vector<StagePrediction> stages;
  Bytes bytes;         ///< of the stage that takes most, with those outside its Program
  bool of_all = true;  ///< false: the search was stopped before all were looked at
};

/// The work (leanest.h) without a time limit: once for the least need, and once for changes. It
/// takes some seconds. A limit of time would make the answer depend on the machine.
constexpr std::int64_t kMostWork = 25000;

/// Returns a function that says whether to end: when asked to, at the time limit, or without a
/// limit once kMostWork is done.
Passed deadline_of(const SearchRequest& request) {
  const auto begin = std::chrono::steady_clock::now();
  return [&request, begin, done = std::int64_t(0)](std::int64_t work) mutable {
    if (request.stop && request.stop()) return true;
    if (work > 0) done += work;  // other threads ask as well, with 0
    if (!request.time_limit) return done > kMostWork;
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    return taken.count() > request.time_limit->value();
  };
}

/// Returns the strategy that needs least, the first of equals. Strategies are laid out with fewer
/// micro-batches where these show the bytes, and the result with all of them if there is time.
LeastNeed least_need(const SearchRequest& request, const Space& space, const Passed& passed) {
  const auto need_of = [&](const Target& target, const Strategy& strategy, std::size_t index) {
    std::vector<StagePrediction> stages = lay_out(target, strategy, Proof::none).stages;
    const Bytes bytes =
        largest(stages, &StagePrediction::reserved) + outside_program(target, strategy);
    return LeastNeed{index, std::move(stages), bytes};
  };
  std::optional<LeastNeed> least;
  LeanestVisit visit;
  visit.limit = [&] {
    return least ? least->bytes : Bytes(std::numeric_limits<std::int64_t>::max());
  };
  visit.look = [&](const Strategy& strategy, std::size_t index) {
    const auto shorter = with_fewer_micro_batches(request.target, strategy);
    LeastNeed need = need_of(shorter ? shorter->target : request.target, strategy, index);
    if (!least || std::pair(need.bytes, index) < std::pair(least->bytes, least->index))
      least = std::move(need);
    return true;
  };
  visit.passed = [&](std::int64_t work) {
    const bool over = passed(work);
    return least && over;
  };
  const bool of_all = visit_leanest(request, space, visit);
  if (of_all) least = need_of(request.target, space.legal[least->index], least->index);
  least->of_all = of_all;
  return std::move(*least);
}

}  // namespace

std::vector<std::string> NothingFits::changes() const {
  std::vector<std::string> lines;
  for (const FittingChange& change : found_.fitting) {
    lines.push_back(fmt::format("{}: {} takes {} of a device, a step {}", change.words,
                                strategy_summary(change.strategy), to_text(change.need),
                                to_text(change.step_time)));
    if (!change.unusual.empty()) lines.back() += "; unusual: " + words_of(change.unusual);
  }
  lines.insert(lines.end(), found_.notes.begin(), found_.notes.end());
  return lines;
}

void refuse(const SearchRequest& request, const Space& space, bool lasting_fits) {
  const Target& target = request.target;
  Passed passed = deadline_of(request);
  const LeastNeed need = least_need(request, space, passed);
  const Strategy strategy = space.legal[need.index];
  const std::string who = strategy_summary(strategy);
  if (fits_devices(target, strategy, need.stages)) {
    throw InfeasibleError(
        fmt::format("{} takes too long on {}: of {} legal strategies some fit ({}), but no "
                    "step of those is shorter than the {} that a plan's timeline can show",
                    target.job.name, devices_text(target.devices), space.legal.size(), who,
                    to_text(kLongestTimeline.seconds())));
  }
  const StagePrediction& tightest = tightest_of(need.stages);
  const Bytes outside = outside_program(target, strategy);
  const std::string message = fmt::format(
      "{} does not fit on {}: of {} legal strategies {} that needs least ({}) "
      "still needs {} ({} bytes) on {}, with {} outside its tensors and {} of reserve, and a "
      "device has {} ({} bytes)",
      target.job.name, devices_text(target.devices), space.legal.size(),
      need.of_all ? "the one" : "the one of those looked at in the time there was", who,
      to_text(tightest.reserved), tightest.reserved.count(), name_of(tightest), to_text(outside),
      to_text(target.reserve), to_text(tightest.capacity), tightest.capacity.count());
  const Bytes enough = need.bytes + target.reserve;
  const bool gpus = target.cluster().device.kind == DeviceKind::gpu;
  Shortage shortage{
      fmt::format("{} does not fit on {} {}{} of {}", target.job.name, target.devices,
                  gpus ? "GPU" : "core", target.devices == 1 ? "" : "s", target.cluster().name),
      filling_of(tightest, outside, target.reserve)};
  if (!request.time_limit) passed = deadline_of(request);
  FoundChanges changes = least_changes(request, lasting_fits, passed);
  std::vector<std::string> notes = {
      fmt::format("with {} ({} bytes) per device: that strategy", to_text(enough), enough.count())};
  if (need.bytes <= tightest.capacity) {
    const Bytes left = tightest.capacity - need.bytes;
    notes.push_back(fmt::format("with --reserve \"{} B\": that strategy", left.count()));
  }
  changes.notes.insert(changes.notes.begin(), notes.begin(), notes.end());
  throw NothingFits(message, std::move(shortage), std::move(changes));
}

}  // namespace plimsoll
