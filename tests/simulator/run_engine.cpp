// Lays out ops as queues, or as the ops of cores, and runs them.
#include "tests/simulator/run_engine.h"

#include <algorithm>

#include "simulator/engine/core_ops.h"
#include "simulator/engine/process_engine.h"
#include "simulator/engine/stream_engine.h"
#include "simulator/engine/thread_engine.h"

namespace plimsoll {
namespace {

EngineResult run_streams(std::span<const std::vector<TimedOp>> ranks,
                         std::span<const Picoseconds> starts) {
  StreamEngine engine;
  std::vector<std::vector<StreamEngine::Event>> events;
  for (const std::vector<TimedOp>& ops : ranks) {
    std::vector<std::uint32_t> queues;
    for (const TimedOp& op : ops) {
      while (queues.size() <= op.stream) queues.push_back(std::uint32_t(queues.size()));
    }
    engine.add_rank(std::move(queues));
    std::vector<StreamEngine::Event>& own = events.emplace_back();
    std::vector<StreamEngine::Event> waits;
    const auto events_of = [&](const std::vector<std::uint32_t>& awaited) {
      waits.clear();
      for (std::uint32_t op : awaited) waits.push_back(own[op]);
      return std::span<const StreamEngine::Event>(waits);
    };
    for (const TimedOp& op : ops) {
      if (!op.host_waits.empty()) {
        engine.add_host_wait(op.host_wait, events_of(op.host_waits));
      }
      own.push_back(engine.add_op({op.stream, op.dispatch, op.duration, op.rendezvous, op.link_use},
                                  events_of(op.waits)));
    }
  }
  const StreamEngine::Result& run = engine.run(starts);
  EngineResult result;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    std::vector<OpTimes>& times = result.times.emplace_back();
    for (const StreamEngine::Event event : events[rank]) {
      times.push_back({run.posted[event], run.begin[event], run.fired[event]});
    }
  }
  result.host_end = run.host_end;
  result.rank_end = run.rank_end;
  return result;
}

}  // namespace

EngineResult run_engine(std::span<const std::vector<TimedOp>> ranks, Execution execution,
                        std::span<const Picoseconds> starts, const WakeUpCost& wake_up,
                        std::span<const MutualSlowdown> slowdowns) {
  const std::vector<Picoseconds> zero(ranks.size());
  if (starts.empty()) starts = zero;
  if (execution == Execution::streams) return run_streams(ranks, starts);
  const CoreOps ops(ranks, wake_up, slowdowns);
  return execution == Execution::threads ? run_threads(ops, starts) : run_processes(ops, starts);
}

}  // namespace plimsoll
