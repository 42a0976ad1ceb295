// The local communicator: ranks are threads of one process. The last rank to arrive moves the data
// on its own thread, outside the lock.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "runtime/backend.h"
#include "runtime/comm/rank_status.h"
#include "runtime/comm/rendezvous.h"
#include "runtime/comm/waited.h"
#include "runtime/communicator.h"

namespace plimsoll {
namespace {

using Clock = std::chrono::steady_clock;

/// The status of a rank, for messages when something stops.
struct LastPosts {
  struct Post {
    std::int64_t step = 0;
    const char* routine = "";
    Request request;
  };
  std::int64_t posts = 0;             ///< so far
  std::array<Post, kKeptPosts> kept;  ///< each where its number modulo kKeptPosts is
  bool waits = false;                 ///< for any of its posts
};

/// The state that the ranks share. One lock guards the bookkeeping; data moves outside it.
struct SharedState {
  SharedState(const Grid& ranks, std::chrono::milliseconds longest_wait, Clock::time_point start)
      : grid(ranks),
        deadline(longest_wait),
        epoch(start),
        core_each(ranks.world_size() <= available_cores()),
        woken(std::size_t(ranks.world_size())),
        last(woken.size()),
        shared_posts(woken.size() * woken.size(), 0) {}

  const Grid grid;
  const std::chrono::milliseconds deadline;
  const Clock::time_point epoch;
  const bool core_each;  ///< no rank needs the core that another waits on

  std::mutex lock;
  std::vector<std::condition_variable> woken;                ///< by rank
  std::vector<LastPosts> last;                               ///< by rank
  std::condition_variable idle;                              ///< nobody moves data
  std::map<std::vector<std::int64_t>, Channel> collectives;  ///< by members
  /// Channels of transfers by sender, receiver and whether data goes to an earlier stage. Two
  /// stages that are each other's next send both activations and gradients to each other.
  std::map<std::tuple<std::int64_t, std::int64_t, bool>, Channel> transfers;
  std::vector<std::uint64_t>
      shared_posts;  ///< [rank * world + other]: collectives of both posted by rank
  int moving = 0;    ///< rendezvous whose data is being moved
  bool failed = false;
  std::string reason;

