// Flight: one communication of this rank from post to wait, and how MPI carries it.
#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/units.h"
#include "runtime/comm/exchange.h"
#include "runtime/communicator.h"

namespace plimsoll {

/// The ranks of a group as one stream of this rank sees them. Its communications run one at a time.
struct MpiGroup {
  Group group;
  Stream stream = Stream::compute;
  MPI_Comm comm = MPI_COMM_NULL;
  int size = 1, index = 0;
  std::vector<std::int64_t> ranks;  ///< ascending
  // Reused by every sum.
  std::vector<std::byte> received;
  std::vector<int> counts, displacements, even;
  std::vector<int> starts;
  std::vector<MemberData> parts;
};

/// Ranks tell each other this about a communication where they check or trace it.
struct FlightHeader {
  std::int64_t started = 0;  ///< ps: when this rank's stream had reached it
  std::int64_t kind = 0, reduction = 0, root = 0, dtype = 0, elements = 0, bytes = 0;
};

enum class FlightState : std::uint8_t { free, queued, meeting, moving, done };

struct Flight {
  FlightState state = FlightState::free;
  std::uint32_t generation = 0;
  Request request;
  MemberData data;
  CommunicationLabel label;
  MpiGroup* group = nullptr;      ///< collectives
  MPI_Comm pair = MPI_COMM_NULL;  ///< transfers: of all ranks
  int peer = 0, tag = 0;          ///< transfers
  Picoseconds posted, begin, end;
  // On its way.
  std::array<MPI_Request, 2> requests = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  std::int64_t moved = 0;             ///< sums: elements of the pieces before this one
  std::int64_t piece = 0;             ///< elements of this one
  int round = 0;                      ///< MPI operations so far; of sums within the piece
  std::vector<FlightHeader> headers;  ///< own first, then by member; transfers: own and the peer's
};

/// Starts to exchange headers: who is there, with what.
void meet_members(Flight& flight, Picoseconds now);
/// After that: throws std::runtime_error where another posted something else; sets `begin`.
void check_members(Flight& flight, std::int64_t rank);
/// Issues the next MPI operation, when the one before is complete; false when there is none left.
bool move_on(Flight& flight);

}  // namespace plimsoll
