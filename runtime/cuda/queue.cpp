// A rank's stream: what is enqueued, captured, marked and waited for.
#include "runtime/cuda/queue.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "base/error.h"
#include "graph/op_table.h"
#include "runtime/backend.h"
#include "runtime/cuda/movement.h"

namespace plimsoll {

namespace {

/// Copies between host and device, which nothing else waits for.
constexpr std::chrono::milliseconds kCopyDeadline{60'000};

/// Ranks of one process on several GPUs exchange data by kernels that read each other's memory.
/// Whether they can.
bool reach_other_devices(int index, int count) {
  bool all = true;
  for (int other = 0; other < count; ++other) {
    if (other == index) continue;
    int can = 0;
    check(cudaDeviceCanAccessPeer(&can, index, other), "peer access");
    if (can == 0) {
      all = false;
      continue;
    }
    const cudaError_t result = cudaDeviceEnablePeerAccess(other, 0);
    if (result == cudaErrorPeerAccessAlreadyEnabled) {
      static_cast<void>(cudaGetLastError());
    } else {
      check(result, "peer access");
    }
  }
  return all;
}

}  // namespace

CudaQueue::CudaQueue(int index) : device_(open_device(index)) {
  reaches_others_ = reach_other_devices(index, device_count());
  check(cudaStreamCreateWithFlags(&device_.stream, cudaStreamNonBlocking), "a stream");
  position_ = DeviceMemory(Bytes(sizeof(RunPosition)));
  device_.position = position_.as<RunPosition>();
  void* overflow = nullptr;
  check(cudaHostAlloc(&overflow, sizeof(RowOverflow), cudaHostAllocMapped), "memory of the host");
  device_.overflow = new (overflow) RowOverflow();
}

// Nobody is left to tell what fails here.
CudaQueue::~CudaQueue() {
  static_cast<void>(cudaSetDevice(device_.index));
  for (const auto& [number, sequence] : sequences_) {
    if (sequence.graph != nullptr) static_cast<void>(cudaGraphExecDestroy(sequence.graph));
  }
  for (cudaEvent_t event : events_) static_cast<void>(cudaEventDestroy(event));
  if (device_.stream != nullptr) static_cast<void>(cudaStreamDestroy(device_.stream));
  static_cast<void>(cudaFreeHost(device_.overflow));
}

void CudaQueue::use() const { check(cudaSetDevice(device_.index), "the rank's GPU"); }

std::byte* CudaQueue::allocate(Bytes size) {
  void* memory = nullptr;
  const cudaError_t result = cudaMalloc(&memory, std::size_t(size.count()));
  if (result != cudaSuccess) {
    check(result, fmt::format("cannot allocate {} bytes on GPU {}, where {} are in use",
                              size.count(), device_.index, memory_used().count()));
  }
  fill(static_cast<std::byte*>(memory), 0, size);
  return static_cast<std::byte*>(memory);
}

void CudaQueue::free(std::byte* memory) noexcept { static_cast<void>(cudaFree(memory)); }

std::byte* CudaQueue::allocate_on_host(Bytes size) {
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, std::size_t(size.count()), cudaHostAllocDefault),
        fmt::format("cannot allocate {} bytes of the host's memory", size.count()));
  std::memset(memory, 0, std::size_t(size.count()));
  return static_cast<std::byte*>(memory);
}

void CudaQueue::free_on_host(std::byte* memory) noexcept {
  static_cast<void>(cudaFreeHost(memory));
}

void CudaQueue::fill(std::byte* to, int value, Bytes size) {
  if (size == Bytes(0)) return;
  check(cudaMemsetAsync(to, value, std::size_t(size.count()), device_.stream), "filling memory");
}

void CudaQueue::write(std::byte* to, std::span<const std::byte> values) {
  check(cudaMemcpyAsync(to, values.data(), values.size(), cudaMemcpyDefault, device_.stream),
        "copying to the GPU");
  finish(kCopyDeadline, "copying to the GPU");
}

void CudaQueue::read(const std::byte* from, std::span<std::byte> values) {
  check(cudaMemcpyAsync(values.data(), from, values.size(), cudaMemcpyDefault, device_.stream),
        "copying from the GPU");
  finish(kCopyDeadline, "copying from the GPU");
}

void CudaQueue::finish(std::chrono::milliseconds deadline, std::string_view what) {
  plimsoll::finish(device_.stream, deadline, what, watch_);
}

