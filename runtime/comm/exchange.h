// Exchange: one collective or transfer in flight between ranks of this process, and the channel on
// which the ranks' posts find each other.
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

/// The request of one rank.
struct Request {
  OpKind kind = OpKind::all_reduce;
  CollectiveParams params;    ///< collectives
  DType dtype = DType::f32;   ///< collectives
  std::int64_t elements = 0;  ///< collectives: of the whole
  Bytes bytes;                ///< transfers
};

/// Whether two members' requests are the same communication (a send and its receive are).
bool agree(const Request& a, const Request& b);
/// "all_reduce of 4096 f32 elements over mp", "send of 8192 bytes"
std::string to_text(const Request& request);

struct Channel;

struct Exchange {
  struct Participant {
    bool posted = false;
    Request request;
    MemberData data;  ///< of transfers: the whole
    std::int64_t step = 0;
    const char* routine = "";
    /// Collectives this rank had posted before, by member of this channel it shared them with.
    std::vector<std::uint64_t> shared_before;
  };
  Channel* channel = nullptr;
  std::vector<Participant> participants;  ///< by member of the channel
  std::size_t posted = 0;
  std::size_t arrived = 0;      ///< posted, and the rank's stream has reached it
  std::size_t to_wait = 0;      ///< participants that have not waited yet
  std::vector<Exchange*> held;  ///< arrivals elsewhere that this one's completion lets happen
  Picoseconds begin, end;       ///< valid once done
  std::atomic<bool> done{false};
};

/// Where the n-th post of every member meets: one per set of collective members, one per directed
/// (sender, receiver) pair. The hub's lock protects it.
struct Channel {
  std::vector<std::int64_t> members;  ///< ranks: ascending, or {sender, receiver}
  std::vector<std::uint64_t> posts;   ///< so far, by member
  std::uint64_t first_open = 0;       ///< number of the exchange at open.front()
  std::deque<Exchange*> open;         ///< not yet posted by all, in order
  std::vector<Exchange*> spare;  ///< waited for by all: reused, so steady state allocates nothing
  std::vector<std::unique_ptr<Exchange>> all;

  explicit Channel(std::vector<std::int64_t> ranks);
  /// The exchange that the next post of `member` belongs to.
  Exchange& next(std::size_t member);
  /// After the last member posted: later posts belong to later exchanges.
  void close_first();
  void recycle(Exchange& exchange);
};

/// Moves the data of an exchange at which all have arrived; on `device`, where one is given, it is
/// only enqueued.
void perform(const Exchange& exchange, RankDevice* device);

}  // namespace plimsoll
