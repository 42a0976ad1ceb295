// Lays out the ops of ranks on CPU cores, and collects the results of their runs.
#include "simulator/engine/core_ops.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/error.h"

namespace plimsoll {
namespace {

/// Joins what several participants say of one rendezvous.
void take_slowest(MutualSlowdown& slowest, const MutualSlowdown& other) {
  for (std::size_t work = 0; work < kLocalWorks; ++work) {
    slowest.communication[work] = std::min(slowest.communication[work], other.communication[work]);
    slowest.compute[work] = std::min(slowest.compute[work], other.compute[work]);
  }
  slowest.latency = std::max(slowest.latency, other.latency);
}

}  // namespace

/// Facts that are known only while ops are laid out.
struct CoreOps::Layout {
  std::unordered_map<std::uint64_t, std::uint32_t> index_of;  // by number; looked up only
  std::vector<std::uint32_t> last_rendezvous;                 // by stream
};

CoreOps::CoreOps(std::span<const std::vector<TimedOp>> ranks, const WakeUpCost& cost,
                 std::span<const MutualSlowdown> slowdowns)
    : wake_up(cost) {
  std::size_t count = 0;
  for (const std::vector<TimedOp>& timed_ops : ranks) count += timed_ops.size();
  INVARIANT(count < kNone, "too many ops for one simulation");
  ops.reserve(count);
  first_op.push_back(0);
  Layout layout;
  for (const std::vector<TimedOp>& timed_ops : ranks) add_rank(timed_ops, slowdowns, layout);
}

void CoreOps::add_rank(const std::vector<TimedOp>& timed_ops,
                       std::span<const MutualSlowdown> slowdowns, Layout& layout) {
  const std::uint32_t base = first_op.back();
  const auto rank = std::uint32_t(first_op.size() - 1);
  layout.last_rendezvous.assign(layout.last_rendezvous.size(), kNone);
  for (std::uint32_t i = 0; i < timed_ops.size(); ++i) {
    const TimedOp& timed = timed_ops[i];
    INVARIANT(timed.dispatch.count() > 0, "the dispatch time of an op must be positive");
    Op op;
    op.dispatch = timed.dispatch;
    op.duration = timed.duration;
    op.rank = rank;
    op.work = timed.work;
    op.first_wait = std::uint32_t(waits.size());
    for (std::uint32_t wait : timed.waits) {
      INVARIANT(wait < i, "an op waits for a later one");
      waits.push_back(base + wait);
    }
    op.last_wait = std::uint32_t(waits.size());
    if (timed.rendezvous) {
      op.rendezvous = add_to_rendezvous(timed, slowdowns, op, layout);
      if (timed.stream >= layout.last_rendezvous.size()) {
        layout.last_rendezvous.resize(timed.stream + 1, kNone);
      }
      op.before = std::exchange(layout.last_rendezvous[timed.stream], base + i);
      if (op.before != kNone) ops[op.before].after = base + i;
    }
    ops.push_back(op);
  }
  first_op.push_back(std::uint32_t(ops.size()));
}

/// Returns the index of the op's rendezvous.
std::uint32_t CoreOps::add_to_rendezvous(const TimedOp& timed,
                                         std::span<const MutualSlowdown> slowdowns, Op& op,
                                         Layout& layout) {
  const auto [at, added] =
      layout.index_of.try_emplace(*timed.rendezvous, std::uint32_t(rendezvous.size()));
  if (added) rendezvous.emplace_back();
  Rendezvous& joined = rendezvous[at->second];
  ++joined.participants;
  joined.duration = std::max(joined.duration, timed.duration);
  if (slowdowns.empty()) return at->second;
  const MutualSlowdown& slowdown = slowdowns[timed.slowdown];
  take_slowest(joined.slowdown, slowdown);
  op.sends = slowdown.sends;
  op.receives = slowdown.receives;
  return at->second;
}

CoreRun::CoreRun(const CoreOps& ops, std::span<const Picoseconds> starts)
    : ops_(ops),
      times_(ops.ops.size()),
      states_(ops.ops.size()),
      waiter_(ops.ops.size(), kNone),
      hosts_(ops.ranks()) {
  INVARIANT(starts.size() == ops.ranks(), "one start per rank");
  for (std::uint32_t rank = 0; rank < hosts_.size(); ++rank) {
    hosts_[rank].next_op = ops.first_op[rank];
    hosts_[rank].clock = starts[rank];
  }
}

bool CoreRun::wait_for_all(std::uint32_t rank, const CoreOps::Op& op) {
  Host& host = hosts_[rank];
  for (; op.first_wait + host.waits_done < op.last_wait; ++host.waits_done) {
    const std::uint32_t awaited = ops_.waits[op.first_wait + host.waits_done];
    if (!has_ended(awaited)) {
      host.next_waiter = waiter_[awaited];
      waiter_[awaited] = rank;
      return false;
    }
    const Picoseconds end = times_[awaited].end;
    if (end <= host.clock) continue;
    const bool slept = end - host.clock >= ops_.wake_up.after;
    host.clock = slept ? end + ops_.wake_up.delay : end;
  }
  return true;
}

void CoreRun::finish(std::uint32_t op, Picoseconds end, std::vector<std::uint32_t>& free) {
  times_[op].end = end;
  states_[op] = State::ended;
  for (std::uint32_t rank = waiter_[op]; rank != kNone; rank = hosts_[rank].next_waiter)
    free.push_back(rank);
  waiter_[op] = kNone;
}

EngineResult CoreRun::result() const {
  EngineResult result;
  for (std::size_t rank = 0; rank < hosts_.size(); ++rank) {
    const std::uint32_t first = ops_.first_op[rank], last = ops_.first_op[rank + 1];
    const Host& host = hosts_[rank];
    INVARIANT(host.next_op == last, "rank " + std::to_string(rank) + " never gets past its op " +
                                        std::to_string(host.next_op - first));
    result.host_end.push_back(host.clock);
    result.times.emplace_back(times_.begin() + first, times_.begin() + last);
    Picoseconds end = host.clock;
    for (std::uint32_t op = first; op < last; ++op) {
      INVARIANT(has_ended(op), "a rendezvous of rank " + std::to_string(rank) + " never completes");
      end = std::max(end, times_[op].end);
    }
    result.rank_end.push_back(end);
  }
  return result;
}

}  // namespace plimsoll
