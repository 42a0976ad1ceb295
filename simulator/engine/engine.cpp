#include "simulator/engine/engine.h"

#include <algorithm>

#include "simulator/engine/host_engine.h"
#include "simulator/engine/process_run.h"
#include "simulator/engine/stream_engine.h"

namespace plimsoll {
namespace {

EngineResult run_streams(std::span<const std::vector<Item>> ranks,
                         std::span<const Picoseconds> starts) {
  StreamEngine engine;
  std::vector<std::vector<StreamEngine::Event>> events;
  for (const std::vector<Item>& items : ranks) {
    std::vector<std::uint32_t> lanes;
    for (const Item& item : items) {
      while (lanes.size() <= item.stream) lanes.push_back(std::uint32_t(lanes.size()));
    }
    engine.add_rank(std::move(lanes));
    std::vector<StreamEngine::Event>& own = events.emplace_back();
    std::vector<StreamEngine::Event> waits;
    const auto events_of = [&](const std::vector<std::uint32_t>& awaited) {
      waits.clear();
      for (std::uint32_t item : awaited) waits.push_back(own[item]);
      return std::span<const StreamEngine::Event>(waits);
    };
    for (const Item& item : items) {
      if (!item.host_waits.empty()) {
        engine.add_host_wait(item.host_wait, events_of(item.host_waits));
      }
      own.push_back(
          engine.add_op({item.stream, item.dispatch, item.duration, item.rendezvous, item.link_use},
                        events_of(item.waits)));
    }
  }
  const StreamEngine::Result& run = engine.run(starts);
  EngineResult result;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    std::vector<ItemTimes>& times = result.times.emplace_back();
    for (const StreamEngine::Event event : events[rank]) {
      times.push_back({run.posted[event], run.begin[event], run.fired[event]});
    }
  }
  result.host_end = run.host_end;
  result.rank_end = run.rank_end;
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