  std::uint64_t& posts_with(std::int64_t rank, std::int64_t other) {
    return shared_posts[std::size_t(rank) * woken.size() + std::size_t(other)];
  }
  Picoseconds now() const {
    const auto elapsed = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - epoch);
    return Picoseconds(std::int64_t{elapsed.count()} * 1000);
  }
};

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<SharedState> shared, std::int64_t rank, RankDevice* device)
      : shared_(std::move(shared)), rank_(rank), device_(device) {
    ready_.reserve(16);
  }

  std::string_view name() const override { return "local"; }

  Ticket post_collective(OpKind kind, const CollectiveParams& params,
                         const CollectiveOperand& operand,
                         const CommunicationLabel& label) override {
    Membership& membership = collective_member(params.group);
    const auto members = std::int64_t(membership.channel->members.size());
    const bool parts =
        kind == OpKind::reduce_scatter || kind == OpKind::all_gather || kind == OpKind::all_to_all;
    INVARIANT(!parts || operand.elements % members == 0,
              "the operand does not divide into one part per member");
    INVARIANT(params.root >= 0 && params.root < members, "the root is not in the group");
    MemberData data{operand.whole, operand.part, operand.rows};
    if (data.part == nullptr) {
      const std::int64_t before = operand.elements / members * std::int64_t(membership.member);
      data.part = operand.whole + (bytes_of(operand.dtype) * before).count();
    }
    return post(membership, {kind, params, operand.dtype, operand.elements, Bytes(0)}, data, label);
  }

  Ticket post_send(std::int64_t stage_offset, Bytes size, const std::byte* data,
                   const CommunicationLabel& label) override {
    Membership membership = transfer_member(rank_, peer(stage_offset), stage_offset < 0, 0);
    // The rendezvous stores one kind of pointer; the sender's is only read.
    return post(membership, {OpKind::send, {}, DType::f32, 0, size}, {const_cast<std::byte*>(data)},
                label);
  }

  Ticket post_recv(std::int64_t stage_offset, Bytes size, std::byte* data,
                   const CommunicationLabel& label) override {
    Membership membership = transfer_member(peer(stage_offset), rank_, stage_offset > 0, 1);
    return post(membership, {OpKind::recv, {}, DType::f32, 0, size}, {data}, label);
  }

  CommunicationTimes wait(Ticket ticket) override;
  void abort(const std::string& reason) override {
    std::unique_lock guard(shared_->lock);
    fail(guard, reason);
  }

 private:
  /// This rank as a member of a channel.
  struct Membership {
    Group group;
    Channel* channel = nullptr;
    std::size_t member = 0;
  };
  /// A ticket not yet waited for: its number is (generation, index + 1).
  struct Pending {
    Rendezvous* rendezvous = nullptr;
    std::size_t member = 0;
    Picoseconds posted;
    std::uint32_t generation = 0;
  };

  std::int64_t peer(std::int64_t stage_offset) const {
    return pipeline_peer(shared_->grid, rank_, stage_offset);
  }

  Membership& collective_member(const Group& group);
  Membership transfer_member(std::int64_t sender, std::int64_t receiver, bool backward,
                             std::size_t member);
  Ticket post(Membership& membership, const Request& request, const MemberData& data,
              const CommunicationLabel& label);
  void join(std::unique_lock<std::mutex>& guard, Rendezvous& rendezvous, std::size_t member);
  void arrive(std::unique_lock<std::mutex>& guard, Rendezvous& rendezvous);
  void run_ready(std::unique_lock<std::mutex>& guard);
  void move(std::unique_lock<std::mutex>& guard, const Rendezvous& rendezvous);
  void look_for(const Rendezvous& rendezvous) const;
  Rendezvous* rendezvous_of(Ticket ticket);
  Ticket add_pending(Rendezvous& rendezvous, std::size_t member, Picoseconds posted);
  std::string late(const Rendezvous& rendezvous, std::size_t member) const;
  std::vector<RankReport> reports() const;

  void fail(std::unique_lock<std::mutex>& guard, const std::string& reason);
  /// After a failure: returns when no thread can touch this rank's memory any more.
  void drain(std::unique_lock<std::mutex>& guard) {
    shared_->idle.wait(guard, [&] { return shared_->moving == 0; });
  }
  void throw_if_failed(std::unique_lock<std::mutex>& guard) {
    if (!shared_->failed) return;
    drain(guard);
    throw RankFailure(shared_->reason);
  }

  std::shared_ptr<SharedState> shared_;
  const std::int64_t rank_;
  RankDevice* const device_;             ///< of this rank; null: operands are host memory
  std::vector<Membership> memberships_;  ///< of collectives, found once per group
  std::vector<Pending> pending_;         ///< by ticket index; this thread only
  std::vector<std::uint32_t> free_;
  std::vector<Rendezvous*> ready_;  ///< all arrived, to be performed by this thread
};

LocalCommunicator::Membership& LocalCommunicator::collective_member(const Group& group) {
  for (Membership& membership : memberships_) {
    if (membership.group == group) return membership;
  }
  auto ranks = members(shared_->grid, group, rank_);
  const auto mine = std::find(ranks.begin(), ranks.end(), rank_);
  INVARIANT(mine != ranks.end(), "a collective over a group that this rank is not in");
  const auto member = std::size_t(mine - ranks.begin());
  std::unique_lock guard(shared_->lock);
  Channel& channel = shared_->collectives.try_emplace(ranks, ranks).first->second;
  memberships_.push_back({group, &channel, member});
  return memberships_.back();
}

LocalCommunicator::Membership LocalCommunicator::transfer_member(std::int64_t sender,
                                                                 std::int64_t receiver,
                                                                 bool backward,
                                                                 std::size_t member) {
  std::unique_lock guard(shared_->lock);
  const auto found = shared_->transfers.find({sender, receiver, backward});
  if (found != shared_->transfers.end()) return {{}, &found->second, member};
  std::vector<std::int64_t> ends{sender, receiver};
  auto& channel =
      shared_->transfers.try_emplace({sender, receiver, backward}, std::move(ends)).first->second;
  return {{}, &channel, member};
}

