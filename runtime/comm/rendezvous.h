// Rendezvous: one collective or transfer between ranks that are threads of this process, and the
// channel on which the posts of these ranks find each other.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/units.h"
#include "graph/grid.h"
#include "graph/op.h"
#include "graph/tensor.h"
#include "runtime/comm/transfer.h"
#include "runtime/rank_device.h"

namespace plimsoll {

/// The communication that one rank posts.
struct Request {
  OpKind kind = OpKind::all_reduce;
  CollectiveParams params;    ///< collectives
  DType dtype = DType::f32;   ///< collectives
  std::int64_t elements = 0;  ///< collectives: of the whole
  Bytes bytes;                ///< transfers
};

/// Whether the requests of two members are the same communication. A send and its receive are.
bool agree(const Request& a, const Request& b);
/// "all_reduce of 4096 f32 elements over mp", "send of 8192 bytes"
std::string to_text(const Request& request);

struct Channel;

/// One communication of all members of a channel.
struct Rendezvous {
  struct Participant {
    bool posted = false;
    Request request;
    MemberData data;  ///< of transfers only the whole
    std::int64_t step = 0;
    const char* routine = "";
    /// By member of this channel: the collectives that this rank had posted before with that
    /// member.
    std::vector<std::uint64_t> shared_before;
  };
  Channel* channel = nullptr;
  std::vector<Participant> participants;  ///< by member of the channel
  std::size_t posted = 0;
  std::size_t arrived = 0;  ///< posted, and the rank's stream has reached it
  std::size_t to_wait = 0;  ///< participants that have not waited yet
  std::vector<Rendezvous*>
      next;                ///< next on a participant's stream: it arrives there when this ends
  Picoseconds begin, end;  ///< valid once done
  std::atomic<bool> done{false};
};

/// The n-th posts of all members of a channel are one rendezvous. There is a channel for each set
/// of members of collectives, and for each pair of sender and receiver. The lock of the
/// communicators' shared state protects it.
struct Channel {
  std::vector<std::int64_t> members;  ///< ranks: ascending, or {sender, receiver}
  std::vector<std::uint64_t> posts;   ///< so far, by member
  std::uint64_t first_open = 0;       ///< number of the rendezvous at open.front()
  std::deque<Rendezvous*> open;       ///< not yet posted by all members, in order
  std::vector<Rendezvous*> spare;     ///< to be used again, so that later steps allocate nothing
  std::vector<std::unique_ptr<Rendezvous>> all;

  explicit Channel(std::vector<std::int64_t> ranks);
  /// Returns the rendezvous to which the next post of `member` belongs.
  Rendezvous& next(std::size_t member);
  /// To be called when all members have posted on the first open rendezvous.
  void close_first();
  void recycle(Rendezvous& rendezvous);
};

/// Moves the data of a rendezvous at which all members have arrived. On a `device`, where one is
/// given, moving is only enqueued.
void perform(const Rendezvous& rendezvous, RankDevice* device);

}  // namespace plimsoll