void CudaQueue::set_examples(const RankContext& context) {
  device_.examples = {};
  reader_.reset();
  step_.reset();
  if (context.text.examples == nullptr) return;
  const ExampleReader& reader = reader_.emplace(context);
  const std::int64_t tokens = reader.micro_batches() * reader.micro_batch() * reader.sequence();
  const Bytes share(sizeof(double));
  const Bytes all = share + tokens * (reader.cuts() ? 4 : 2) * Bytes(sizeof(std::int32_t));
  if (all != examples_bytes_) examples_ = DeviceMemory(all);
  examples_bytes_ = all;
  const auto* lists = reinterpret_cast<const std::int32_t*>(examples_.data() + share.count());
  ExampleTable& table = device_.examples;
  table.begins = lists;
  table.ends = lists + tokens;
  if (reader.cuts()) {
    table.cut_begins = table.ends + tokens;
    table.cut_ends = table.cut_begins + tokens;
  }
  table.share = examples_.as<const double>();
  table.call = device_.position;
  table.micro_batch = reader.micro_batch();
  table.sequence = reader.sequence();
}

void CudaQueue::lay_out_examples(std::int64_t step) {
  std::array<std::vector<std::int32_t>, 4> lists;
  RunPosition position{.step = step};
  for (; position.micro_batch < reader_->micro_batches(); ++position.micro_batch) {
    reader_->read(position);
    const auto add = [&](std::size_t i, std::span<const std::int32_t> values) {
      lists[i].insert(lists[i].end(), values.begin(), values.end());
    };
    add(0, reader_->begins());
    add(1, reader_->ends());
    add(2, reader_->cut_begins());
    add(3, reader_->cut_ends());
  }
  const double share = reader_->share();
  write(examples_.data(), std::as_bytes(std::span(&share, 1)));
  std::byte* to = examples_.data() + sizeof(share);
  for (const std::vector<std::int32_t>& list : lists) {
    if (!list.empty()) write(to, std::as_bytes(std::span(list)));
    to += list.size() * sizeof(std::int32_t);
  }
}

bool CudaQueue::begin(std::uint32_t number, const RunPosition& position, bool may_replay) {
  if (position.step != step_) {
    set_step(device_, position_.as<RunPosition>(), position.step);
    if (reader_) lay_out_examples(position.step);
  }
  step_ = position.step;
  Sequence& sequence = sequences_[number];
  if (may_replay && sequence.graph != nullptr) {
    check(cudaGraphLaunch(sequence.graph, device_.stream), "replaying kernels");
    return false;
  }
  if (may_replay && sequence.has_run) {
    // Other ranks' threads share the process, and go on allocating.
    check(cudaStreamBeginCapture(device_.stream, cudaStreamCaptureModeThreadLocal),
          "capturing kernels");
    capturing_ = &sequence;
  }
  sequence.has_run = true;
  set_call(device_, position_.as<RunPosition>(), position);
  return true;
}

void CudaQueue::end() {
  if (capturing_ == nullptr) return;
  Sequence& sequence = *std::exchange(capturing_, nullptr);
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(device_.stream, &graph), "capturing kernels");
  const cudaError_t result = cudaGraphInstantiate(&sequence.graph, graph, 0);
  static_cast<void>(cudaGraphDestroy(graph));
  check(result, "making a graph of captured kernels");
  check(cudaGraphLaunch(sequence.graph, device_.stream), "replaying kernels");
}

std::uint32_t CudaQueue::mark() {
  if (marks_ == events_.size()) {
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDefault), "an event");
    events_.push_back(event);
  }
  check(cudaEventRecord(events_[marks_], device_.stream), "recording an event");
  return marks_++;
}

Picoseconds CudaQueue::time_of(std::uint32_t mark) {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, events_[0], events_[mark]), "the time of an event");
  return Picoseconds(std::llround(double(milliseconds) * 1e9));
}

void CudaQueue::gather(Bytes part, std::span<const MemberData> members) {
  for (std::size_t from = 0; from < members.size(); ++from) {
    for (const MemberData& member : members) {
      std::byte* to = member.whole + (part * std::int64_t(from)).count();
      if (to != members[from].part) copy(to, members[from].part, part);
    }
  }
}

