// The status of each rank of a host, in memory that these ranks share. A rank whose deadline has
// passed says by it which rank keeps it waiting.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/communicator.h"

namespace plimsoll {

/// The status of one rank. It alone writes, and others read at any time; a text may be read while
/// it changes.
struct RankStatus {
  std::atomic<std::int64_t> step = 0;
  /// Number of the communication or the meeting that `last` tells of, among those of this rank.
  std::atomic<std::int64_t> posts = 0;
  /// Nanoseconds of the host's steady clock at its last sign of life. A rank that has given none is
  /// not missed.
  std::atomic<std::int64_t> alive = std::numeric_limits<std::int64_t>::max();
  std::atomic<bool> waits = false;              ///< for others
  std::array<std::atomic<char>, 96> last = {};  ///< what it does; ends with a 0
};

/// One rank's view of the statuses of its host. They lie in memory that outlives the board.
class RankStatusBoard {
 public:
  struct Known {
    std::int64_t rank = 0;
    const RankStatus* status = nullptr;
  };
  /// `ranks`: those of this host, ascending. `all`: these are all ranks of the job.
  RankStatusBoard(RankStatus& own, std::vector<Known> ranks, bool all);

  /// This rank posts a communication now. Returns its number, from 1.
  std::int64_t posts(std::string_view what, const CommunicationLabel& label);
  void waits(bool waits) { own_.waits.store(waits, std::memory_order_relaxed); }
  /// This rank waits for all others to do `what`, until waits(false).
  void waits_to(std::string_view what);
  /// This rank is at the communication with this number, in that step (from 0). Its streams run
  /// behind its posts.
  void is_at(std::int64_t post, std::int64_t step, std::string_view what);
  /// A rank that has called it once has to call it at least twice in each deadline from then on.
  void lives();

  /// Says which ranks of this host have not lived for half of the deadline, else which wait for
  /// nobody, and then what each rank did last.
  std::string describe(std::chrono::milliseconds deadline) const;

 private:
  void write(std::string_view what);

  RankStatus& own_;
  std::vector<Known> ranks_;
  bool all_;
};

}  // namespace plimsoll
