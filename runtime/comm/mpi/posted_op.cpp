// Sums are taken in ascending rank order by MPI operations on chunks; every other communication is
// one operation.
#include "runtime/comm/mpi/posted_op.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "base/error.h"
#include "runtime/backend.h"
#include "runtime/comm/mpi/communicator.h"
#include "runtime/comm/transfer.h"
#include "runtime/half.h"

namespace plimsoll {
namespace {

/// Below so many bytes from all members, every rank adds up everything, which takes one operation
/// and not two.
constexpr std::int64_t kSumsEverywhere = std::int64_t{16} << 10;
constexpr int kHeaderTag = 16;  ///< beyond those of the data
constexpr int kRingTag = 0;     ///< of the only messages within a group
constexpr int kHeaderWords = int(sizeof(RendezvousHeader) / sizeof(std::int64_t));

MPI_Datatype mpi_type(DType dtype) {
  switch (element_bytes(dtype)) {
    case 1:
      return MPI_UINT8_T;
    case 2:
      return MPI_UINT16_T;
    case 4:
      return MPI_UINT32_T;
    default:
      return MPI_UINT64_T;
  }
}

RendezvousHeader header_of(const PostedOp& op, Picoseconds now) {
  const Request& request = op.request;
  return {now.count(),         std::int64_t(request.kind), std::int64_t(request.params.reduction),
          request.params.root, request.params.shift,       std::int64_t(request.dtype),
          request.elements,    request.bytes.count()};
}

Request request_of(const RendezvousHeader& header, const Group& group) {
  Request request;
  request.kind = OpKind(header.kind);
  request.params = {group, Reduction(header.reduction), header.root, header.shift};
  request.dtype = DType(header.dtype);
  request.elements = header.elements;
  request.bytes = Bytes(header.bytes);
  return request;
}

std::byte* at(const PostedOp& op, std::byte* base, std::int64_t element) {
  return base + (bytes_of(op.request.dtype) * element).count();
}

void copy(const PostedOp& op, std::byte* to, const std::byte* from, std::int64_t count) {
  std::memcpy(to, from, std::size_t((bytes_of(op.request.dtype) * count).count()));
}

/// Sets the elements of the whole that each member adds up in this chunk.
void lay_out_chunk(PostedOp& op) {
  MpiGroup& group = *op.group;
  const std::int64_t most = kSumChunk.count() / element_bytes(op.request.dtype);
  const std::int64_t size = group.size;
  const auto set = [&](std::int64_t member, std::int64_t begin, std::int64_t end) {
    group.displacements[std::size_t(member)] = int(begin);
    group.counts[std::size_t(member)] = int(end - begin);
  };
  if (op.request.kind == OpKind::reduce_scatter) {
    const std::int64_t part = op.request.elements / size;
    op.chunk = std::min(most, part - op.moved);
    for (std::int64_t i = 0; i < size; ++i) {
      set(i, i * part + op.moved, i * part + op.moved + op.chunk);
    }
    return;
  }
  op.chunk = std::min(most * size, op.request.elements - op.moved);
  for (std::int64_t i = 0; i < size; ++i) {
    set(i, op.moved + op.chunk * i / size, op.moved + op.chunk * (i + 1) / size);
  }
}

/// Adds up `count` elements of each member, which lie `stride` apart. The sum
/// replaces this rank's own elements.
std::byte* add_up(PostedOp& op, std::byte* received, std::int64_t count, std::int64_t stride) {
  MpiGroup& group = *op.group;
  for (int i = 0; i < group.size; ++i)
    group.parts[std::size_t(i)].whole = at(op, received, stride * i);
  CollectiveParams params = op.request.params;
  params.root = group.index;
  move_collective(OpKind::reduce, params, op.request.dtype, count, group.parts);
  return group.parts[std::size_t(group.index)].whole;
}

void make_room(PostedOp& op, std::int64_t elements) {
  const auto bytes = std::size_t((bytes_of(op.request.dtype) * elements).count());
  if (op.group->received.size() < bytes) op.group->received.resize(bytes);
}

/// Gives every rank all terms of a small sum: the sum's only operation.
void gather_small(PostedOp& op) {
  MpiGroup& group = *op.group;
  const auto count = int(op.request.elements);
  make_room(op, std::int64_t{count} * group.size);
  check_mpi(MPI_Iallgather(op.data.whole, count, mpi_type(op.request.dtype), group.received.data(),
                           count, mpi_type(op.request.dtype), group.comm, &op.requests[0]),
            "exchange the terms of a sum");
}

/// First operation of a chunk: gives each member all ranks' terms of the member's range.
void exchange_terms(PostedOp& op) {
  MpiGroup& group = *op.group;
  const int mine = group.counts[std::size_t(group.index)];
  make_room(op, std::int64_t{mine} * group.size);
  std::fill(group.even.begin(), group.even.end(), mine);
  for (int i = 0; i < group.size; ++i) group.starts[std::size_t(i)] = i * mine;
  const MPI_Datatype type = mpi_type(op.request.dtype);
  check_mpi(MPI_Ialltoallv(op.data.whole, group.counts.data(), group.displacements.data(), type,
                           group.received.data(), group.even.data(), group.starts.data(), type,
                           group.comm, &op.requests[0]),
            "exchange the terms of a sum");
}

/// Second operation of a chunk: gives the sums to the ranks that need them.
void gather_sums(PostedOp& op) {
  MpiGroup& group = *op.group;
  const auto own = std::size_t(group.index);
  const MPI_Datatype type = mpi_type(op.request.dtype);
  std::byte* const sum = add_up(op, group.received.data(), group.counts[own], group.counts[own]);
  std::byte* const place = at(op, op.data.whole, group.displacements[own]);
  if (op.request.kind == OpKind::all_reduce) {
    copy(op, place, sum, group.counts[own]);
    check_mpi(MPI_Iallgatherv(MPI_IN_PLACE, 0, type, op.data.whole, group.counts.data(),
                              group.displacements.data(), type, group.comm, &op.requests[0]),
              "gather sums");
    return;
  }
  const auto root = int(op.request.params.root);
  if (group.index == root) copy(op, place, sum, group.counts[own]);
  check_mpi(MPI_Igatherv(group.index == root ? MPI_IN_PLACE : sum, group.counts[own], type,
                         op.data.whole, group.counts.data(), group.displacements.data(), type, root,
                         group.comm, &op.requests[0]),
            "gather sums");
}

bool sum_on(PostedOp& op) {
  const Request& request = op.request;
  const bool scatters = request.kind == OpKind::reduce_scatter;
  const std::int64_t total = scatters ? request.elements / op.group->size : request.elements;
  const std::int64_t all = bytes_of(request.dtype).count() * request.elements * op.group->size;
  if (!scatters && all <= kSumsEverywhere) {
    if (op.round++ == 0) {
      gather_small(op);
      return true;
    }
    if (request.kind == OpKind::reduce && request.params.root != op.group->index) return false;
    copy(op, op.data.whole,
         add_up(op, op.group->received.data(), request.elements, request.elements),
         request.elements);
    return false;
  }
  if (op.round == 1) {
    if (!scatters) {
      gather_sums(op);
      op.round = 2;
      return true;
    }
    copy(op, at(op, op.data.part, op.moved),
         add_up(op, op.group->received.data(), op.chunk, op.chunk), op.chunk);
  }
  op.moved += op.chunk;
  op.chunk = 0;
  if (op.moved == total) return false;
  lay_out_chunk(op);
  exchange_terms(op);
  op.round = 1;
  return true;
}

void gather_parts(PostedOp& op) {
  const MpiGroup& group = *op.group;
  const std::int64_t part = op.request.elements / group.size;
  const bool in_place = op.data.part == at(op, op.data.whole, part * group.index);
  const MPI_Datatype type = mpi_type(op.request.dtype);
  check_mpi(MPI_Iallgather(in_place ? MPI_IN_PLACE : op.data.part, int(part), type, op.data.whole,
                           int(part), type, group.comm, &op.requests[0]),
            "gather parts");
}

/// Lays out the rows that this rank exchanges with each member, in bytes, one member's after
/// another's. `counts` and `displacements` are of those it gives, `even` and `starts` of those it
/// receives.
void lay_out_rows(PostedOp& op) {
  MpiGroup& group = *op.group;
  const std::int64_t row = (bytes_of(op.request.dtype) * op.data.rows.columns).count();
  int received = 0;
  for (int i = 0; i < group.size; ++i) {
    const auto member = std::size_t(i);
    std::int64_t to_member = 0, from_member = 0, first = 0;
    // Rows that are dropped lie behind those that the member gets.
    each_run(op.data.rows, group.size, group.index, i, [&](const RowRun& run) {
      if (to_member == 0) first = run.given;
      to_member += run.count;
    });
    each_run(op.data.rows, group.size, i, group.index,
             [&](const RowRun& run) { from_member += run.count; });
    group.displacements[member] = int(first * row);
    group.starts[member] = received;
    group.counts[member] = int(to_member * row);
    received += group.even[member] = int(from_member * row);
  }
  if (group.received.size() < std::size_t(received)) group.received.resize(std::size_t(received));
}

/// Copies the rows of this rank's experts between the order of members, in which they travel, and
/// the order of experts.
void sort_rows(PostedOp& op, bool by_expert) {
  MpiGroup& group = *op.group;
  const std::int64_t row = (bytes_of(op.request.dtype) * op.data.rows.columns).count();
  std::byte* travelling = group.received.data();
  for (int i = 0; i < group.size; ++i) {
    each_run(op.data.rows, group.size, i, group.index, [&](const RowRun& run) {
      std::byte* const sorted = (by_expert ? op.data.part : op.data.whole) + run.received * row;
      const auto bytes = std::size_t(run.count * row);
      by_expert ? std::memcpy(sorted, travelling, bytes) : std::memcpy(travelling, sorted, bytes);
      travelling += bytes;
    });
  }
}

void exchange_rows(PostedOp& op) {
  MpiGroup& group = *op.group;
  lay_out_rows(op);
  check_mpi(MPI_Ialltoallv(op.data.whole, group.counts.data(), group.displacements.data(), MPI_BYTE,
                           group.received.data(), group.even.data(), group.starts.data(), MPI_BYTE,
                           group.comm, &op.requests[0]),
            "exchange rows of experts");
}

/// Gives each member its rows as this rank has them, and takes this rank's rows from each.
void return_rows(PostedOp& op) {
  MpiGroup& group = *op.group;
  lay_out_rows(op);
  sort_rows(op, false);
  const std::int64_t row = (bytes_of(op.request.dtype) * op.data.rows.columns).count();
  each_dropped(op.data.rows, group.size, group.index, [&](std::int64_t from, std::int64_t count) {
    std::memset(op.data.part + from * row, 0, std::size_t(count * row));
  });
  check_mpi(MPI_Ialltoallv(group.received.data(), group.even.data(), group.starts.data(), MPI_BYTE,
                           op.data.part, group.counts.data(), group.displacements.data(), MPI_BYTE,
                           group.comm, &op.requests[0]),
            "return rows of experts");
}

/// Takes what each member has of this rank's rows, to be added up.
void exchange_row_sums(PostedOp& op) {
  MpiGroup& group = *op.group;
  lay_out_rows(op);
  sort_rows(op, false);
  const int own = group.counts[std::size_t(group.index)];
  group.terms.resize(std::size_t(own) * std::size_t(group.size));
  for (int i = 0; i < group.size; ++i) group.displacements[std::size_t(i)] = i * own;
  check_mpi(MPI_Ialltoallv(group.received.data(), group.even.data(), group.starts.data(), MPI_BYTE,
                           group.terms.data(), group.counts.data(), group.displacements.data(),
                           MPI_BYTE, group.comm, &op.requests[0]),
            "exchange the terms of rows");
}

/// Puts what arrived where it belongs.
void finish_rows(PostedOp& op) {
  const OpKind kind = op.request.kind;
  if (kind == OpKind::exchange_rows || kind == OpKind::all_gather_rows) sort_rows(op, true);
  if (kind != OpKind::reduce_scatter_rows) return;
  const std::int64_t own = op.group->counts[std::size_t(op.group->index)],
                     count = own / bytes_of(op.request.dtype).count();
  if (count > 0) copy(op, op.data.part, add_up(op, op.group->terms.data(), count, count), count);
}

void shift_ring(PostedOp& op) {
  const MpiGroup& group = *op.group;
  const auto count = int(op.request.elements);
  const auto peer = [&](std::int64_t steps) {
    return int(ring_peer(group.index, steps, group.size));
  };
  const std::int64_t shift = op.request.params.shift;
  const MPI_Datatype type = mpi_type(op.request.dtype);
  check_mpi(
      MPI_Irecv(op.data.part, count, type, peer(-shift), kRingTag, group.comm, &op.requests[0]),
      "receive on a ring");
  check_mpi(
      MPI_Isend(op.data.whole, count, type, peer(shift), kRingTag, group.comm, &op.requests[1]),
      "send on a ring");
}

void exchange_parts(PostedOp& op) {
  const auto part = int(op.request.elements / op.group->size);
  const MPI_Datatype type = mpi_type(op.request.dtype);
  check_mpi(MPI_Ialltoall(op.data.whole, part, type, op.data.part, part, type, op.group->comm,
                          &op.requests[0]),
            "exchange parts");
}

void transfer(PostedOp& op) {
  const auto bytes = int(op.request.bytes.count());
  if (op.request.kind == OpKind::send) {
    check_mpi(MPI_Isend(op.data.whole, bytes, MPI_BYTE, op.peer, op.tag, op.pair, &op.requests[0]),
              "send");
  } else {
    check_mpi(MPI_Irecv(op.data.whole, bytes, MPI_BYTE, op.peer, op.tag, op.pair, &op.requests[0]),
              "receive");
  }
}

}  // namespace

void begin_rendezvous(PostedOp& op, Picoseconds now) {
  const RendezvousHeader mine = header_of(op, now);
  if (op.group != nullptr) {
    op.headers.assign(std::size_t(op.group->size) + 1, mine);
    check_mpi(MPI_Iallgather(&op.headers[0], kHeaderWords, MPI_INT64_T, &op.headers[1],
                             kHeaderWords, MPI_INT64_T, op.group->comm, &op.requests[0]),
              "compare what ranks communicate");
    return;
  }
  op.headers.assign(2, mine);
  // The tag says which of the two ranks sent a header.
  const bool sends = op.request.kind == OpKind::send;
  const int own = op.tag + kHeaderTag * (sends ? 1 : 2);
  const int theirs = op.tag + kHeaderTag * (sends ? 2 : 1);
  check_mpi(MPI_Irecv(&op.headers[1], kHeaderWords, MPI_INT64_T, op.peer, theirs, op.pair,
                      &op.requests[0]),
            "compare what ranks communicate");
  check_mpi(
      MPI_Isend(&op.headers[0], kHeaderWords, MPI_INT64_T, op.peer, own, op.pair, &op.requests[1]),
      "compare what ranks communicate");
}

void check_members(PostedOp& op, std::int64_t rank) {
  op.begin = Picoseconds(0);
  for (std::size_t i = 0; i < op.headers.size(); ++i) {
    const RendezvousHeader& header = op.headers[i];
    op.begin = std::max(op.begin, Picoseconds(header.started));
    const bool own = op.group != nullptr ? i == 0 || int(i) - 1 == op.group->index : i == 0;
    const Request theirs = request_of(header, op.request.params.group);
    if (own || agree(op.request, theirs)) continue;
    const std::int64_t other = op.group != nullptr ? op.group->ranks[i - 1] : op.peer;
    throw std::runtime_error(fmt::format(
        "communication mismatch: rank {} in {}, routine {} posted {}; rank {} posted {}", rank,
        step_name(op.label.step), op.label.routine, to_text(op.request), other, to_text(theirs)));
  }
}

bool issue_next(PostedOp& op) {
  switch (op.request.kind) {
    case OpKind::all_reduce:
    case OpKind::reduce:
    case OpKind::reduce_scatter:
      return sum_on(op);
    default:
      break;
  }
  if (op.round++ > 0) {
    finish_rows(op);
    return false;
  }
  switch (op.request.kind) {
    case OpKind::all_gather:
      gather_parts(op);
      return true;
    case OpKind::broadcast:
      check_mpi(MPI_Ibcast(op.data.whole, int(op.request.elements), mpi_type(op.request.dtype),
                           int(op.request.params.root), op.group->comm, &op.requests[0]),
                "broadcast");
      return true;
    case OpKind::exchange_rows:
    case OpKind::all_gather_rows:
      exchange_rows(op);
      return true;
    case OpKind::return_rows:
      return_rows(op);
      return true;
    case OpKind::reduce_scatter_rows:
      exchange_row_sums(op);
      return true;
    case OpKind::ring_shift:
      shift_ring(op);
      return true;
    case OpKind::all_to_all:
      exchange_parts(op);
      return true;
    case OpKind::send:
    case OpKind::recv:
      transfer(op);
      return true;
    default:
      INVARIANT(false, "not a communication");
  }
  return false;
}

}  // namespace plimsoll
