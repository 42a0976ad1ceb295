// A rank has NCCL communicators, streams and events, and enqueues its communications on them.
#include "runtime/comm/nccl/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "base/error.h"
#include "graph/op_table.h"
#include "runtime/backend.h"
#include "runtime/comm/nccl/exchange.h"
#include "runtime/comm/nccl/groups.h"
#include "runtime/comm/nccl/library.h"
#include "runtime/comm/nccl/posted_ops.h"
#include "runtime/comm/rank_status.h"
#include "runtime/comm/transfer.h"
#include "runtime/comm/waited.h"
#include "runtime/cuda/queue.h"

namespace plimsoll {
namespace {

using Clock = std::chrono::steady_clock;

struct Collective {
  Group group;
  Stream stream;
  NcclMember member;
};
struct Pair {
  TransferChannel channel;
  int peer = 0;  ///< of the two
  ncclComm_t comm = nullptr;
};

class NcclCommunicator final : public Communicator, private StreamWatch {
 public:
  NcclCommunicator(Processes& processes, std::span<const Program> programs,
                   std::chrono::milliseconds deadline, CudaQueue& queue);
  ~NcclCommunicator() override;
  void connect(Processes& processes, std::span<const Program> programs);

  std::string_view name() const override { return "nccl"; }
  std::string library() const override { return nccl_version(); }
  Ticket post_collective(OpKind kind, const CollectiveParams& params,
                         const CollectiveOperand& operand,
                         const CommunicationLabel& label) override;
  Ticket post_send(std::int64_t stage_offset, Bytes size, const std::byte* data,
                   const CommunicationLabel& label) override;
  Ticket post_recv(std::int64_t stage_offset, Bytes size, std::byte* data,
                   const CommunicationLabel& label) override;
  CommunicationTimes wait(Ticket ticket) override;
  void abort(const std::string& reason) override;

 private:
  Picoseconds now() const {
    const auto elapsed =
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - epoch_);
    return Picoseconds(std::int64_t{elapsed.count()} * 1000);
  }
  void make_world(Processes& processes);
  ncclComm_t split(const std::vector<std::int64_t>& ranks);
  void settle(ncclComm_t comm, std::string_view what);
  void settle(ncclComm_t comm, std::string_view what, Waited& waited);
  [[noreturn]] void give_up(std::string_view what);
  Pair& pair_of(const TransferChannel& channel);
  /// Calls call(stream, i) for each i below `groups`, within a group of NCCL.
  Ticket enqueue(ncclComm_t comm, const CommunicationLabel& label, std::string what,
                 const std::function<ncclResult_t(cudaStream_t, std::int64_t)>& call,
                 std::int64_t groups = 1);
  void finish(cudaEvent_t event, ncclComm_t comm, std::string_view what);
  void waits() override { show(Wait::kernels); }
  void ends() override;
  std::string reason() override;
  /// The host waits for the rank's kernels, for a communication, or while NCCL posts one.
  enum class Wait : std::uint8_t { kernels, communication, post };
  /// Shows other ranks whether this one waits for them, and at which communication it is.
  void show(Wait wait);
  std::span<const std::int32_t> read_ends(const NcclMember& member, const ExpertRows& rows,
                                          const CommunicationLabel& label, std::string_view what);
  /// `at` is when `since` was reached.
  Picoseconds time_of(cudaEvent_t event, cudaEvent_t since, Picoseconds at) const;

