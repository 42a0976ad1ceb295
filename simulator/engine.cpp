#include "simulator/engine.h"

#include <algorithm>

#include "simulator/host_engine.h"
#include "simulator/process_run.h"
#include "simulator/stream_engine.h"

namespace plimsoll {
namespace {

EngineResult run_streams(std::span<const std::vector<Item>> ranks,
                         std::span<const Picoseconds> starts) {
  StreamEngine engine;
  std::vector<StreamEngine::Event> first_event = {0};
  for (const std::vector<Item>& items : ranks) {
    std::vector<std::uint32_t> lanes;
    for (const Item& item : items) {
      while (lanes.size() <= item.stream) lanes.push_back(std::uint32_t(lanes.size()));
    }
    engine.add_rank(std::move(lanes));
    StreamEngine::Event next = first_event.back();
    for (const Item& item : items) {
      std::vector<StreamEngine::Event> waits;
      for (std::uint32_t wait : item.waits) waits.push_back(first_event.back() + wait);
      next = 1 + engine.add_op({item.stream, item.dispatch, item.duration, item.rendezvous}, waits);
    }
    first_event.push_back(next);
  }
  StreamEngine::Result run = engine.run(starts);
  EngineResult result;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    std::vector<ItemTimes>& times = result.times.emplace_back();
    for (auto event = first_event[rank]; event < first_event[rank + 1]; ++event) {
      times.push_back({run.posted[event], run.begin[event], run.fired[event]});
    }
  }
  result.host_end = std::move(run.host_end);
  result.rank_end = std::move(run.rank_end);
  return result;
}

}  // namespace

EngineResult run_engine(std::span<const std::vector<Item>> ranks, Execution execution,
                        std::span<const Picoseconds> starts, const Waking& waking,
                        std::span<const Beside> besides) {
  const std::vector<Picoseconds> zero(ranks.size());
  if (starts.empty()) starts = zero;
  if (execution == Execution::streams) return run_streams(ranks, starts);
  const HostEngine engine(ranks, waking, besides);
  return execution == Execution::host ? engine.run(starts) : run_processes(engine, starts);
}

}  // namespace plimsoll
