// Communicator: how one rank exchanges data with the others.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "graph/grid.h"
#include "graph/op.h"
#include "graph/tensor.h"
#include "runtime/rank_device.h"

namespace plimsoll {

/// Wall-clock of a finished communication, against the communicator's epoch (set_epoch).
struct CommunicationTimes {
  Picoseconds posted;  ///< by this rank
  Picoseconds begin;   ///< the last participant had arrived
  Picoseconds end;
};

/// Where a rank is, for messages when something stops, and what its stream still has to do.
struct CommunicationLabel {
  std::int64_t step = 0;     ///< from 0; messages count from 1, as progress does
  const char* routine = "";  ///< must outlive the communication
  /// Ticket of the previous communication on the same stream: this one does not begin before that
  /// one has completed. 0: none, or already waited for.
  std::uint64_t after = 0;
  Stream stream = Stream::compute;
  /// Communicators of processes exchange what each posted and when it got there before data moves:
  /// in the first step, where they compare it, and in the traced one, whose `begin` is exact then.
  /// Else `begin` is when this rank got there. The same on all ranks.
  bool described = false;
};

/// The buffers that one rank gives to a collective and gets from it.
struct CollectiveOperand {
  DType dtype = DType::f32;
  std::int64_t elements = 0;   ///< of the whole
  std::byte* whole = nullptr;  ///< elements; reduce_scatter only reads it when `part` is given
  /// This rank's elements/size of all_gather and reduce_scatter where they lie outside `whole`;
  /// null: in place, at its index in the group.
  std::byte* part = nullptr;
};

/// One rank's handle. Posting never waits for other ranks; wait() does, up to the deadline.
class Communicator {
 public:
  using Ticket = std::uint64_t;  ///< never 0

  virtual ~Communicator() = default;
  virtual std::string_view name() const = 0;
  /// The library that moves the data, with its version: "NCCL 2.28.9". Empty: there is none beside
  /// the launcher's.
  virtual std::string library() const { return {}; }
  /// all_reduce, reduce_scatter, all_gather, reduce or broadcast over the rank's group. reduce
  /// changes the root's operand only. Throws std::runtime_error when another member posted
  /// something else in its place.
  virtual Ticket post_collective(OpKind kind, const CollectiveParams& params,
                                 const CollectiveOperand& operand,
                                 const CommunicationLabel& label) = 0;
  /// To or from the rank that is stage_offset stages further, round the pipeline. Pairs in posting
  /// order per sender, receiver and direction (to a later or to an earlier stage).
  virtual Ticket post_send(std::int64_t stage_offset, Bytes size, const std::byte* data,
                           const CommunicationLabel& label) = 0;
  virtual Ticket post_recv(std::int64_t stage_offset, Bytes size, std::byte* data,
                           const CommunicationLabel& label) = 0;
  /// Blocks until done; every ticket is waited for exactly once. Throws EnvironmentError naming
  /// rank, communication and step when the deadline passes, RankFailure when another rank failed.
  virtual CommunicationTimes wait(Ticket ticket) = 0;
  /// Tells the other ranks that this one failed; their waits and posts throw. When it returns, no
  /// thread of this process reads or writes this rank's memory any more.
  virtual void abort(const std::string& reason) = 0;
};

/// Thrown on ranks that wait for one that failed; carries that rank's reason.
class RankFailure : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A rank of the local communicator with a core of its own looks for this long before it sleeps:
/// ten to forty times what waking up costs it (25 to 100 us on a virtual machine), so that only
/// waits which are long anyway pay for it. Where ranks outnumber cores, they sleep at once.
inline constexpr std::chrono::microseconds kLooksBeforeSleep{1000};

/// Cores this process may use.
std::int64_t available_cores();

/// Ranks as threads of this process. Reductions add in ascending rank order, so results are
/// bitwise reproducible; the last rank to arrive does the work. handles[r] is for rank r's thread.
/// `devices` by rank, which must outlive the handles: then operands are device memory that all the
/// devices reach, posting waits for what the rank's device has still to do, and the device of the
/// last rank to arrive does the work. Empty: host memory.
std::vector<std::unique_ptr<Communicator>> make_local_communicators(
    const Grid& grid, std::chrono::milliseconds deadline,
    std::chrono::steady_clock::time_point epoch, std::span<RankDevice* const> devices = {});

}  // namespace plimsoll
