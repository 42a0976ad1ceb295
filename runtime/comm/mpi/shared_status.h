// The processes of a host share the memory of their statuses by a window of MPI.
#pragma once

#include <mpi.h>

#include <optional>

#include "runtime/comm/rank_status.h"

namespace plimsoll {

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
