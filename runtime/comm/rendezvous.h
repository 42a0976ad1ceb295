// A rendezvous is one collective or transfer between ranks that are threads of this process. Posts
// of these ranks find each other on a channel.
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

/// A Request is the communication that one rank posts.
struct Request {
  OpKind kind = OpKind::all_reduce;
  CollectiveParams params;    ///< for collectives
  DType dtype = DType::f32;   ///< for collectives
  std::int64_t elements = 0;  ///< for collectives: elements of the whole
  Bytes bytes;                ///< for transfers
};

/// Returns whether the requests of two members are the same communication. A send and its receive
/// are.
bool agree(const Request& a, const Request& b);
/// Returns a text such as "all_reduce of 4096 f32 elements over mp" or "send of 8192 bytes".
std::string to_text(const Request& request);

struct Channel;

/// A Rendezvous is one communication of all members of a channel.
struct Rendezvous {
  struct Participant {
    bool posted = false;
    Request request;
    MemberData data;  ///< for transfers only `whole` is set
    std::int64_t step = 0;
    const char* routine = "";
    std::int64_t post = 0;  ///< number of this post among all of the rank, from 1
    /// By member of this channel: the number of collectives that this rank posted with that member
    /// before. Members compare them to detect that they posted in different orders.
    std::vector<std::uint64_t> shared_before;
  };
  Channel* channel = nullptr;
  std::vector<Participant> participants;  ///< by member of the channel
  std::size_t posted = 0;
  std::size_t arrived = 0;  ///< participants whose stream has reached it
  std::size_t to_wait = 0;  ///< participants that have not waited yet
  std::vector<Rendezvous*>
      /// the rendezvous that follow on a participant's stream; that participant arrives there when
      /// this one ends
      next;
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
