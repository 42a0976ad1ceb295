// The communications that a rank has enqueued on its GPU, which carries them out later.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/units.h"

namespace plimsoll {

/// A communication that was enqueued. Its events are used again for another one.
struct NcclOp {
  cudaEvent_t posted = nullptr;                ///< the kernels before it are over
  cudaEvent_t begin = nullptr, end = nullptr;  ///< on its own stream
  cudaEvent_t wait = nullptr;  ///< the kernels before the rank's wait for it are over
  ncclComm_t comm = nullptr;
  bool timed = false;
  bool waiting = false;    ///< its ticket was not waited for yet
  bool in_flight = false;  ///< it was enqueued, and its end was not seen
  bool awaited = false;    ///< the rank's kernels wait for it, as far as was seen
  Picoseconds posted_at;
  std::uint32_t generation = 0;
  std::int64_t number = 0;  ///< among all of the rank, from 1
  std::int64_t step = 0;
  const char* routine = "";
  std::string what;  ///< "run all_reduce of 16 elements", after "NCCL to"
};

/// All ops of a rank, by index. One thread uses them.
class PostedOps {
 public:
  PostedOps() = default;
  ~PostedOps();
  PostedOps(const PostedOps&) = delete;
  PostedOps& operator=(const PostedOps&) = delete;

  /// Returns the index of an op that is used by nothing, and numbers it.
  std::uint32_t add();
  NcclOp& operator[](std::uint32_t index) { return ops_[index]; }
  /// Its event `end` is on its stream now.
  void enqueued(std::uint32_t index);
  /// The rank's kernels wait for it, behind its event `wait`.
  void awaits(std::uint32_t index);
  /// Nobody needs its ticket any more.
  void waited(std::uint32_t index);
  /// Returns the op that was posted first among those that are not over. Null: all are over.
  const NcclOp* oldest();
  /// Returns the op that is not over and that the rank's kernels wait for first. Null: all are
  /// over.
  const NcclOp* first_awaited();

 private:
  /// Returns the first op of a queue that is not over, and drops those before it.
  const NcclOp* first_of(std::deque<std::uint32_t>& queue, bool NcclOp::*queued);
  void free_unused(std::uint32_t index);

  std::deque<NcclOp> ops_;  ///< by index; references stay valid
  std::vector<std::uint32_t> free_;
  std::deque<std::uint32_t> in_flight_;  ///< in the order of their posts
  std::deque<std::uint32_t> awaited_;    ///< in the order of the waits
  std::int64_t count_ = 0;
};

}  // namespace plimsoll
