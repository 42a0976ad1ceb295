// The local communicator: ranks are threads of one process. The last rank to arrive does the work
// on its own thread, outside the lock.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "runtime/comm/exchange.h"
#include "runtime/comm/pause.h"
#include "runtime/communicator.h"

namespace plimsoll {
namespace {

using Clock = std::chrono::steady_clock;

/// The state that the ranks share. One lock guards the bookkeeping; data moves outside it.
struct Hub {
  Hub(const Grid& ranks, std::chrono::milliseconds longest_wait, Clock::time_point start)
      : grid(ranks),
        deadline(longest_wait),
        epoch(start),
        core_each(ranks.world_size() <= available_cores()),
        woken(std::size_t(ranks.world_size())),
        shared_posts(woken.size() * woken.size(), 0) {}

  const Grid grid;
  const std::chrono::milliseconds deadline;
  const Clock::time_point epoch;
  const bool core_each;  ///< no rank needs the core that another waits on

  std::mutex lock;
  std::vector<std::condition_variable> woken;                ///< by rank
  std::condition_variable idle;                              ///< nobody moves data
  std::map<std::vector<std::int64_t>, Channel> collectives;  ///< by members
  /// By sender, receiver and whether data goes to an earlier stage: two stages that are each
  /// other's next send both activations and gradients to each other.
  std::map<std::tuple<std::int64_t, std::int64_t, bool>, Channel> transfers;
  std::vector<std::uint64_t>
      shared_posts;  ///< [rank * world + other]: collectives of both posted by rank
  int moving = 0;    ///< exchanges whose data is being moved
  bool failed = false;
  std::string reason;

  std::uint64_t& shared(std::int64_t rank, std::int64_t other) {
    return shared_posts[std::size_t(rank) * woken.size() + std::size_t(other)];
  }
  Picoseconds now() const {
    const auto elapsed = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - epoch);
    return Picoseconds(std::int64_t{elapsed.count()} * 1000);
  }
};

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<Hub> hub, std::int64_t rank, RankDevice* device)
      : hub_(std::move(hub)), rank_(rank), device_(device) {
    ready_.reserve(16);
  }

  std::string_view name() const override { return "local"; }

  Ticket post_collective(OpKind kind, const CollectiveParams& params,
                         const CollectiveOperand& operand,
                         const CommunicationLabel& label) override {
    Seat& seat = collective_seat(params.group);
    const auto members = std::int64_t(seat.channel->members.size());
    const bool parts = kind == OpKind::reduce_scatter || kind == OpKind::all_gather;
    INVARIANT(!parts || operand.elements % members == 0,
              "the operand does not divide into one part per member");
    INVARIANT(params.root >= 0 && params.root < members, "the root is not in the group");
    MemberData data{operand.whole, operand.part};
    if (data.part == nullptr) {
      const std::int64_t before = operand.elements / members * std::int64_t(seat.member);
      data.part = operand.whole + (bytes_of(operand.dtype) * before).count();
    }
    return post(seat, {kind, params, operand.dtype, operand.elements, Bytes(0)}, data, label);
  }

  Ticket post_send(std::int64_t stage_offset, Bytes size, const std::byte* data,
                   const CommunicationLabel& label) override {
    Seat seat = transfer_seat(rank_, peer(stage_offset), stage_offset < 0, 0);
    // The exchange stores one kind of pointer; the sender's is only read.
    return post(seat, {OpKind::send, {}, DType::f32, 0, size}, {const_cast<std::byte*>(data)},
                label);
  }

  Ticket post_recv(std::int64_t stage_offset, Bytes size, std::byte* data,
                   const CommunicationLabel& label) override {
    Seat seat = transfer_seat(peer(stage_offset), rank_, stage_offset > 0, 1);
    return post(seat, {OpKind::recv, {}, DType::f32, 0, size}, {data}, label);
  }

  CommunicationTimes wait(Ticket ticket) override;
  void abort(const std::string& reason) override {
    std::unique_lock guard(hub_->lock);
    fail(guard, reason);
  }

 private:
  /// This rank's place in a channel.
  struct Seat {
    Group group;
    Channel* channel = nullptr;
    std::size_t member = 0;
  };
  /// A ticket not yet waited for: its number is (generation, index + 1).
  struct Pending {
    Exchange* exchange = nullptr;
    std::size_t member = 0;
    Picoseconds posted;
    std::uint32_t generation = 0;
  };

  std::int64_t peer(std::int64_t stage_offset) const {
    return pipeline_peer(hub_->grid, rank_, stage_offset);
  }

  Seat& collective_seat(const Group& group);
  Seat transfer_seat(std::int64_t sender, std::int64_t receiver, bool backward, std::size_t member);
  Ticket post(Seat& seat, const Request& request, const MemberData& data,
              const CommunicationLabel& label);
  void join(std::unique_lock<std::mutex>& guard, Exchange& exchange, std::size_t member);
  void arrive(std::unique_lock<std::mutex>& guard, Exchange& exchange);
  void run_ready(std::unique_lock<std::mutex>& guard);
  void move(std::unique_lock<std::mutex>& guard, const Exchange& exchange);
  void look_for(const Exchange& exchange, Clock::time_point began) const;
  Exchange* exchange_of(Ticket ticket);
  Ticket seat_pending(Exchange& exchange, std::size_t member, Picoseconds posted);
  std::string late(const Exchange& exchange, std::size_t member) const;

  void fail(std::unique_lock<std::mutex>& guard, const std::string& reason);
  /// After a failure: returns when no thread can touch this rank's memory any more.
  void drain(std::unique_lock<std::mutex>& guard) {
    hub_->idle.wait(guard, [&] { return hub_->moving == 0; });
  }
  void throw_if_failed(std::unique_lock<std::mutex>& guard) {
    if (!hub_->failed) return;
    drain(guard);
    throw RankFailure(hub_->reason);
  }

  std::shared_ptr<Hub> hub_;
  const std::int64_t rank_;
  RankDevice* const device_;      ///< of this rank; null: operands are host memory
  std::vector<Seat> seats_;       ///< of collectives, found once per group
  std::vector<Pending> pending_;  ///< by ticket index; this thread only
  std::vector<std::uint32_t> free_;
  std::vector<Exchange*> ready_;  ///< all arrived, to be performed by this thread
};

