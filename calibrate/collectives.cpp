// Ranks as threads that post the same communication again and again.
#include "calibrate/collectives.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <vector>

#include "base/error.h"
#include "calibrate/crew.h"
#include "calibrate/statistics.h"
#include "runtime/communicator.h"

namespace plimsoll {
namespace {

constexpr std::chrono::milliseconds kDeadline{60'000};
constexpr std::int64_t kMostSets = 64;

Grid grid_for(OpKind kind, std::int64_t ranks) {
  Grid grid;
  grid.degree[std::size_t(kind == OpKind::send ? Axis::pp : Axis::dp)] = ranks;
  return grid;
}

Communicator::Ticket post(Communicator& communicator, OpKind kind, std::int64_t rank, Bytes payload,
                          std::byte* data) {
  const CommunicationLabel label{0, "calibrate", 0};
  if (kind == OpKind::send) {
    return rank == 0 ? communicator.post_send(1, payload, data, label)
                     : communicator.post_recv(-1, payload, data, label);
  }
  const std::int64_t elements = payload.count() / bytes_of(DType::f32).count();
  return communicator.post_collective(kind, Group{{Axis::dp}, false}, Reduction::sum, DType::f32,
                                      elements, data, label);
}

std::vector<Seconds> timings_of(OpKind kind, std::int64_t ranks, Bytes payload, Bytes footprint,
                                std::int64_t samples) {
  const auto communicators =
      make_local_communicators(grid_for(kind, ranks), kDeadline, std::chrono::steady_clock::now());
  const std::int64_t room = footprint.count() / payload.count();
  const std::int64_t sets = std::clamp(room, std::int64_t{1}, kMostSets);
  std::barrier<> together(ranks);
  std::vector<Seconds> timings;
  run_together(ranks, [&](std::int64_t rank) {
    Communicator& communicator = *communicators[std::size_t(rank)];
    try {
      const Pool pool(payload * sets);
      const std::int64_t floats = payload.count() / std::int64_t(sizeof(float));
      for (std::int64_t i = -2; i < samples; ++i) {  // two for warm-up
        std::byte* data = pool.memory().data() + (i + 2) % sets * payload.count();
        std::fill_n(reinterpret_cast<float*>(data), floats, 0.5f);
        together.arrive_and_wait();
        const CommunicationTimes times =
            communicator.wait(post(communicator, kind, rank, payload, data));
        if (rank == 0 && i >= 0) timings.push_back((times.end - times.begin).seconds());
      }
    } catch (const std::exception& error) {
      communicator.abort(error.what());
      together.arrive_and_drop();
      throw;
    }
  });
  return timings;
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
  point.time = summarize(timings_of(kind, ranks, payload, footprint, samples));
  if (point.time.unsteady) {
    const Sample second = summarize(timings_of(kind, ranks, payload, footprint, samples));
    const double first_spread = point.time.spread / point.time.median;
    if (second.spread / second.median < first_spread) point.time = second;
  }
  return point;
}

}  // namespace plimsoll
