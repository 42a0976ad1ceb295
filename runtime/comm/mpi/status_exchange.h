// Processes of a host share the memory of their statuses, and ask processes of other hosts what
// their ranks do. A rank whose deadline has passed finds by it which rank keeps it waiting.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/comm/rank_status.h"

namespace plimsoll {

/// Making and releasing it takes all processes of a communicator. Two processes of each host are
/// asked, so that one of them may be the one that has stopped. MPI is called under `lock`.
class StatusExchange {
 public:
  /// An answer takes so long at most, about ten times as long as CallWatch takes to give it.
  static constexpr std::chrono::milliseconds kAnswersWithin{1000};

  StatusExchange(MPI_Comm comm, const RankStatusBoard& board, std::mutex& lock);
  StatusExchange(const StatusExchange&) = delete;
  StatusExchange& operator=(const StatusExchange&) = delete;
  /// Not to be called where a rank failed, since others may not come.
  void release();

  /// Answers the questions that have come. Does nothing where MPI is busy for some milliseconds.
  void answer();
  /// Returns what the ranks of all other hosts do, by rank. Those of a host that gives no answer
  /// are marked so. Nothing: MPI is busy, so that it cannot ask. After it has asked, the processes
  /// cannot finish together.
  std::optional<std::vector<RankReport>> ask();

 private:
  struct Host {
    std::vector<int> ranks;  ///< ascending
    bool answered = false;
  };
  struct Message {
    std::vector<RankReport> reports;
    MPI_Request request = MPI_REQUEST_NULL;
    std::size_t host = 0;  ///< that is asked
  };

  void find_hosts();
  void listen();
  // Under the lock.
  void answer_all();
  void send_questions();
  bool all_answered();

  const RankStatusBoard& board_;
  std::mutex& lock_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::vector<Host> others_;
  MPI_Request question_ = MPI_REQUEST_NULL;
  // MPI reads and writes these until the process ends: only a run that failed has any.
  std::deque<Message> questions_, answers_;
};

/// Making and releasing it takes all processes of a communicator.
class SharedRankStatus {
 public:
  /// Throws EnvironmentError where MPI cannot share memory.
  explicit SharedRankStatus(MPI_Comm comm);
  SharedRankStatus(const SharedRankStatus&) = delete;
  SharedRankStatus& operator=(const SharedRankStatus&) = delete;
  /// Frees the shared memory, and with it what the board reads. Not to be called where a rank
  /// failed, since others may not come.
  void release();

  RankStatusBoard& board() { return *board_; }

 private:
  MPI_Comm host_ = MPI_COMM_NULL;
  MPI_Win window_ = MPI_WIN_NULL;
  std::optional<RankStatusBoard> board_;
};

}  // namespace plimsoll