LocalCommunicator::Seat& LocalCommunicator::collective_seat(const Group& group) {
  for (Seat& seat : seats_) {
    if (seat.group == group) return seat;
  }
  auto ranks = members(hub_->grid, group, rank_);
  const auto mine = std::find(ranks.begin(), ranks.end(), rank_);
  INVARIANT(mine != ranks.end(), "a collective over a group that this rank is not in");
  const auto member = std::size_t(mine - ranks.begin());
  std::unique_lock guard(hub_->lock);
  Channel& channel = hub_->collectives.try_emplace(ranks, ranks).first->second;
  seats_.push_back({group, &channel, member});
  return seats_.back();
}

LocalCommunicator::Seat LocalCommunicator::transfer_seat(std::int64_t sender, std::int64_t receiver,
                                                         bool backward, std::size_t member) {
  std::unique_lock guard(hub_->lock);
  const auto found = hub_->transfers.find({sender, receiver, backward});
  if (found != hub_->transfers.end()) return {{}, &found->second, member};
  std::vector<std::int64_t> ends{sender, receiver};
  auto& channel =
      hub_->transfers.try_emplace({sender, receiver, backward}, std::move(ends)).first->second;
  return {{}, &channel, member};
}

Communicator::Ticket LocalCommunicator::post(Seat& seat, const Request& request,
                                             const MemberData& data,
                                             const CommunicationLabel& label) {
  // The work that computes the operand, and the work that still uses the memory that it goes to.
  if (device_ != nullptr) device_->finish(hub_->deadline, "the kernels before " + to_text(request));
  const Picoseconds posted = hub_->now();
  std::unique_lock guard(hub_->lock);
  throw_if_failed(guard);
  Channel& channel = *seat.channel;
  Exchange& exchange = channel.next(seat.member);
  auto& mine = exchange.participants[seat.member];
  mine.request = request;
  mine.data = data;
  mine.step = label.step;
  mine.routine = label.routine;
  join(guard, exchange, seat.member);
  mine.posted = true;
  if (++exchange.posted == channel.members.size()) channel.close_first();
  const Ticket ticket = seat_pending(exchange, seat.member, posted);

  Exchange* before = exchange_of(label.after);
  if (before != nullptr && !before->done.load(std::memory_order_acquire)) {
    before->held.push_back(&exchange);
  } else {
    arrive(guard, exchange);
  }
  return ticket;
}

