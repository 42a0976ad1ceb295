// A rank has NCCL communicators, streams and events, and enqueues its communications on them.
#include "runtime/comm/nccl/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "base/error.h"
#include "runtime/comm/nccl/groups.h"
#include "runtime/comm/nccl/library.h"
#include "runtime/comm/transfer.h"
#include "runtime/cuda/queue.h"

namespace plimsoll {
namespace {

using Clock = std::chrono::steady_clock;

ncclDataType_t data_type(DType type) {
  switch (type) {
    case DType::f32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f16:
      return ncclFloat16;
    case DType::i32:
      return ncclInt32;
    case DType::u8:
    case DType::e4m3:  // simulated only
    case DType::e5m2:
      return ncclUint8;
  }
  return ncclFloat32;
}

struct Collective {
  Group group;
  Stream stream;
  std::int64_t index = 0, size = 0;  ///< this rank's, and how many there are
  ncclComm_t comm = nullptr;
};
struct Pair {
  TransferChannel channel;
  int peer = 0;  ///< of the two
  ncclComm_t comm = nullptr;
};

/// A communication that was enqueued; its events are used again once it was waited for.
struct PostedOp {
  cudaEvent_t posted = nullptr, begin = nullptr, end = nullptr;
  ncclComm_t comm = nullptr;
  bool timed = false, waiting = false;
  Picoseconds posted_at;
  std::uint32_t generation = 0;
  std::string what;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(Processes& processes, std::span<const Program> programs,
                   std::chrono::milliseconds deadline, CudaQueue& queue);
  ~NcclCommunicator() override;

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
  ncclComm_t make_world(Processes& processes);
  ncclComm_t split(const std::vector<std::int64_t>& ranks);
  void settle(ncclComm_t comm, std::string_view what) const;
  Pair& pair_of(const TransferChannel& channel);
  Ticket enqueue(ncclComm_t comm, const CommunicationLabel& label, std::string what,
                 const std::function<ncclResult_t(cudaStream_t)>& call);
  std::uint32_t free_op();
  /// `at` is when `since` was reached.
  Picoseconds time_of(cudaEvent_t event, cudaEvent_t since, Picoseconds at) const;

