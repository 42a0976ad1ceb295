// Why a space has no plan.
#include "planner/refusal/refuse.h"

#include <fmt/format.h>

#include <chrono>
#include <ctime>
#include <limits>

#include "planner/explore/explore.h"
#include "planner/explore/fewer_micro_batches.h"
#include "planner/refusal/leanest.h"
#include "planner/refusal/least_changes.h"

namespace plimsoll {
namespace {

struct Need {
  std::size_t index = 0;
  Footprint footprint;
  Bytes bytes;         ///< with what no tensor shows
  bool of_all = true;  ///< false: the search was stopped before all were looked at
};

/// Without a time limit: for the least need, and again for what would have to be otherwise.
constexpr Seconds kCpuTime{2};

/// Whether to end: when asked to, at the time limit, and without one after kCpuTime of all threads.
std::function<bool()> deadline_of(const SearchRequest& request) {
  const auto begin = std::chrono::steady_clock::now();
  const std::clock_t cpu_begin = std::clock();
  return [&request, begin, cpu_begin] {
    if (request.stop && request.stop()) return true;
    if (!request.time_limit)
      return double(std::clock() - cpu_begin) / CLOCKS_PER_SEC > kCpuTime.value();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    return taken.count() > request.time_limit->value();
  };
}

/// The strategy that needs least, and the first of equals. It is laid out with fewer micro-batches
/// where these show its bytes, at last with all if there is time.
Need least_need(const SearchRequest& request, const CostModel& costs, const Space& space,
                const std::function<bool()>& passed) {
  const auto need_of = [&](const Job& job, const Strategy& strategy, std::size_t index) {
    Footprint footprint =
        lay_out(job, strategy, request.framework, costs.cluster(), request.reserve, Proof::none);
    footprint.programs.clear();
    const Bytes bytes =
        footprint.reserved + memory_outside_program(request.job, strategy, request.framework);
    return Need{index, std::move(footprint), bytes};
  };
  std::optional<Need> least;
  LeanestVisit visit;
  visit.limit = [&] {
    return least ? least->bytes : Bytes(std::numeric_limits<std::int64_t>::max());
  };
  visit.look = [&](const Strategy& strategy, std::size_t index) {
    const auto fewer = with_fewer_micro_batches(request.job, strategy, request.framework);
    Need need = need_of(fewer ? fewer->job : request.job, strategy, index);
    if (!least || std::pair(need.bytes, index) < std::pair(least->bytes, least->index))
      least = std::move(need);
    return true;
  };
  visit.passed = [&] { return least && passed(); };
  const bool of_all = visit_leanest(request, costs, space, visit);
  if (of_all) least = need_of(request.job, space.legal[least->index], least->index);
  least->of_all = of_all;
  return std::move(*least);
}

}  // namespace

void refuse(const SearchRequest& request, const CostModel& costs, const Space& space, bool lives) {
  std::function<bool()> passed = deadline_of(request);
  const Need need = least_need(request, costs, space, passed);
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
  const std::string message = fmt::format(
      "{} does not fit on {}: of {} legal strategies {} that needs least ({}) "
      "still needs {} ({} bytes) on {}, with {} outside its tensors and {} of reserve, and a "
      "device has {} ({} bytes)",
      request.job.name, devices_text(request.devices), space.legal.size(),
      need.of_all ? "the one" : "the one of those looked at in the time there was", who,
      to_text(tightest.reserved), tightest.reserved.count(), name_of(tightest), to_text(outside),
      to_text(request.reserve), to_text(tightest.capacity), tightest.capacity.count());
  const Bytes enough = need.bytes + request.reserve;
  std::vector<std::string> changes = {
      fmt::format("with {} ({} bytes) per device: that strategy", to_text(enough), enough.count())};
  if (need.bytes <= tightest.capacity) {
    const Bytes left = tightest.capacity - need.bytes;
    changes.push_back(fmt::format("with --reserve \"{} B\": that strategy", left.count()));
  }
  if (!request.time_limit) passed = deadline_of(request);
  for (std::string& change : least_changes(request, costs, lives, passed))
    changes.push_back(std::move(change));
  throw NothingFits(message, std::move(changes));
}

}  // namespace plimsoll