// Compares with the members that posted earlier: same communication, in the same order among all
// collectives that two ranks share.
void LocalCommunicator::join(std::unique_lock<std::mutex>& guard, Exchange& exchange,
                             std::size_t member) {
  auto& mine = exchange.participants[member];
  const auto& ranks = exchange.channel->members;
  const bool collective = mine.request.kind != OpKind::send && mine.request.kind != OpKind::recv;
  for (std::size_t other = 0; other < ranks.size(); ++other) {
    if (other == member) continue;
    auto& theirs = exchange.participants[other];
    if (collective) mine.shared_before[other] = hub_->shared(rank_, ranks[other])++;
    if (!theirs.posted) continue;
    const auto refuse = [&](const std::string& difference) {
      const std::string message = fmt::format(
          "communication mismatch: rank {} in step {}, routine {} posted {}; rank {} in step {}, "
          "routine {} posted {}{}",
          rank_, mine.step + 1, mine.routine, to_text(mine.request), ranks[other], theirs.step + 1,
          theirs.routine, to_text(theirs.request), difference);
      fail(guard, message);
      throw std::runtime_error(message);
    };
    if (!agree(mine.request, theirs.request)) refuse("");
    if (collective && mine.shared_before[other] != theirs.shared_before[member]) {
      refuse(fmt::format(", but as collective {} and {} of those the two share",
                         mine.shared_before[other] + 1, theirs.shared_before[member] + 1));
    }
  }
}

void LocalCommunicator::arrive(std::unique_lock<std::mutex>& guard, Exchange& exchange) {
  if (++exchange.arrived < exchange.participants.size()) return;
  ready_.push_back(&exchange);
  run_ready(guard);
}

void LocalCommunicator::run_ready(std::unique_lock<std::mutex>& guard) {
  while (!ready_.empty()) {
    Exchange& exchange = *ready_.back();
    ready_.pop_back();
    if (hub_->failed) continue;
    exchange.begin = hub_->now();
    ++hub_->moving;
    guard.unlock();
    move(guard, exchange);
    const Picoseconds end = hub_->now();
    guard.lock();
    exchange.end = end;
    exchange.done.store(true, std::memory_order_release);
    if (--hub_->moving == 0) hub_->idle.notify_all();
    for (Exchange* held : exchange.held) {
      if (++held->arrived == held->participants.size()) ready_.push_back(held);
    }
    exchange.held.clear();
    for (const std::int64_t rank : exchange.channel->members) {
      if (rank != rank_) hub_->woken[std::size_t(rank)].notify_one();
    }
  }
}

/// Called without the lock. Host memory cannot fail; a device can.
void LocalCommunicator::move(std::unique_lock<std::mutex>& guard, const Exchange& exchange) {
  try {
    perform(exchange, device_);
    if (device_ != nullptr) {
      device_->finish(hub_->deadline, to_text(exchange.participants[0].request));
    }
  } catch (const std::exception& error) {
    guard.lock();
    if (--hub_->moving == 0) hub_->idle.notify_all();
    fail(guard, error.what());
    throw;
  }
}

