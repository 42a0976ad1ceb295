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
#include "runtime/comm/transfer.h"
#include "runtime/rank_device.h"

namespace plimsoll {

/// Wall-clock times of a finished communication, from the communicator's epoch.
struct CommunicationTimes {
  Picoseconds posted;  ///< by this rank
  Picoseconds begin;   ///< the last participant had arrived at the rendezvous
  Picoseconds end;
};

/// Where a rank is, for messages when something stops, and on which stream it communicates.
struct CommunicationLabel {
  std::int64_t step = 0;     ///< from 0; messages count from 1, as progress does
  const char* routine = "";  ///< must outlive the communication
  /// Ticket of the previous communication on the same stream. This communication begins after its
  /// end. 0: there is none, or it was waited for.
  std::uint64_t after = 0;
  Stream stream = Stream::compute;
  /// Communicators of processes tell each other, before data moves, what each posted and when it
  /// arrived. They do so in the first step, to compare it, and in the traced step, to know `begin`
  /// exactly. In other steps `begin` is the arrival of this rank. All ranks set the same value.
  bool described = false;
  /// The call of a routine to which it belongs, numbered through the steps. Ends of rows that lie
  /// at one address are the same throughout a call, unless a collective writes them. 0: unknown.
  std::uint64_t call = 0;
};

/// The buffers that one rank gives to a collective and gets from it.
struct CollectiveOperand {
  DType dtype = DType::f32;
  std::int64_t elements = 0;   ///< of the whole
  std::byte* whole = nullptr;  ///< elements; reduce_scatter only reads it when `part` is given
  /// This rank's part (elements / ranks) in all_gather and reduce_scatter, where it lies outside
  /// `whole`; null: it lies in `whole`, at the rank's index in the group. The result of ring_shift
  /// and all_to_all, which has as many elements as `whole`.
  std::byte* part = nullptr;
  ExpertRows rows = {};  ///< for collectives of rows
};

/// One rank's handle. wait() waits up to the deadline. Posting waits for other ranks only where
/// rows of experts lie on a device: until their number is known, up to the deadline, too.
class Communicator {
 public:
  using Ticket = std::uint64_t;  ///< never 0

  virtual ~Communicator() = default;
  virtual std::string_view name() const = 0;
  /// The library that moves the data, with its version: "NCCL 2.28.9". Empty: it is the launcher's.
  virtual std::string library() const { return {}; }
  /// Posts an all_reduce, reduce_scatter, all_gather, reduce, broadcast, ring_shift, all_to_all or
  /// a collective of rows over the rank's group. reduce changes the root's operand only. Throws
  /// std::runtime_error where another member posted something else in its place.
  virtual Ticket post_collective(OpKind kind, const CollectiveParams& params,
                                 const CollectiveOperand& operand,
                                 const CommunicationLabel& label) = 0;
  /// Posts a transfer (`kind` is send or recv) to, or from, the rank that is stage_offset stages
  /// further, round the pipeline; 0 stands for the rank's partner (pipeline_peer). A send only
  /// reads the data. The n-th send and the n-th receive of a sender, a receiver and a direction (to
  /// a later or to an earlier stage) are one rendezvous.
  virtual Ticket post_transfer(OpKind kind, std::int64_t stage_offset, Bytes size, std::byte* data,
                               const CommunicationLabel& label) = 0;
  /// Blocks until the communication has ended. Every ticket is waited for exactly once. Throws
  /// EnvironmentError, which names rank, communication and step, after the deadline, and
  /// RankFailure where another rank failed.
  virtual CommunicationTimes wait(Ticket ticket) = 0;
  /// Tells the other ranks that this rank failed; their waits and posts throw. After abort() no
  /// thread of this process reads or writes this rank's memory.
  virtual void abort(const std::string& reason) = 0;
};

/// Thrown on ranks that wait for a rank that failed. It carries the failed rank's reason.
class RankFailure : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A rank of the local communicator that has a core of its own polls for this long before it
/// sleeps. That is ten to forty times the cost of waking up (25 to 100 us on a virtual machine), so
/// that only long waits pay it. Where ranks outnumber cores, they sleep at once.
inline constexpr std::chrono::microseconds kPollsBeforeSleep{1000};

/// A message about a deadline that has passed says of so many ranks what each did last.
inline constexpr std::size_t kMostDescribed = 16;

/// Returns the time since `epoch`.
inline Picoseconds time_since(std::chrono::steady_clock::time_point epoch) {
  const auto elapsed = std::chrono::steady_clock::now() - epoch;
  return Picoseconds(std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count() *
                     std::int64_t{1000});
}

/// Returns what member `index` of `size` gives to a collective and gets from it.
MemberData member_data(OpKind kind, const CollectiveOperand& operand, std::int64_t size,
                       std::int64_t index);

/// Returns the number of cores that this process may use.
std::int64_t available_cores();

/// Makes handles for ranks that are threads of this process; handle r is for the thread of rank r.
/// Reductions add in ascending rank order, so results are bitwise reproducible. The last rank to
/// arrive at a rendezvous does its work. `devices` is by rank, and must outlive the handles; empty:
/// operands lie in host memory. With devices, operands lie in memory that all of them reach.
/// Posting then waits for the kernels that the rank's device was given, and the device of the last
/// rank to arrive does the work.
std::vector<std::unique_ptr<Communicator>> make_local_communicators(
    const Grid& grid, std::chrono::milliseconds deadline,
    std::chrono::steady_clock::time_point epoch, std::span<RankDevice* const> devices = {});

}  // namespace plimsoll