void CudaQueue::move_rows(OpKind kind, DType dtype, std::span<const MemberData> members) {
  const auto size = std::int64_t(members.size());
  ExpertRows rows = members[0].rows;  // each rank has the same ends
  std::vector<std::int32_t> all_ends(std::size_t(size * rows.experts));
  read(reinterpret_cast<const std::byte*>(rows.all_ends),
       std::as_writable_bytes(std::span(all_ends)));
  rows.all_ends = all_ends.data();
  const Bytes row = bytes_of(dtype) * rows.columns;
  const auto at = [&](std::byte* base, std::int64_t index) { return base + (row * index).count(); };
  std::array<const std::byte*, kMostLocalMembers> sources;
  for (std::int64_t from = 0; from < size; ++from) {
    const MemberData& giver = members[std::size_t(from)];
    if (kind == OpKind::reduce_scatter_rows) {
      each_run(rows, size, from, 0, [&](const RowRun& run) {
        for (std::size_t i = 0; i < members.size(); ++i)
          sources[i] = at(members[i].whole, run.received);
        reduce_in_order(device_, Reduction::sum, dtype, run.count * rows.columns,
                        std::span(sources).first(members.size()),
                        std::array{at(giver.part, run.given)});
      });
      continue;
    }
    if (kind == OpKind::return_rows) {
      each_dropped(rows, size, from, [&](std::int64_t first, std::int64_t count) {
        fill(at(giver.part, first), 0, row * count);
      });
    }
    for (std::int64_t to = 0; to < size; ++to) {
      const MemberData& taker = members[std::size_t(to)];
      each_run(rows, size, from, to, [&](const RowRun& run) {
        if (kind == OpKind::return_rows) {
          copy(at(giver.part, run.given), at(taker.whole, run.received), row * run.count);
        } else {
          copy(at(taker.part, run.received), at(giver.whole, run.given), row * run.count);
        }
      });
    }
  }
}

void CudaQueue::move(OpKind kind, const CollectiveParams& params, DType dtype,
                     std::int64_t elements, std::span<const MemberData> members) {
  const auto count = std::int64_t(members.size());
  if (elements == 0 || (count == 1 && members[0].part == members[0].whole)) return;
  if (!reaches_others_) {
    throw EnvironmentError(
        "GPUs of this host cannot read each other's memory; start a process per rank (--launcher "
        "mpirun)");
  }
  if (count > std::int64_t(kMostLocalMembers)) {
    throw EnvironmentError(
        fmt::format("at most {} ranks can share a GPU, not {}", kMostLocalMembers, count));
  }
  if (moves_rows(kind)) return move_rows(kind, dtype, members);
  const MemberData& root = members[std::size_t(params.root)];
  const Bytes whole = bytes_of(dtype) * elements, part = bytes_of(dtype) * (elements / count);
  std::array<const std::byte*, kMostLocalMembers> sources;
  std::array<std::byte*, kMostLocalMembers> wholes;
  const auto reduce = [&](Bytes offset, std::int64_t length, std::span<std::byte* const> targets) {
    for (std::size_t i = 0; i < members.size(); ++i) sources[i] = members[i].whole + offset.count();
    reduce_in_order(device_, params.reduction, dtype, length, std::span(sources).first(count),
                    targets);
  };
  for (std::size_t i = 0; i < members.size(); ++i) wholes[i] = members[i].whole;
  switch (kind) {
    case OpKind::all_reduce:
      return reduce(Bytes(0), elements, std::span(wholes).first(count));
    case OpKind::reduce:
      return reduce(Bytes(0), elements, std::array{root.whole});
    case OpKind::reduce_scatter:
      for (std::int64_t i = 0; i < count; ++i)
        reduce(part * i, elements / count, std::array{members[std::size_t(i)].part});
      return;
    case OpKind::all_gather:
      return gather(part, members);
    case OpKind::broadcast:
      for (const MemberData& member : members) {
        if (member.whole != root.whole) copy(member.whole, root.whole, whole);
      }
      return;
    case OpKind::ring_shift:
      for (std::int64_t to = 0; to < count; ++to) {
        const std::int64_t from = ring_peer(to, -params.shift, count);
        copy(members[std::size_t(to)].part, members[std::size_t(from)].whole, whole);
      }
      return;
    case OpKind::all_to_all:
      for (std::int64_t to = 0; to < count; ++to) {
        for (std::int64_t from = 0; from < count; ++from) {
          copy(members[std::size_t(to)].part + (part * from).count(),
               members[std::size_t(from)].whole + (part * to).count(), part);
        }
      }
      return;
    default:
      INVARIANT(false, "not a collective");
  }
}

void CudaQueue::copy(std::byte* to, const std::byte* from, Bytes size) {
  check(cudaMemcpyAsync(to, from, std::size_t(size.count()), cudaMemcpyDefault, device_.stream),
        "copying between ranks");
}

std::string CudaQueue::description() const {
  return fmt::format("{} (GPU {}), driver for CUDA {}", device_name(device_.index), device_.index,
                     driver_version());
}

Bytes CudaQueue::memory_used() const {
  std::size_t free = 0, total = 0;
  use();
  check(cudaMemGetInfo(&free, &total), "memory of the GPU");
  return Bytes(std::int64_t(total - free));
}

}  // namespace plimsoll
