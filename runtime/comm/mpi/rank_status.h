// The status of each rank of a host, in memory that these ranks share. A rank whose deadline has
// passed says by it which rank keeps it waiting.
#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/communicator.h"

namespace plimsoll {

/// The status of one rank. It alone writes, and others read at any time; a text may be read while
/// it changes.
struct RankStatus {
  std::atomic<std::int64_t> step = 0;
  std::atomic<std::int64_t> posts = 0;  ///< communications and waits of all ranks so far
  std::atomic<std::int64_t> alive = 0;  ///< nanoseconds of the host's steady clock
  std::atomic<bool> waits = false;      ///< for others
  std::array<char, 96> last = {};       ///< the last of these posts; ends with a 0
};

/// The board of the ranks of one host. Making and freeing it takes all processes of `comm`.
class RankStatusBoard {
 public:
  /// Throws EnvironmentError where MPI cannot share memory.
  explicit RankStatusBoard(MPI_Comm comm);
  RankStatusBoard(const RankStatusBoard&) = delete;
  RankStatusBoard& operator=(const RankStatusBoard&) = delete;
  /// Frees the shared memory. Not to be called where a rank failed, since others may not come.
  void release();

  /// Returns the number of this post, from 1.
  std::int64_t posts(std::string_view what, const CommunicationLabel& label);
  void waits(bool waits) { own_->waits.store(waits, std::memory_order_relaxed); }
  /// This rank waits for all others to do `what`, until waits(false).
  void waits_to(std::string_view what);
  /// To be called at least twice in a deadline while this process runs.
  void lives();

  /// Says which ranks of this host have not lived for half of the deadline, else which wait for
  /// nobody, and then what each rank did last.
  std::string describe(std::chrono::milliseconds deadline) const;

 private:
  struct Known {
    std::int64_t rank = 0;
    const RankStatus* status = nullptr;
  };
  MPI_Comm host_ = MPI_COMM_NULL;
  MPI_Win window_ = MPI_WIN_NULL;
  RankStatus* own_ = nullptr;
  std::vector<Known> ranks_;  ///< of this host, ascending
  bool all_ = false;          ///< whether every rank is on this host
};

}  // namespace plimsoll
