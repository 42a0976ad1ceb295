// Posted op: one communication of this rank from post to wait, and how MPI carries it.
#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/units.h"
#include "runtime/comm/rendezvous.h"
#include "runtime/communicator.h"

namespace plimsoll {

/// The ranks of a group, for the communications of one stream. These run one at a time.
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

/// The facts about a communication that ranks exchange before they check or trace it.
struct RendezvousHeader {
  std::int64_t started = 0;  ///< ps: when this rank's stream had reached it
  std::int64_t kind = 0, reduction = 0, root = 0, dtype = 0, elements = 0, bytes = 0;
};

enum class PostedOpState : std::uint8_t { free, queued, rendezvous, moving, done };

struct PostedOp {
  PostedOpState state = PostedOpState::free;
  std::uint32_t generation = 0;
  Request request;
  MemberData data;
  CommunicationLabel label;
  MpiGroup* group = nullptr;      ///< collectives
  MPI_Comm pair = MPI_COMM_NULL;  ///< transfers: of all ranks
  int peer = 0, tag = 0;          ///< transfers
  Picoseconds posted, begin, end;
  // Once it has begun.
  std::array<MPI_Request, 2> requests = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  std::int64_t moved = 0;  ///< sums: elements of the chunks before this one
  std::int64_t chunk = 0;  ///< elements of this one
  int round = 0;           ///< MPI operations so far; of sums within the chunk
  std::vector<RendezvousHeader>
      headers;  ///< own first, then by member; transfers: own and the peer's
};

/// Begins to exchange headers with the other ranks of the communication.
void begin_rendezvous(PostedOp& op, Picoseconds now);
/// To be called when headers were exchanged: sets `begin`. Throws std::runtime_error where another
/// rank posted something else.
void check_members(PostedOp& op, std::int64_t rank);
/// Issues the next MPI operation; the operation before must be complete. Returns false where none
/// is left.
bool issue_next(PostedOp& op);

}  // namespace plimsoll