Communicator::Ticket LocalCommunicator::seat_pending(Exchange& exchange, std::size_t member,
                                                     Picoseconds posted) {
  if (free_.empty()) {
    free_.push_back(std::uint32_t(pending_.size()));
    pending_.emplace_back();
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  Pending& slot = pending_[index];
  slot.exchange = &exchange;
  slot.member = member;
  slot.posted = posted;
  ++slot.generation;
  return (Ticket(slot.generation) << 32) | (index + 1);
}

Exchange* LocalCommunicator::exchange_of(Ticket ticket) {
  const std::uint64_t index = ticket & 0xffff'ffff;
  if (index == 0 || index > pending_.size()) return nullptr;
  const Pending& slot = pending_[index - 1];
  return slot.generation == ticket >> 32 ? slot.exchange : nullptr;
}

// Most waits are short, and sleeping costs more than they last.
void LocalCommunicator::look_for(const Exchange& exchange, Clock::time_point began) const {
  const auto done = [&] { return exchange.done.load(std::memory_order_acquire); };
  // Where ranks outnumber cores, the one that is waited for may need this core.
  constexpr int kYields = 32, kPauses = 64;
  for (int look = 0; look < kYields && !hub_->core_each && !done(); ++look) {
    std::this_thread::yield();
  }
  while (hub_->core_each && !done() && Clock::now() - began < kLooksBeforeSleep) {
    for (int pause = 0; pause < kPauses && !done(); ++pause) pause_core();
  }
}

CommunicationTimes LocalCommunicator::wait(Ticket ticket) {
  Exchange* exchange = exchange_of(ticket);
  INVARIANT(exchange != nullptr, "a ticket is waited for once, by the rank that posted");
  const std::uint32_t index = std::uint32_t(ticket & 0xffff'ffff) - 1;
  const Clock::time_point began = Clock::now();
  const Clock::time_point until = began + hub_->deadline;
  look_for(*exchange, began);
  std::unique_lock guard(hub_->lock);
  const auto over = [&] { return exchange->done.load(std::memory_order_acquire) || hub_->failed; };
  const bool in_time = hub_->woken[std::size_t(rank_)].wait_until(guard, until, over);
  if (!exchange->done.load(std::memory_order_acquire)) {
    if (in_time) throw_if_failed(guard);
    const std::string message = late(*exchange, pending_[index].member);
    fail(guard, message);
    throw EnvironmentError(message);
  }
  const CommunicationTimes times{pending_[index].posted, exchange->begin, exchange->end};
  if (--exchange->to_wait == 0) exchange->channel->recycle(*exchange);
  pending_[index].exchange = nullptr;
  free_.push_back(index);
  return times;
}

// Called under the lock: who keeps this rank waiting.
std::string LocalCommunicator::late(const Exchange& exchange, std::size_t member) const {
  const auto& mine = exchange.participants[member];
  const auto& ranks = exchange.channel->members;
  std::string who;
  for (std::size_t other = 0; other < ranks.size(); ++other) {
    if (exchange.participants[other].posted) continue;
    who += fmt::format("{}{}", who.empty() ? "rank " : ", rank ", ranks[other]);
  }
  const std::string why = !who.empty() ? who + " has not posted it"
                          : exchange.arrived < ranks.size()
                              ? "a member's stream is held by an earlier communication"
                              : "its data is still being moved";
  const double seconds = std::chrono::duration<double>(hub_->deadline).count();
  return fmt::format(
      "rank {} waited longer than the deadline of {} s in step {}, routine {}, for {}: {}", rank_,
      seconds, mine.step + 1, mine.routine, to_text(mine.request), why);
}

void LocalCommunicator::fail(std::unique_lock<std::mutex>& guard, const std::string& reason) {
  if (!hub_->failed) {
    hub_->failed = true;
    hub_->reason = reason;
    for (auto& waiters : hub_->woken) waiters.notify_all();
  }
  drain(guard);
}

}  // namespace

std::int64_t available_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return std::max(1u, std::thread::hardware_concurrency());
}

std::vector<std::unique_ptr<Communicator>> make_local_communicators(
    const Grid& grid, std::chrono::milliseconds deadline, Clock::time_point epoch,
    std::span<RankDevice* const> devices) {
  auto hub = std::make_shared<Hub>(grid, deadline, epoch);
  std::vector<std::unique_ptr<Communicator>> handles;
  for (std::int64_t rank = 0; rank < grid.world_size(); ++rank) {
    RankDevice* const device = devices.empty() ? nullptr : devices[std::size_t(rank)];
    handles.push_back(std::make_unique<LocalCommunicator>(hub, rank, device));
  }
  return handles;
}

}  // namespace plimsoll
