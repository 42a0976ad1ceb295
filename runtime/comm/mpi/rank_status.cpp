// The status of the ranks of a host, in a shared window of MPI.
#include "runtime/comm/mpi/rank_status.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "runtime/comm/mpi/world.h"

namespace plimsoll {
namespace {

using Clock = std::chrono::steady_clock;

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

double seconds_since(std::int64_t then) { return double(now() - then) * 1e-9; }

}  // namespace

RankStatusBoard::RankStatusBoard(MPI_Comm comm) {
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
  own_ = new (memory) RankStatus;
  lives();
  std::vector<int> ranks(static_cast<std::size_t>(here));
  check_mpi(MPI_Allgather(&rank, 1, MPI_INT, ranks.data(), 1, MPI_INT, host_),
            "number the processes of this host");
  for (int one = 0; one < here; ++one) {
    MPI_Aint bytes = 0;
    int unit = 0;
    void* theirs = nullptr;
    check_mpi(MPI_Win_shared_query(window_, one, &bytes, &unit, &theirs), "find shared memory");
    ranks_.push_back({ranks[std::size_t(one)], static_cast<const RankStatus*>(theirs)});
  }
  all_ = here == size;
}

void RankStatusBoard::release() {
  MPI_Win_free(&window_);
  MPI_Comm_free(&host_);
}

std::int64_t RankStatusBoard::posts(std::string_view what, const CommunicationLabel& label) {
  own_->step.store(label.step, std::memory_order_relaxed);
  const std::int64_t before = own_->posts.fetch_add(1, std::memory_order_relaxed);
  const auto end = fmt::format_to_n(own_->last.data(), own_->last.size() - 1, "{} in routine {}",
                                    what, label.routine);
  *end.out = '\0';
  return before + 1;
}

void RankStatusBoard::waits_to(std::string_view what) {
  own_->posts.fetch_add(1, std::memory_order_relaxed);
  *fmt::format_to_n(own_->last.data(), own_->last.size() - 1, "{}", what).out = '\0';
  waits(true);
}

void RankStatusBoard::lives() { own_->alive.store(now(), std::memory_order_relaxed); }

std::string RankStatusBoard::describe(std::chrono::milliseconds deadline) const {
  std::string silent, computing, each;
  std::size_t described = 0;
  for (const auto& [rank, status] : ranks_) {
    const double age = seconds_since(status->alive.load(std::memory_order_relaxed));
    const bool waits = status->waits.load(std::memory_order_relaxed);
    const bool is_silent = 2 * age > std::chrono::duration<double>(deadline).count();
    if (is_silent) {
      silent += fmt::format("{}rank {} has given no sign for {:.1f} s", silent.empty() ? "" : ", ",
                            rank, age);
    } else if (!waits) {
      computing += fmt::format("{}rank {}", computing.empty() ? "" : ", ", rank);
    }
    if (++described > kMostDescribed) continue;
    // The other process may be writing: the copy ends where its array does.
    const auto end = std::find(status->last.begin(), status->last.end(), '\0');
    each += fmt::format("{}rank {}: {}, step {}, post {}: {}", each.empty() ? "" : "; ", rank,
                        is_silent ? "silent"
                        : waits   ? "waits"
                                  : "computes",
                        status->step.load(std::memory_order_relaxed) + 1,
                        status->posts.load(std::memory_order_relaxed),
                        std::string(status->last.begin(), end));
  }
  const std::string who = !silent.empty()      ? silent
                          : !computing.empty() ? computing + " still computes"
                          : all_               ? "all ranks wait"
                                               : "all ranks of this host wait";
  return fmt::format("{} ({})", who, each);
}

}  // namespace plimsoll