  const Grid grid_;
  const std::int64_t rank_;
  const std::chrono::milliseconds deadline_;
  const Clock::time_point epoch_;
  CudaQueue& queue_;
  std::deque<ncclComm_t> comms_;  ///< all, the one of all ranks first; null: not connected
  std::vector<Collective> collectives_;
  std::vector<Pair> pairs_;
  std::array<cudaStream_t, kStreams> streams_ = {};
  cudaEvent_t origin_ = nullptr;    ///< reached at origin_at_
  cudaEvent_t gathered_ = nullptr;  ///< the ends of rows are there
  /// Ends of rows that were read in call `ends_call_`, by where they lie on the device.
  std::map<const std::int32_t*, std::vector<std::int32_t>> ends_;
  std::uint64_t ends_call_ = 0;
  Picoseconds origin_at_;
  PostedOps ops_;
  RankStatusBoard* board_;      ///< may be null
  std::int64_t shown_ = 0;      ///< number of the op on the board
  bool shown_waiting_ = false;  ///< whether the board says that the rank waits for that op
  bool aborted_ = false;
};

NcclCommunicator::NcclCommunicator(Processes& processes, std::span<const Program> programs,
                                   std::chrono::milliseconds deadline, CudaQueue& queue)
    : grid_(programs[0].grid),
      rank_(processes.index()),
      deadline_(deadline),
      epoch_(processes.epoch()),
      queue_(queue),
      board_(processes.status_board()) {
  INVARIANT(grid_.world_size() == processes.size(), "one process per rank");
  queue_.use();
}

/// Makes the communicators of all ranks and of the groups of `programs`, and what times them.
void NcclCommunicator::connect(Processes& processes, std::span<const Program> programs) {
  make_world(processes);
  for (const auto& [group, stream] : groups_of(programs)) {
    const std::vector<std::int64_t> ranks = part_of(grid_, group, rank_);
    const ncclComm_t comm = split(ranks);
    if (comm == nullptr) continue;
    const auto index = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
    collectives_.push_back({group, stream, {comm, index, std::int64_t(ranks.size())}});
  }
  for (const TransferChannel& channel : transfer_channels(programs)) {
    const std::vector<std::int64_t> ends = ends_of(grid_, channel, rank_);
    const ncclComm_t comm = split(ends);
    if (comm == nullptr) continue;
    // Members are numbered by rank.
    const std::int64_t peer = ends[0] == rank_ ? ends[1] : ends[0];
    pairs_.push_back({channel, peer > rank_ ? 1 : 0, comm});
  }
  for (cudaStream_t& stream : streams_)
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
  check(cudaEventCreateWithFlags(&origin_, cudaEventDefault), "an event");
  check(cudaEventCreateWithFlags(&gathered_, cudaEventDisableTiming), "an event");
  check(cudaEventRecord(origin_, queue_.device().stream), "recording an event");
  queue_.finish(deadline_, "the start of the GPU's clock");
  origin_at_ = now();
}

NcclCommunicator::~NcclCommunicator() {
  if (queue_.watch() == this) queue_.set_watch(nullptr);
  static_cast<void>(cudaSetDevice(queue_.device().index));
  // Communicators of an aborted run are gone; the others are idle, since every step ends with a
  // wait.
  if (!aborted_) {
    for (ncclComm_t comm : comms_) {
      if (comm == nullptr) continue;
      static_cast<void>(nccl().finalize(comm));
      ncclResult_t state = ncclInProgress;
      Waited waited;
      while (nccl().async_error(comm, &state) == ncclSuccess && state == ncclInProgress &&
             waited.so_far() < deadline_) {
        std::this_thread::yield();
      }
      static_cast<void>(state == ncclSuccess ? nccl().destroy(comm) : nccl().abort(comm));
    }
  }
  for (cudaEvent_t event : {origin_, gathered_}) static_cast<void>(cudaEventDestroy(event));
  for (cudaStream_t stream : streams_) static_cast<void>(cudaStreamDestroy(stream));
}

void NcclCommunicator::make_world(Processes& processes) {
  ncclUniqueId id = {};
  if (rank_ == 0) check_nccl(nccl().unique_id(&id), "make an id");
  const std::string shared = processes.broadcast(std::string(id.internal, sizeof(id)), deadline_);
  INVARIANT(shared.size() == sizeof(id), "an id of NCCL is shared whole");
  std::memcpy(&id, shared.data(), sizeof(id));
  if (board_ != nullptr) board_->is_at(0, 0, "to connect all ranks by NCCL");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  check_nccl(nccl().init(&comm, int(processes.size()), id, int(rank_), &config),
             "connect all ranks");
  comms_.push_back(comm);
  settle(comm, "connect all ranks; each needs a separate GPU");
}

/// Splits the communicator of all ranks. Ranks that are in no part get null.
ncclComm_t NcclCommunicator::split(const std::vector<std::int64_t>& ranks) {
  const int color =
      ranks.empty() ? NCCL_SPLIT_NOCOLOR : int(*std::min_element(ranks.begin(), ranks.end()));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  // NCCL writes the address when the split is over, which may be while abort() gives all up.
  ncclComm_t& comm = comms_.emplace_back(nullptr);
  check_nccl(nccl().split(comms_[0], color, int(rank_), &comm, &config), "connect a group");
  settle(comms_[0], "connect a group");
  if (ranks.empty()) return nullptr;
  settle(comm, "connect a group");
  return comm;
}

/// Calls of communicators that do not block go on after they return.
void NcclCommunicator::settle(ncclComm_t comm, std::string_view what) {
  Waited waited;
  settle(comm, what, waited);
}

void NcclCommunicator::settle(ncclComm_t comm, std::string_view what, Waited& waited) {
  for (bool waits = false;; waits = true) {
    ncclResult_t state = ncclSuccess;
    check_nccl(nccl().async_error(comm, &state), what);
    check_nccl(state, what);
    if (state != ncclInProgress) {
      if (waits) ends();
      return;
    }
    show(Wait::post);
    if (waited.so_far() > deadline_) give_up(what);
    std::this_thread::yield();
  }
}

void NcclCommunicator::show(Wait wait) {
  if (board_ == nullptr) return;
  const NcclOp* op = ops_.first_awaited();
  // Kernels that are not over are this rank's own work.
  bool waits = op != nullptr && is_reached(op->wait, op->what);
  if (op == nullptr && wait != Wait::kernels) {
    op = ops_.oldest();
    waits = op == nullptr ? wait == Wait::post : is_reached(op->posted, op->what);
  }
  if (op != nullptr && (op->number != shown_ || waits != shown_waiting_)) {
    board_->is_at(op->number, op->step,
                  fmt::format("{}{} in routine {}", waits ? "to " : "kernels before it is to ",
                              op->what, op->routine));
    shown_ = op->number;
    shown_waiting_ = waits;
  }
  board_->waits(waits);
}

void NcclCommunicator::ends() {
  if (board_ != nullptr) board_->waits(false);
}

// Ranks that give up later still see that this one has waited.
std::string NcclCommunicator::reason() {
  const std::string who = board_ == nullptr ? "" : ": " + board_->describe(deadline_);
  const NcclOp* op = ops_.first_awaited();
  if (op == nullptr) op = ops_.oldest();
  if (op == nullptr) return fmt::format("rank {} has no communication under way{}", rank_, who);
  return fmt::format("in {}, routine {}, NCCL has not come to {}, post {} of rank {}{}",
                     step_name(op->step), op->routine, op->what, op->number, rank_, who);
}

void NcclCommunicator::give_up(std::string_view what) {
  throw EnvironmentError(
      fmt::format("rank {} waited longer than the deadline of {} s for NCCL to {}: {}", rank_,
                  std::chrono::duration<double>(deadline_).count(), what, reason()));
}

/// Returns when the event was reached.
void NcclCommunicator::finish(cudaEvent_t event, ncclComm_t comm, std::string_view what) {
  Waited waited;
  while (!is_reached(event, what)) {
    settle(comm, what, waited);
    show(Wait::communication);
    if (waited.so_far() > deadline_) give_up(what);
    std::this_thread::yield();
  }
  ends();
}

// The stream runs its communications in order: label.after needs nothing more.
Communicator::Ticket NcclCommunicator::enqueue(
    ncclComm_t comm, const CommunicationLabel& label, std::string what,
    const std::function<ncclResult_t(cudaStream_t, std::int64_t)>& call, std::int64_t groups) {
  const std::uint32_t index = ops_.add();
  NcclOp& op = ops_[index];
  const cudaStream_t stream = streams_[std::size_t(label.stream)];
  op.comm = comm;
  op.timed = label.described;
  op.posted_at = now();
  op.what = std::move(what);
  op.step = label.step;
  op.routine = label.routine;
  queue_.set_watch(this);
  if (board_ != nullptr) {
    board_->is_at(op.number, op.step, fmt::format("to {} in routine {}", op.what, op.routine));
    shown_ = 0;
  }
  check(cudaEventRecord(op.posted, queue_.device().stream), op.what);
  check(cudaStreamWaitEvent(stream, op.posted, 0), op.what);
  if (op.timed) check(cudaEventRecord(op.begin, stream), op.what);
  for (std::int64_t group = 0; group < groups; ++group) {
    check_nccl(nccl().group_start(), op.what);
    const ncclResult_t called = call(stream, group);
    const ncclResult_t ended = nccl().group_end();
    check_nccl(called, op.what);
    check_nccl(ended, op.what);
    // Only then is it on the stream.
    settle(comm, op.what);
  }
  check(cudaEventRecord(op.end, stream), op.what);
  ops_.enqueued(index);
  return (Ticket(op.generation) << 32) | (index + 1);
}

/// Returns the ends in host memory, for NCCL takes sizes from the host. They were gathered on the
/// same stream. The host waits for that, and for the kernels before it, which have to be over
/// before rows move anyway. Within a call of a routine ends are read once.
std::span<const std::int32_t> NcclCommunicator::read_ends(const NcclMember& member,
                                                          const ExpertRows& rows,
                                                          const CommunicationLabel& label,
                                                          std::string_view what) {
  if (label.call == 0 || label.call != ends_call_) ends_.clear();
  ends_call_ = label.call;
  const auto [found, added] = ends_.try_emplace(rows.all_ends);
  std::vector<std::int32_t>& ends = found->second;
  if (!added) return ends;
  ends.resize(std::size_t(member.size * rows.experts));
  const cudaStream_t stream = streams_[std::size_t(label.stream)];
  check(cudaEventRecord(gathered_, queue_.device().stream), what);
  check(cudaStreamWaitEvent(stream, gathered_, 0), what);
  check(cudaEventRecord(gathered_, stream), what);
  // A copy to memory of the host that is not pinned would wait without a deadline.
  finish(gathered_, member.comm, what);
  check(cudaMemcpyAsync(ends.data(), rows.all_ends, ends.size() * sizeof(ends[0]),
                        cudaMemcpyDeviceToHost, stream),
        what);
  plimsoll::finish(stream, deadline_, what, this);
  return ends;
}

Communicator::Ticket NcclCommunicator::post_collective(OpKind kind, const CollectiveParams& params,
                                                       const CollectiveOperand& operand,
                                                       const CommunicationLabel& label) {
  const auto found = std::find_if(collectives_.begin(), collectives_.end(), [&](const auto& c) {
    return c.group == params.group && c.stream == label.stream;
  });
  INVARIANT(found != collectives_.end(), "a collective over a group that no Program names");
  const NcclMember& member = found->member;
  const auto count = std::size_t(operand.elements);
  const auto what = fmt::format("run {} of {} elements", to_text(kind), count);
  if (moves_rows(kind)) {
    MemberData data{operand.whole, operand.part, operand.rows};
    data.rows.all_ends = read_ends(member, operand.rows, label, what).data();
    return enqueue(
        member.comm, label, what,
        [&](cudaStream_t stream, std::int64_t group) {
          return move_rows(member, kind, operand.dtype, data, group, stream);
        },
        row_groups(operand.rows, member.size));
  }
  const std::size_t part = count / std::size_t(member.size);
  const ncclDataType_t type = nccl_type(operand.dtype);
  const ncclRedOp_t sum = params.reduction == Reduction::max ? ncclMax : ncclSum;
  std::byte* const whole = operand.whole;
  std::byte* const mine =
      operand.part != nullptr
          ? operand.part
          : whole + (bytes_of(operand.dtype) * (std::int64_t(part) * member.index)).count();
  const ncclComm_t comm = member.comm;
  // Ends that were read from there are no longer those that lie there.
  ends_.erase(reinterpret_cast<const std::int32_t*>(whole));
  const Bytes part_bytes = bytes_of(operand.dtype) * std::int64_t(part);
  return enqueue(comm, label, what, [&](cudaStream_t stream, std::int64_t) {
    switch (kind) {
      case OpKind::all_reduce:
        return nccl().all_reduce(whole, whole, count, type, sum, comm, stream);
      case OpKind::reduce_scatter:
        return nccl().reduce_scatter(whole, mine, part, type, sum, comm, stream);
      case OpKind::all_gather:
        return nccl().all_gather(mine, whole, part, type, comm, stream);
      case OpKind::reduce:
        return nccl().reduce(whole, whole, count, type, sum, int(params.root), comm, stream);
      case OpKind::broadcast:
        return nccl().broadcast(whole, whole, count, type, int(params.root), comm, stream);
      case OpKind::ring_shift: {
        const auto peer = [&](std::int64_t steps) {
          return int(ring_peer(member.index, steps, member.size));
        };
        const ncclResult_t sent = nccl().send(whole, count, type, peer(params.shift), comm, stream);
        const ncclResult_t received =
            nccl().recv(mine, count, type, peer(-params.shift), comm, stream);
        return sent != ncclSuccess ? sent : received;
      }
      case OpKind::all_to_all:
        return exchange_parts(member, whole, mine, part_bytes, stream);
      default:
        INVARIANT(false, "not a collective");
    }
    return ncclInvalidArgument;
  });
}

Pair& NcclCommunicator::pair_of(const TransferChannel& channel) {
  const auto found = std::find_if(pairs_.begin(), pairs_.end(),
                                  [&](const Pair& pair) { return pair.channel == channel; });
  INVARIANT(found != pairs_.end(), "a transfer that no Program names");
  return *found;
}

Communicator::Ticket NcclCommunicator::post_send(std::int64_t stage_offset, Bytes size,
                                                 const std::byte* data,
                                                 const CommunicationLabel& label) {
  const Pair& pair = pair_of(channel_from(grid_, rank_, stage_offset));
  return enqueue(pair.comm, label, fmt::format("send {} bytes", size.count()),
                 [&](cudaStream_t stream, std::int64_t) {
                   return nccl().send(data, std::size_t(size.count()), ncclUint8, pair.peer,
                                      pair.comm, stream);
                 });
}

Communicator::Ticket NcclCommunicator::post_recv(std::int64_t stage_offset, Bytes size,
                                                 std::byte* data, const CommunicationLabel& label) {
  const std::int64_t sender = pipeline_peer(grid_, rank_, stage_offset);
  const Pair& pair = pair_of(channel_from(grid_, sender, -stage_offset));
  return enqueue(pair.comm, label, fmt::format("receive {} bytes", size.count()),
                 [&](cudaStream_t stream, std::int64_t) {
                   return nccl().recv(data, std::size_t(size.count()), ncclUint8, pair.peer,
                                      pair.comm, stream);
                 });
}

Picoseconds NcclCommunicator::time_of(cudaEvent_t event, cudaEvent_t since, Picoseconds at) const {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, since, event), "the time of an event");
  return at + Picoseconds(std::llround(double(milliseconds) * 1e9));
}

