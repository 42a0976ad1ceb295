#include "runtime/comm/mpi/flight.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "base/error.h"
#include "runtime/comm/mpi/communicator.h"
#include "runtime/comm/transfer.h"
#include "runtime/half.h"

namespace plimsoll {
namespace {

/// Below so many bytes from all members, every rank adds up everything: one operation, not two.
constexpr std::int64_t kSumsEverywhere = std::int64_t{16} << 10;
constexpr int kHeaderTag = 16;  ///< beyond those of the data
constexpr int kHeaderWords = int(sizeof(FlightHeader) / sizeof(std::int64_t));

MPI_Datatype mpi_type(DType dtype) {
  switch (element_bytes(dtype)) {
    case 2:
      return MPI_UINT16_T;
    case 4:
      return MPI_UINT32_T;
    default:
      return MPI_UINT64_T;
  }
}

FlightHeader header_of(const Flight& flight, Picoseconds now) {
  const Request& request = flight.request;
  return {now.count(),          std::int64_t(request.kind),  std::int64_t(request.params.reduction),
          request.params.root,  std::int64_t(request.dtype), request.elements,
          request.bytes.count()};
}

Request request_of(const FlightHeader& header, const Group& group) {
  Request request;
  request.kind = OpKind(header.kind);
  request.params = {group, Reduction(header.reduction), header.root};
  request.dtype = DType(header.dtype);
  request.elements = header.elements;
  request.bytes = Bytes(header.bytes);
  return request;
}

std::byte* at(const Flight& flight, std::byte* base, std::int64_t element) {
  return base + (bytes_of(flight.request.dtype) * element).count();
}

void copy(const Flight& flight, std::byte* to, const std::byte* from, std::int64_t count) {
  std::memcpy(to, from, std::size_t((bytes_of(flight.request.dtype) * count).count()));
}

/// Which elements of the whole each member adds up in this piece.
void lay_out_piece(Flight& flight) {
  MpiGroup& group = *flight.group;
  const std::int64_t most = kPieceOfSum.count() / element_bytes(flight.request.dtype);
  const std::int64_t size = group.size;
  const auto set = [&](std::int64_t member, std::int64_t begin, std::int64_t end) {
    group.displacements[std::size_t(member)] = int(begin);
    group.counts[std::size_t(member)] = int(end - begin);
  };
  if (flight.request.kind == OpKind::reduce_scatter) {
    const std::int64_t part = flight.request.elements / size;
    flight.piece = std::min(most, part - flight.moved);
    for (std::int64_t i = 0; i < size; ++i) {
      set(i, i * part + flight.moved, i * part + flight.moved + flight.piece);
    }
    return;
  }
  flight.piece = std::min(most * size, flight.request.elements - flight.moved);
  for (std::int64_t i = 0; i < size; ++i) {
    set(i, flight.moved + flight.piece * i / size, flight.moved + flight.piece * (i + 1) / size);
  }
}

/// Adds up `count` elements of each member that lie in `received`, `stride` apart: the sum replaces
/// this rank's own.
std::byte* add_up(Flight& flight, std::int64_t count, std::int64_t stride) {
  MpiGroup& group = *flight.group;
  for (int i = 0; i < group.size; ++i) {
    group.parts[std::size_t(i)].whole = at(flight, group.received.data(), stride * i);
  }
  const CollectiveParams params{flight.request.params.group, flight.request.params.reduction,
                                group.index};
  move_collective(OpKind::reduce, params, flight.request.dtype, count, group.parts);
  return group.parts[std::size_t(group.index)].whole;
}

void make_room(Flight& flight, std::int64_t elements) {
  const auto bytes = std::size_t((bytes_of(flight.request.dtype) * elements).count());
  if (flight.group->received.size() < bytes) flight.group->received.resize(bytes);
}

/// The only operation: everything to everyone.
void gather_small(Flight& flight) {
  MpiGroup& group = *flight.group;
  const auto count = int(flight.request.elements);
  make_room(flight, std::int64_t{count} * group.size);
  check_mpi(MPI_Iallgather(flight.data.whole, count, mpi_type(flight.request.dtype),
                           group.received.data(), count, mpi_type(flight.request.dtype), group.comm,
                           &flight.requests[0]),
            "exchange the terms of a sum");
}

/// First operation of a piece: each member's range of everybody's terms to that member.
void exchange_terms(Flight& flight) {
  MpiGroup& group = *flight.group;
  const int mine = group.counts[std::size_t(group.index)];
  make_room(flight, std::int64_t{mine} * group.size);
  std::fill(group.even.begin(), group.even.end(), mine);
  for (int i = 0; i < group.size; ++i) group.starts[std::size_t(i)] = i * mine;
  const MPI_Datatype type = mpi_type(flight.request.dtype);
  check_mpi(MPI_Ialltoallv(flight.data.whole, group.counts.data(), group.displacements.data(), type,
                           group.received.data(), group.even.data(), group.starts.data(), type,
                           group.comm, &flight.requests[0]),
            "exchange the terms of a sum");
}

/// Second operation: the sums to whom they are for.
void gather_sums(Flight& flight) {
  MpiGroup& group = *flight.group;
  const auto own = std::size_t(group.index);
  const MPI_Datatype type = mpi_type(flight.request.dtype);
  std::byte* const sum = add_up(flight, group.counts[own], group.counts[own]);
  std::byte* const place = at(flight, flight.data.whole, group.displacements[own]);
  if (flight.request.kind == OpKind::all_reduce) {
    copy(flight, place, sum, group.counts[own]);
    check_mpi(MPI_Iallgatherv(MPI_IN_PLACE, 0, type, flight.data.whole, group.counts.data(),
                              group.displacements.data(), type, group.comm, &flight.requests[0]),
              "gather sums");
    return;
  }
  const auto root = int(flight.request.params.root);
  if (group.index == root) copy(flight, place, sum, group.counts[own]);
  check_mpi(MPI_Igatherv(group.index == root ? MPI_IN_PLACE : sum, group.counts[own], type,
                         flight.data.whole, group.counts.data(), group.displacements.data(), type,
                         root, group.comm, &flight.requests[0]),
            "gather sums");
}

bool sum_on(Flight& flight) {
  const Request& request = flight.request;
  const bool scatters = request.kind == OpKind::reduce_scatter;
  const std::int64_t total = scatters ? request.elements / flight.group->size : request.elements;
  const std::int64_t all = bytes_of(request.dtype).count() * request.elements * flight.group->size;
  if (!scatters && all <= kSumsEverywhere) {
    if (flight.round++ == 0) {
      gather_small(flight);
      return true;
    }
    if (request.kind == OpKind::reduce && request.params.root != flight.group->index) return false;
    copy(flight, flight.data.whole, add_up(flight, request.elements, request.elements),
         request.elements);
    return false;
  }
  if (flight.round == 1) {
    if (!scatters) {
      gather_sums(flight);
      flight.round = 2;
      return true;
    }
    copy(flight, at(flight, flight.data.part, flight.moved),
         add_up(flight, flight.piece, flight.piece), flight.piece);
  }
  flight.moved += flight.piece;
  flight.piece = 0;
  if (flight.moved == total) return false;
  lay_out_piece(flight);
  exchange_terms(flight);
  flight.round = 1;
  return true;
}

void gather_parts(Flight& flight) {
  const MpiGroup& group = *flight.group;
  const std::int64_t part = flight.request.elements / group.size;
  const bool in_place = flight.data.part == at(flight, flight.data.whole, part * group.index);
  const MPI_Datatype type = mpi_type(flight.request.dtype);
  check_mpi(MPI_Iallgather(in_place ? MPI_IN_PLACE : flight.data.part, int(part), type,
                           flight.data.whole, int(part), type, group.comm, &flight.requests[0]),
            "gather parts");
}

void transfer(Flight& flight) {
  const auto bytes = int(flight.request.bytes.count());
  if (flight.request.kind == OpKind::send) {
    check_mpi(MPI_Isend(flight.data.whole, bytes, MPI_BYTE, flight.peer, flight.tag, flight.pair,
                        &flight.requests[0]),
              "send");
  } else {
    check_mpi(MPI_Irecv(flight.data.whole, bytes, MPI_BYTE, flight.peer, flight.tag, flight.pair,
                        &flight.requests[0]),
              "receive");
  }
}

}  // namespace

void meet_members(Flight& flight, Picoseconds now) {
  const FlightHeader mine = header_of(flight, now);
  if (flight.group != nullptr) {
    flight.headers.assign(std::size_t(flight.group->size) + 1, mine);
    check_mpi(MPI_Iallgather(&flight.headers[0], kHeaderWords, MPI_INT64_T, &flight.headers[1],
                             kHeaderWords, MPI_INT64_T, flight.group->comm, &flight.requests[0]),
              "compare what ranks communicate");
    return;
  }
  flight.headers.assign(2, mine);
  // The tag says whose a header of a transfer is.
  const bool sends = flight.request.kind == OpKind::send;
  const int own = flight.tag + kHeaderTag * (sends ? 1 : 2);
  const int theirs = flight.tag + kHeaderTag * (sends ? 2 : 1);
  check_mpi(MPI_Irecv(&flight.headers[1], kHeaderWords, MPI_INT64_T, flight.peer, theirs,
                      flight.pair, &flight.requests[0]),
            "compare what ranks communicate");
  check_mpi(MPI_Isend(&flight.headers[0], kHeaderWords, MPI_INT64_T, flight.peer, own, flight.pair,
                      &flight.requests[1]),
            "compare what ranks communicate");
}

void check_members(Flight& flight, std::int64_t rank) {
  flight.begin = Picoseconds(0);
  for (std::size_t i = 0; i < flight.headers.size(); ++i) {
    const FlightHeader& header = flight.headers[i];
    flight.begin = std::max(flight.begin, Picoseconds(header.started));
    const bool own = flight.group != nullptr ? i == 0 || int(i) - 1 == flight.group->index : i == 0;
    const Request theirs = request_of(header, flight.request.params.group);
    if (own || agree(flight.request, theirs)) continue;
    const std::int64_t other = flight.group != nullptr ? flight.group->ranks[i - 1] : flight.peer;
    throw std::runtime_error(fmt::format(
        "communication mismatch: rank {} in step {}, routine {} posted {}; rank {} posted {}", rank,
        flight.label.step + 1, flight.label.routine, to_text(flight.request), other,
        to_text(theirs)));
  }
}

bool move_on(Flight& flight) {
  switch (flight.request.kind) {
    case OpKind::all_reduce:
    case OpKind::reduce:
    case OpKind::reduce_scatter:
      return sum_on(flight);
    default:
      break;
  }
  if (flight.round++ > 0) return false;
  switch (flight.request.kind) {
    case OpKind::all_gather:
      gather_parts(flight);
      return true;
    case OpKind::broadcast:
      check_mpi(MPI_Ibcast(flight.data.whole, int(flight.request.elements),
                           mpi_type(flight.request.dtype), int(flight.request.params.root),
                           flight.group->comm, &flight.requests[0]),
                "broadcast");
      return true;
    case OpKind::send:
    case OpKind::recv:
      transfer(flight);
      return true;
    default:
      INVARIANT(false, "not a communication");
  }
  return false;
}

}  // namespace plimsoll