  const Grid grid_;
  const std::int64_t rank_;
  const std::chrono::milliseconds deadline_;
  const Clock::time_point epoch_;
  CudaQueue& queue_;
  std::vector<ncclComm_t> comms_;  ///< all, the one of all ranks first
  std::vector<Collective> collectives_;
  std::vector<Pair> pairs_;
  std::array<cudaStream_t, kStreams> streams_ = {};
  cudaEvent_t origin_ = nullptr;  ///< reached at origin_at_
  Picoseconds origin_at_;
  std::vector<PostedOp> ops_;  ///< by ticket index
  std::vector<std::uint32_t> free_;
  bool aborted_ = false;
};

NcclCommunicator::NcclCommunicator(Processes& processes, std::span<const Program> programs,
                                   std::chrono::milliseconds deadline, CudaQueue& queue)
    : grid_(programs[0].grid),
      rank_(processes.index()),
      deadline_(deadline),
      epoch_(processes.epoch()),
      queue_(queue) {
  INVARIANT(grid_.world_size() == processes.size(), "one process per rank");
  queue_.use();
  comms_.push_back(make_world(processes));
  for (const auto& [group, stream] : groups_of(programs)) {
    const std::vector<std::int64_t> ranks = part_of(grid_, group, rank_);
    const ncclComm_t comm = split(ranks);
    if (comm == nullptr) continue;
    const auto index = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
    collectives_.push_back({group, stream, index, std::int64_t(ranks.size()), comm});
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
  check(cudaEventRecord(origin_, queue_.device().stream), "recording an event");
  queue_.finish(deadline_, "the start of the GPU's clock");
  origin_at_ = now();
}

NcclCommunicator::~NcclCommunicator() {
  static_cast<void>(cudaSetDevice(queue_.device().index));
  // Communicators of an aborted run are gone; the others are idle, since every step ends with a
  // wait.
  if (!aborted_) {
    for (ncclComm_t comm : comms_) {
      static_cast<void>(nccl().finalize(comm));
      ncclResult_t state = ncclInProgress;
      const Clock::time_point until = Clock::now() + deadline_;
      while (nccl().async_error(comm, &state) == ncclSuccess && state == ncclInProgress &&
             Clock::now() < until) {
        std::this_thread::yield();
      }
      static_cast<void>(state == ncclSuccess ? nccl().destroy(comm) : nccl().abort(comm));
    }
  }
  for (const PostedOp& op : ops_) {
    for (cudaEvent_t event : {op.posted, op.begin, op.end})
      static_cast<void>(cudaEventDestroy(event));
  }
  static_cast<void>(cudaEventDestroy(origin_));
  for (cudaStream_t stream : streams_) static_cast<void>(cudaStreamDestroy(stream));
}

ncclComm_t NcclCommunicator::make_world(Processes& processes) {
  ncclUniqueId id = {};
  if (rank_ == 0) check_nccl(nccl().unique_id(&id), "make an id");
  const std::string shared = processes.broadcast(std::string(id.internal, sizeof(id)), deadline_);
  INVARIANT(shared.size() == sizeof(id), "an id of NCCL is shared whole");
  std::memcpy(&id, shared.data(), sizeof(id));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  check_nccl(nccl().init(&comm, int(processes.size()), id, int(rank_), &config),
             "connect all ranks");
  settle(comm, "connect all ranks; each needs a GPU of its own");
  return comm;
}

/// Splits the communicator of all ranks. Ranks that are in no part get null.
ncclComm_t NcclCommunicator::split(const std::vector<std::int64_t>& ranks) {
  const int color =
      ranks.empty() ? NCCL_SPLIT_NOCOLOR : int(*std::min_element(ranks.begin(), ranks.end()));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  check_nccl(nccl().split(comms_[0], color, int(rank_), &comm, &config), "connect a group");
  settle(comms_[0], "connect a group");
  if (ranks.empty()) return nullptr;
  settle(comm, "connect a group");
  comms_.push_back(comm);
  return comm;
}

/// Calls of communicators that do not block go on after they return.
void NcclCommunicator::settle(ncclComm_t comm, std::string_view what) const {
  const Clock::time_point until = Clock::now() + deadline_;
  while (true) {
    ncclResult_t state = ncclSuccess;
    check_nccl(nccl().async_error(comm, &state), what);
    check_nccl(state, what);
    if (state != ncclInProgress) return;
    if (Clock::now() > until) {
      throw EnvironmentError(
          fmt::format("rank {} waited longer than the deadline of {} s for NCCL "
                      "to {}",
                      rank_, std::chrono::duration<double>(deadline_).count(), what));
    }
    std::this_thread::yield();
  }
}

std::uint32_t NcclCommunicator::free_op() {
  if (free_.empty()) {
    free_.push_back(std::uint32_t(ops_.size()));
    PostedOp& op = ops_.emplace_back();
    check(cudaEventCreateWithFlags(&op.posted, cudaEventDisableTiming), "an event");
    check(cudaEventCreateWithFlags(&op.begin, cudaEventDefault), "an event");
    check(cudaEventCreateWithFlags(&op.end, cudaEventDefault), "an event");
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  return index;
}

// The stream runs its communications in order: label.after needs nothing more.
Communicator::Ticket NcclCommunicator::enqueue(
    ncclComm_t comm, const CommunicationLabel& label, std::string what,
    const std::function<ncclResult_t(cudaStream_t)>& call) {
  const std::uint32_t index = free_op();
  PostedOp& op = ops_[index];
  const cudaStream_t stream = streams_[std::size_t(label.stream)];
  op.comm = comm;
  op.timed = label.described;
  op.waiting = true;
  op.posted_at = now();
  op.what = std::move(what);
  ++op.generation;
  check(cudaEventRecord(op.posted, queue_.device().stream), op.what);
  check(cudaStreamWaitEvent(stream, op.posted, 0), op.what);
  if (op.timed) check(cudaEventRecord(op.begin, stream), op.what);
  check_nccl(nccl().group_start(), op.what);
  const ncclResult_t called = call(stream);
  const ncclResult_t ended = nccl().group_end();
  check_nccl(called, op.what);
  check_nccl(ended, op.what);
  // Only then is it on the stream.
  settle(comm, op.what);
  check(cudaEventRecord(op.end, stream), op.what);
  return (Ticket(op.generation) << 32) | (index + 1);
}

/// Sends part i of `from` to rank i, and puts what rank i sends there to part i of `to`.
ncclResult_t exchange_parts(const Collective& over, const std::byte* from, std::byte* to,
                            Bytes part, cudaStream_t stream) {
  const auto bytes = std::size_t(part.count());
  for (std::int64_t rank = 0; rank < over.size; ++rank) {
    const std::int64_t at = (part * rank).count();
    if (rank == over.index) {
      check(cudaMemcpyAsync(to + at, from + at, bytes, cudaMemcpyDefault, stream),
            "copying a part");
      continue;
    }
    const ncclResult_t sent =
        nccl().send(from + at, bytes, ncclUint8, int(rank), over.comm, stream);
    if (sent != ncclSuccess && sent != ncclInProgress) return sent;
    const ncclResult_t received =
        nccl().recv(to + at, bytes, ncclUint8, int(rank), over.comm, stream);
    if (received != ncclSuccess && received != ncclInProgress) return received;
  }
  return ncclSuccess;
}

Communicator::Ticket NcclCommunicator::post_collective(OpKind kind, const CollectiveParams& params,
                                                       const CollectiveOperand& operand,
                                                       const CommunicationLabel& label) {
  const auto found = std::find_if(collectives_.begin(), collectives_.end(), [&](const auto& c) {
    return c.group == params.group && c.stream == label.stream;
  });
  INVARIANT(found != collectives_.end(), "a collective over a group that no Program names");
  const auto count = std::size_t(operand.elements);
  const std::size_t part = count / std::size_t(found->size);
  const ncclDataType_t type = data_type(operand.dtype);
  const ncclRedOp_t sum = params.reduction == Reduction::max ? ncclMax : ncclSum;
  std::byte* const whole = operand.whole;
  std::byte* const mine =
      operand.part != nullptr
          ? operand.part
          : whole + (bytes_of(operand.dtype) * (std::int64_t(part) * found->index)).count();
  const ncclComm_t comm = found->comm;
  const Bytes part_bytes = bytes_of(operand.dtype) * std::int64_t(part);
  const auto what = fmt::format("run a {} of {} elements", to_text(kind), count);
  return enqueue(comm, label, what, [&](cudaStream_t stream) {
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
          return int(ring_peer(found->index, steps, found->size));
        };
        const ncclResult_t sent = nccl().send(whole, count, type, peer(params.shift), comm, stream);
        const ncclResult_t received =
            nccl().recv(mine, count, type, peer(-params.shift), comm, stream);
        return sent != ncclSuccess ? sent : received;
      }
      case OpKind::all_to_all:
        return exchange_parts(*found, whole, mine, part_bytes, stream);
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
  const std::int64_t stage = grid_.coordinates(rank_)[std::size_t(Axis::pp)];
  const Pair& pair = pair_of({stage, stage_offset});
  return enqueue(pair.comm, label, fmt::format("send {} bytes", size.count()),
                 [&](cudaStream_t stream) {
                   return nccl().send(data, std::size_t(size.count()), ncclUint8, pair.peer,
                                      pair.comm, stream);
                 });
}

Communicator::Ticket NcclCommunicator::post_recv(std::int64_t stage_offset, Bytes size,
                                                 std::byte* data, const CommunicationLabel& label) {
  const std::int64_t sender = pipeline_peer(grid_, rank_, stage_offset);
  const std::int64_t stage = grid_.coordinates(sender)[std::size_t(Axis::pp)];
  const Pair& pair = pair_of({stage, -stage_offset});
  return enqueue(pair.comm, label, fmt::format("receive {} bytes", size.count()),
                 [&](cudaStream_t stream) {
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
  PostedOp& op = ops_[index];
  INVARIANT(op.waiting && op.generation == ticket >> 32,
            "a ticket is waited for once, by the rank that posted");
  op.waiting = false;
  check(cudaStreamWaitEvent(queue_.device().stream, op.end, 0), op.what);
  settle(op.comm, op.what);
  free_.push_back(index);
  if (!op.timed) return {op.posted_at, op.posted_at, op.posted_at};
  const Clock::time_point until = Clock::now() + deadline_;
  while (true) {
    const cudaError_t result = cudaEventQuery(op.end);
    if (result == cudaSuccess) break;
    if (result != cudaErrorNotReady) check(result, op.what);
    settle(op.comm, op.what);
    if (Clock::now() > until) {
      throw EnvironmentError(
          fmt::format("rank {} waited longer than the deadline of {} s for NCCL "
                      "to {}",
                      rank_, std::chrono::duration<double>(deadline_).count(), op.what));
    }
    std::this_thread::yield();
  }
  // Elapsed times are floats: that between the two is as exact as the GPU's clock, however long ago
  // the origin was.
  const Picoseconds begin = time_of(op.begin, origin_, origin_at_);
  return {op.posted_at, begin, time_of(op.end, op.begin, begin)};
}

// The other ranks notice by their deadlines, or because the launcher ends all processes.
void NcclCommunicator::abort(const std::string&) {
  if (std::exchange(aborted_, true)) return;
  for (ncclComm_t comm : comms_) static_cast<void>(nccl().abort(comm));
}

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(Processes& processes,
                                                     std::span<const Program> programs,
                                                     std::chrono::milliseconds deadline,
                                                     RankDevice& device) {
  auto* const queue = dynamic_cast<CudaQueue*>(&device);
  INVARIANT(queue != nullptr, "NCCL exchanges memory of CUDA devices");
  return std::make_unique<NcclCommunicator>(processes, programs, deadline, *queue);
}

}  // namespace plimsoll