CommunicationTimes NcclCommunicator::wait(Ticket ticket) {
  const auto index = std::uint32_t(ticket & 0xffff'ffff) - 1;
  NcclOp& op = ops_[index];
  INVARIANT(op.waiting && op.generation == ticket >> 32,
            "a ticket is waited for once, by the rank that posted");
  check(cudaEventRecord(op.wait, queue_.device().stream), op.what);
  check(cudaStreamWaitEvent(queue_.device().stream, op.end, 0), op.what);
  ops_.awaits(index);
  settle(op.comm, op.what);
  CommunicationTimes times{op.posted_at, op.posted_at, op.posted_at};
  if (op.timed) {
    finish(op.end, op.comm, op.what);
    // Elapsed times are floats: that between the two is as exact as the GPU's clock, however long
    // ago the origin was.
    times.begin = time_of(op.begin, origin_, origin_at_);
    times.end = time_of(op.end, op.begin, times.begin);
  }
  ops_.waited(index);
  return times;
}

// The other ranks notice by their deadlines, or because the launcher ends all processes.
void NcclCommunicator::abort(const std::string&) {
  if (std::exchange(aborted_, true)) return;
  for (ncclComm_t comm : comms_) {
    if (comm != nullptr) static_cast<void>(nccl().abort(comm));
  }
}

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(Processes& processes,
                                                     std::span<const Program> programs,
                                                     std::chrono::milliseconds deadline,
                                                     RankDevice& device) {
  auto* const queue = dynamic_cast<CudaQueue*>(&device);
  INVARIANT(queue != nullptr, "NCCL exchanges memory of CUDA devices");
  auto communicator = std::make_unique<NcclCommunicator>(processes, programs, deadline, *queue);
  try {
    communicator->connect(processes, programs);
  } catch (const std::exception& error) {  // what was made by then would wait for the other ranks
    communicator->abort(error.what());
    throw;
  }
  return communicator;
}

}  // namespace plimsoll
