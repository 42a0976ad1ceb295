// Ranks are threads that post the same communication again and again.
#include "calibrate/measure/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/error.h"
#include "calibrate/measure/comm_operands.h"
#include "calibrate/measure/statistics.h"
#include "calibrate/measure/timed_work.h"
#include "runtime/communicator.h"

namespace plimsoll {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kDeadline{60'000};
/// Returns a grid with as many groups side by side as there are cores for. The groups are the inner
/// ranks.
Grid grid_for(OpKind kind, std::int64_t ranks) {
  Grid grid;
  grid.degree[std::size_t(Axis::mp)] = std::max(std::int64_t{1}, available_cores() / ranks);
  grid.degree[std::size_t(kind == OpKind::send ? Axis::pp : Axis::dp)] = ranks;
  return grid;
}

/// Runs `work` on one thread per rank of the grid; a failure reaches the others and the caller.
void run_ranks(std::vector<std::unique_ptr<Communicator>>& communicators, std::barrier<>& together,
               const std::function<void(Communicator&, std::int64_t rank)>& work) {
  run_together(std::int64_t(communicators.size()), [&](std::int64_t rank) {
    Communicator& communicator = *communicators[std::size_t(rank)];
    try {
      work(communicator, rank);
    } catch (const std::exception& error) {
      communicator.abort(error.what());
      together.arrive_and_drop();
      throw;
    }
  });
}

std::vector<Seconds> timings_of(OpKind kind, std::int64_t ranks, Bytes payload, Bytes footprint,
                                std::int64_t samples) {
  const Grid grid = grid_for(kind, ranks);
  const std::int64_t groups = grid[Axis::mp];
  auto communicators = make_local_communicators(grid, kDeadline, Clock::now());
  std::barrier<> together(grid.world_size());
  std::vector<std::vector<Seconds>> timings{std::size_t(groups)};
  run_ranks(communicators, together, [&](Communicator& communicator, std::int64_t rank) {
    CommOperands operands(payload, footprint);
    const std::int64_t index = rank / groups;  // in its group: mp is the inner axis
    const bool first = index == 0;
    for (std::int64_t i = -2; i < samples; ++i) {  // two for warm-up
      const std::span<float> operand = operands.produce(i + 2, index);
      together.arrive_and_wait();
      const CommunicationTimes times =
          communicator.wait(post_bench(communicator, kind, index, operand));
      if (!arrived(kind, index, ranks, operand)) {
        throw EnvironmentError(fmt::format("rank {} of {} got wrong data from {} of {}", index,
                                           ranks, to_text(kind), to_text(payload)));
      }
      if (first && i >= 0)
        timings[std::size_t(rank)].push_back((times.end - times.begin).seconds());
    }
  });
  std::vector<Seconds> all;
  for (const auto& group : timings) all.insert(all.end(), group.begin(), group.end());
  return all;
}

}  // namespace

CollectivePoint measure_collective(OpKind kind, std::int64_t ranks, Bytes payload, Bytes footprint,
                                   std::int64_t samples) {
  INVARIANT(payload.count() % (ranks * std::int64_t(sizeof(float))) == 0,
            "the payload does not divide into one part per rank");
  CollectivePoint point;
  point.kind = kind;
  point.ranks = ranks;
  point.payload = payload;
  point.groups_per_node = grid_for(kind, ranks)[Axis::mp];
  point.time = summarize(timings_of(kind, ranks, payload, footprint, samples));
  if (point.time.unsteady) {
    const Sample second = summarize(timings_of(kind, ranks, payload, footprint, samples));
    const double first_spread = point.time.spread / point.time.median;
    if (second.spread / second.median < first_spread) point.time = second;
  }
  return point;
}

Sample measure_wake_up(std::int64_t samples) {
  const Clock::time_point epoch = Clock::now();
  Grid grid;
  grid.degree[std::size_t(Axis::pp)] = 2;
  auto communicators = make_local_communicators(grid, kDeadline, epoch);
  std::barrier<> together(2);
  std::vector<Seconds> delays;
  run_ranks(communicators, together, [&](Communicator& communicator, std::int64_t rank) {
    float value = 0;
    for (std::int64_t i = -1; i < samples; ++i) {
      together.arrive_and_wait();
      const Clock::time_point began = Clock::now();
      // The sender is busy for longer than the receiver stays awake.
      while (rank == 0 && Clock::now() - began < 3 * kPollsBeforeSleep) {
      }
      const CommunicationTimes times =
          communicator.wait(post_bench(communicator, OpKind::send, rank, {&value, 1}));
      const Picoseconds returned = time_since(epoch);
      if (rank == 1 && i >= 0) delays.push_back((returned - times.end).seconds());
    }
  });
  return summarize(delays);
}

}  // namespace plimsoll
