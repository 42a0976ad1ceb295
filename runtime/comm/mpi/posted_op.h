// A posted op is one communication of this rank from post to wait, with the MPI operations that
// carry it out.
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

/// An MpiGroup has the ranks of a group and the communicator for one stream. Its communications run
/// one at a time.
struct MpiGroup {
  Group group;
  Stream stream = Stream::compute;
  MPI_Comm comm = MPI_COMM_NULL;
  int size = 1, index = 0;
  std::vector<std::int64_t> ranks;  ///< ascending
  // Every sum uses these again.
  std::vector<std::byte> received, terms;
  std::vector<int> counts, displacements, even;
  std::vector<int> starts;
  std::vector<MemberData> parts;
};

/// A RendezvousHeader has the facts about a communication that ranks exchange, to check or trace
/// it.
struct RendezvousHeader {
  std::int64_t started = 0;  ///< ps: the time at which this rank's stream reached it
  std::int64_t kind = 0, reduction = 0, root = 0, shift = 0, dtype = 0, elements = 0, bytes = 0;
};

enum class PostedOpState : std::uint8_t { free, queued, rendezvous, moving, done };

struct PostedOp {
  PostedOpState state = PostedOpState::free;
  std::uint32_t generation = 0;
  Request request;
  MemberData data;
  CommunicationLabel label;
  std::int64_t post = 0;          ///< number of this post among all of the rank, from 1
  MpiGroup* group = nullptr;      ///< for collectives
  MPI_Comm pair = MPI_COMM_NULL;  ///< for transfers: the communicator of all ranks
  int peer = 0, tag = 0;          ///< for transfers
  Picoseconds posted, begin, end;
  // The next fields are set once it has begun.
  std::array<MPI_Request, 2> requests = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  std::int64_t moved = 0;  ///< sums: elements of the earlier chunks, which are done
  std::int64_t chunk = 0;  ///< sums: elements of the current chunk
  int round = 0;           ///< MPI operations issued so far; for sums, within the current chunk
  std::vector<RendezvousHeader>
      headers;  ///< this rank's first; then collectives: by member; transfers: the peer's
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