Communicator::Ticket LocalCommunicator::post(Membership& membership, const Request& request,
                                             const MemberData& data,
                                             const CommunicationLabel& label) {
  // A post waits for the work that computes the operand, and for work that still uses the memory
  // that it will write.
  if (device_ != nullptr)
    device_->finish(shared_->deadline, "the kernels before " + to_text(request));
  const Picoseconds posted = shared_->now();
  std::unique_lock guard(shared_->lock);
  throw_if_failed(guard);
  Channel& channel = *membership.channel;
  Rendezvous& rendezvous = channel.next(membership.member);
  auto& mine = rendezvous.participants[membership.member];
  mine.request = request;
  mine.data = data;
  mine.step = label.step;
  mine.routine = label.routine;
  LastPosts& last = shared_->last[std::size_t(rank_)];
  mine.post = ++last.posts;
  last.kept[std::size_t(mine.post) % kKeptPosts] = {label.step, label.routine, request};
  last.waits = false;
  join(guard, rendezvous, membership.member);
  mine.posted = true;
  if (++rendezvous.posted == channel.members.size()) channel.close_first();
  const Ticket ticket = add_pending(rendezvous, membership.member, posted);

  Rendezvous* before = rendezvous_of(label.after);
  if (before != nullptr && !before->done.load(std::memory_order_acquire)) {
    before->next.push_back(&rendezvous);
  } else {
    arrive(guard, rendezvous);
  }
  return ticket;
}

