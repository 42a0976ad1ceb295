// Parts and rows are sent, received, broadcast and reduced one by one, within a group.
#include "runtime/comm/nccl/exchange.h"

#include <algorithm>

#include "base/error.h"
#include "runtime/comm/nccl/library.h"
#include "runtime/cuda/device.h"

namespace plimsoll {
namespace {

/// The most operations between ncclGroupStart and ncclGroupEnd (NCCL user guide, Group Calls).
constexpr std::int64_t kMostOfGroup = 2048;

/// The experts of a rank whose rows one group moves. A rank sends the rows of each of them, and
/// receives as many; or there is one operation for each.
std::int64_t experts_of_group(std::int64_t size) {
  return std::max<std::int64_t>(1, kMostOfGroup / (2 * size));
}

bool failed(ncclResult_t result) { return result != ncclSuccess && result != ncclInProgress; }

/// Row operations of one group, until one of them fails.
class RowMover {
 public:
  RowMover(const NcclMember& member, DType dtype, const MemberData& data, std::int64_t group,
           cudaStream_t stream)
      : member_(member),
        dtype_(dtype),
        data_(data),
        first_(group * experts_of_group(member.size)),
        stream_(stream) {}

  /// Gives rows to the ranks of their experts, or takes them back.
  ncclResult_t exchange(bool back) {
    if (back && first_ == 0) clear_dropped();
    for (std::int64_t peer = 0; peer < member_.size; ++peer) {
      if (peer == member_.index) {
        each(peer, peer, [&](const RowRun& run) { return copy(run, back); });
        continue;
      }
      each(member_.index, peer, [&](const RowRun& run) {
        return back ? receive(data_.part, run.given, run.count, peer)
                    : send(data_.whole, run.given, run.count, peer);
      });
      each(peer, member_.index, [&](const RowRun& run) {
        return back ? send(data_.whole, run.received, run.count, peer)
                    : receive(data_.part, run.received, run.count, peer);
      });
    }
    return result_;
  }

  /// Every rank gets the rows of all.
  ncclResult_t gather() {
    for (std::int64_t owner = 0; owner < member_.size; ++owner) {
      each(owner, 0, [&](const RowRun& run) {
        std::byte* const to = at(data_.part, run.received);
        const std::byte* const from = owner == member_.index ? at(data_.whole, run.given) : to;
        return nccl().broadcast(from, to, bytes(run.count), ncclUint8, int(owner), member_.comm,
                                stream_);
      });
    }
    return result_;
  }

  /// Each rank gets the sums of its own rows.
  ncclResult_t sum() {
    for (std::int64_t owner = 0; owner < member_.size; ++owner) {
      each(owner, 0, [&](const RowRun& run) {
        // Only the owner's is written.
        std::byte* const to = owner == member_.index ? at(data_.part, run.given) : data_.part;
        return nccl().reduce(at(data_.whole, run.received), to,
                             std::size_t(run.count * data_.rows.columns), nccl_type(dtype_),
                             ncclSum, int(owner), member_.comm, stream_);
      });
    }
    return result_;
  }

 private:
  /// Rows that no rank had memory for come back as 0.
  void clear_dropped() {
    each_dropped(data_.rows, member_.size, member_.index,
                 [&](std::int64_t first, std::int64_t count) {
                   check(cudaMemsetAsync(at(data_.part, first), 0, bytes(count), stream_),
                         "rows that were dropped");
                 });
  }

  /// Calls operate(run) for the rows of this group's experts.
  template <class Operate>
  void each(std::int64_t from, std::int64_t to, Operate operate) {
    each_run(data_.rows, member_.size, from, to, [&](const RowRun& run) {
      const std::int64_t past = run.expert - first_;
      if (failed(result_) || past < 0 || past >= experts_of_group(member_.size)) return;
      result_ = operate(run);
    });
  }

  std::byte* at(std::byte* base, std::int64_t row) const {
    return base + (bytes_of(dtype_) * (data_.rows.columns * row)).count();
  }
  std::size_t bytes(std::int64_t rows) const {
    return std::size_t((bytes_of(dtype_) * (data_.rows.columns * rows)).count());
  }
  ncclResult_t send(std::byte* base, std::int64_t row, std::int64_t count, std::int64_t peer) {
    return nccl().send(at(base, row), bytes(count), ncclUint8, int(peer), member_.comm, stream_);
  }
  ncclResult_t receive(std::byte* base, std::int64_t row, std::int64_t count, std::int64_t peer) {
    return nccl().recv(at(base, row), bytes(count), ncclUint8, int(peer), member_.comm, stream_);
  }
  ncclResult_t copy(const RowRun& run, bool back) {
    std::byte* const to = back ? at(data_.part, run.given) : at(data_.part, run.received);
    const std::byte* const from = back ? at(data_.whole, run.received) : at(data_.whole, run.given);
    check(cudaMemcpyAsync(to, from, bytes(run.count), cudaMemcpyDefault, stream_), "copying rows");
    return ncclSuccess;
  }

  const NcclMember& member_;
  const DType dtype_;
  const MemberData& data_;
  const std::int64_t first_;
  const cudaStream_t stream_;
  ncclResult_t result_ = ncclSuccess;
};

}  // namespace

ncclDataType_t nccl_type(DType type) {
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

ncclResult_t exchange_parts(const NcclMember& member, const std::byte* from, std::byte* to,
                            Bytes part, cudaStream_t stream) {
  const auto bytes = std::size_t(part.count());
  for (std::int64_t rank = 0; rank < member.size; ++rank) {
    const std::int64_t at = (part * rank).count();
    if (rank == member.index) {
      check(cudaMemcpyAsync(to + at, from + at, bytes, cudaMemcpyDefault, stream),
            "copying a part");
      continue;
    }
    const ncclResult_t sent =
        nccl().send(from + at, bytes, ncclUint8, int(rank), member.comm, stream);
    if (failed(sent)) return sent;
    const ncclResult_t received =
        nccl().recv(to + at, bytes, ncclUint8, int(rank), member.comm, stream);
    if (failed(received)) return received;
  }
  return ncclSuccess;
}

std::int64_t row_groups(const ExpertRows& rows, std::int64_t size) {
  const std::int64_t experts = rows.shared ? rows.experts : rows.experts / size;
  const std::int64_t each = experts_of_group(size);
  return (experts + each - 1) / each;
}

ncclResult_t move_rows(const NcclMember& member, OpKind kind, DType dtype, const MemberData& data,
                       std::int64_t group, cudaStream_t stream) {
  RowMover mover(member, dtype, data, group, stream);
  switch (kind) {
    case OpKind::exchange_rows:
      return mover.exchange(false);
    case OpKind::return_rows:
      return mover.exchange(true);
    case OpKind::all_gather_rows:
      return mover.gather();
    case OpKind::reduce_scatter_rows:
      return mover.sum();
    default:
      INVARIANT(false, "not a collective of rows");
  }
  return ncclInvalidArgument;
}

}  // namespace plimsoll
