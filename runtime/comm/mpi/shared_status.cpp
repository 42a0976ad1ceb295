// Each process makes its status in its part of the window, and finds those of the others.
#include "runtime/comm/mpi/shared_status.h"

#include <new>
#include <utility>
#include <vector>

#include "runtime/comm/mpi/world.h"

namespace plimsoll {

SharedRankStatus::SharedRankStatus(MPI_Comm comm) {
  int rank = 0, size = 0, here = 0;
  check_mpi(MPI_Comm_rank(comm, &rank), "number the processes");
  check_mpi(MPI_Comm_size(comm, &size), "count the processes");
  check_mpi(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host_),
            "find the processes of this host");
  check_mpi(MPI_Comm_size(host_, &here), "count the processes of this host");
  void* memory = nullptr;
  check_mpi(MPI_Win_allocate_shared(MPI_Aint(sizeof(RankStatus)), 1, MPI_INFO_NULL, host_, &memory,
                                    &window_),
            "share memory between the processes of this host");
  auto* const own = new (memory) RankStatus;
  std::vector<int> ranks(static_cast<std::size_t>(here));
  check_mpi(MPI_Allgather(&rank, 1, MPI_INT, ranks.data(), 1, MPI_INT, host_),
            "number the processes of this host");
  std::vector<RankStatusBoard::Known> known;
  for (int one = 0; one < here; ++one) {
    MPI_Aint bytes = 0;
    int unit = 0;
    void* theirs = nullptr;
    check_mpi(MPI_Win_shared_query(window_, one, &bytes, &unit, &theirs), "find shared memory");
    known.push_back({ranks[std::size_t(one)], static_cast<const RankStatus*>(theirs)});
  }
  board_.emplace(*own, std::move(known), here == size);
  board_->lives();
}

void SharedRankStatus::release() {
  board_.reset();
  MPI_Win_free(&window_);
  MPI_Comm_free(&host_);
}

}  // namespace plimsoll