// Compares with the members that posted earlier. They must have posted the same communication, at
// the same place among all collectives that two ranks share.
void LocalCommunicator::join(std::unique_lock<std::mutex>& guard, Rendezvous& rendezvous,
                             std::size_t member) {
  auto& mine = rendezvous.participants[member];
  const auto& ranks = rendezvous.channel->members;
  const bool collective = mine.request.kind != OpKind::send && mine.request.kind != OpKind::recv;
  for (std::size_t other = 0; other < ranks.size(); ++other) {
    if (other == member) continue;
    auto& theirs = rendezvous.participants[other];
    if (collective) mine.shared_before[other] = shared_->posts_with(rank_, ranks[other])++;
    if (!theirs.posted) continue;
    const auto refuse = [&](const std::string& difference) {
      const std::string message = fmt::format(
          "communication mismatch: rank {} in {}, routine {} posted {}; rank {} in {}, routine {} "
          "posted {}{}",
          rank_, step_name(mine.step), mine.routine, to_text(mine.request), ranks[other],
          step_name(theirs.step), theirs.routine, to_text(theirs.request), difference);
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

void LocalCommunicator::arrive(std::unique_lock<std::mutex>& guard, Rendezvous& rendezvous) {
  if (++rendezvous.arrived < rendezvous.participants.size()) return;
  ready_.push_back(&rendezvous);
  run_ready(guard);
}

void LocalCommunicator::run_ready(std::unique_lock<std::mutex>& guard) {
  while (!ready_.empty()) {
    Rendezvous& rendezvous = *ready_.back();
    ready_.pop_back();
    if (shared_->failed) continue;
    rendezvous.begin = shared_->now();
    ++shared_->moving;
    guard.unlock();
    move(guard, rendezvous);
    const Picoseconds end = shared_->now();
    guard.lock();
    rendezvous.end = end;
    rendezvous.done.store(true, std::memory_order_release);
    if (--shared_->moving == 0) shared_->idle.notify_all();
    for (Rendezvous* next : rendezvous.next) {
      if (++next->arrived == next->participants.size()) ready_.push_back(next);
    }
    rendezvous.next.clear();
    for (const std::int64_t rank : rendezvous.channel->members) {
      if (rank != rank_) shared_->woken[std::size_t(rank)].notify_one();
    }
  }
}

/// Called without the lock. Host memory cannot fail; a device can.
void LocalCommunicator::move(std::unique_lock<std::mutex>& guard, const Rendezvous& rendezvous) {
  try {
    perform(rendezvous, device_);
    if (device_ != nullptr) {
      device_->finish(shared_->deadline, to_text(rendezvous.participants[0].request));
    }
  } catch (const std::exception& error) {
    guard.lock();
    if (--shared_->moving == 0) shared_->idle.notify_all();
    fail(guard, error.what());
    throw;
  }
}

Communicator::Ticket LocalCommunicator::add_pending(Rendezvous& rendezvous, std::size_t member,
                                                    Picoseconds posted) {
  if (free_.empty()) {
    free_.push_back(std::uint32_t(pending_.size()));
    pending_.emplace_back();
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  Pending& slot = pending_[index];
  slot.rendezvous = &rendezvous;
  slot.member = member;
  slot.posted = posted;
  ++slot.generation;
  return (Ticket(slot.generation) << 32) | (index + 1);
}

Rendezvous* LocalCommunicator::rendezvous_of(Ticket ticket) {
  const std::uint64_t index = ticket & 0xffff'ffff;
  if (index == 0 || index > pending_.size()) return nullptr;
  const Pending& slot = pending_[index - 1];
  return slot.generation == ticket >> 32 ? slot.rendezvous : nullptr;
}

// Most waits are short, and sleeping costs more than they last.
void LocalCommunicator::look_for(const Rendezvous& rendezvous) const {
  const Clock::time_point began = Clock::now();
  const auto done = [&] { return rendezvous.done.load(std::memory_order_acquire); };
  // Where ranks outnumber cores, the awaited rank may need this core.
  constexpr int kYields = 32, kPauses = 64;
  for (int look = 0; look < kYields && !shared_->core_each && !done(); ++look) {
    std::this_thread::yield();
  }
  while (shared_->core_each && !done() && Clock::now() - began < kPollsBeforeSleep) {
    for (int pause = 0; pause < kPauses && !done(); ++pause) pause_core();
  }
}

CommunicationTimes LocalCommunicator::wait(Ticket ticket) {
  Rendezvous* rendezvous = rendezvous_of(ticket);
  INVARIANT(rendezvous != nullptr, "a ticket is waited for once, by the rank that posted");
  const std::uint32_t index = std::uint32_t(ticket & 0xffff'ffff) - 1;
  look_for(*rendezvous);
  std::unique_lock guard(shared_->lock);
  const auto over = [&] {
    return rendezvous->done.load(std::memory_order_acquire) || shared_->failed;
  };
  bool& waits = shared_->last[std::size_t(rank_)].waits;
  waits = true;
  const bool in_time =
      wait_within(shared_->woken[std::size_t(rank_)], guard, shared_->deadline, over);
  if (!rendezvous->done.load(std::memory_order_acquire)) {
    if (in_time) throw_if_failed(guard);
    const std::string message = late(*rendezvous, pending_[index].member);
    fail(guard, message);
    throw EnvironmentError(message);
  }
  waits = false;
  const CommunicationTimes times{pending_[index].posted, rendezvous->begin, rendezvous->end};
  if (--rendezvous->to_wait == 0) rendezvous->channel->recycle(*rendezvous);
  pending_[index].rendezvous = nullptr;
  free_.push_back(index);
  return times;
}

// Called under the lock: who keeps this rank waiting.
std::string LocalCommunicator::late(const Rendezvous& rendezvous, std::size_t member) const {
  const auto& mine = rendezvous.participants[member];
  const auto& ranks = rendezvous.channel->members;
  std::string who;
  for (std::size_t other = 0; other < ranks.size(); ++other) {
    if (rendezvous.participants[other].posted) continue;
    who += fmt::format("{}{}", who.empty() ? "rank " : ", rank ", ranks[other]);
  }
  const std::string why = !who.empty() ? who + " has not posted it"
                          : rendezvous.arrived < ranks.size()
                              ? "a member's stream is held by an earlier communication"
                              : "its data is still being moved";
  const double seconds = std::chrono::duration<double>(shared_->deadline).count();
  return fmt::format(
      "rank {} waited longer than the deadline of {} s in {}, routine {}, for {}, its post {}: "
      "{} ({})",
      rank_, seconds, step_name(mine.step), mine.routine, to_text(mine.request), mine.post, why,
      describe(reports()));
}

// Called under the lock.
std::vector<RankReport> LocalCommunicator::reports() const {
  std::vector<RankReport> all;
  for (const LastPosts& last : shared_->last) {
    RankReport& report = all.emplace_back();
    report.rank = std::int64_t(all.size()) - 1;
    report.waits = last.waits;
    for (std::size_t i = 0; i < kKeptPosts; ++i) {
      const std::int64_t number = last.posts - std::int64_t(i);
      if (number < 1) break;
      const LastPosts::Post& post = last.kept[std::size_t(number) % kKeptPosts];
      report.posts[i] = {number, post.step,
                         short_text(to_text(post.request) + " in routine " + post.routine)};
    }
  }
  return all;
}

void LocalCommunicator::fail(std::unique_lock<std::mutex>& guard, const std::string& reason) {
  if (!shared_->failed) {
    shared_->failed = true;
    shared_->reason = reason;
    for (auto& waiters : shared_->woken) waiters.notify_all();
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
  auto shared = std::make_shared<SharedState>(grid, deadline, epoch);
  std::vector<std::unique_ptr<Communicator>> handles;
  for (std::int64_t rank = 0; rank < grid.world_size(); ++rank) {
    RankDevice* const device = devices.empty() ? nullptr : devices[std::size_t(rank)];
    handles.push_back(std::make_unique<LocalCommunicator>(shared, rank, device));
  }
  return handles;
}

}  // namespace plimsoll
