// Questions and answers about the statuses of ranks are messages of MPI that no rank waits for.
#include "runtime/comm/mpi/status_exchange.h"

#include <algorithm>
#include <map>
#include <new>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/comm/mpi/world.h"

namespace plimsoll {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kQuestionTag = 1, kAnswerTag = 2;

static_assert(std::is_trivially_copyable_v<RankReport>, "processes send it as bytes");

int size_of(const std::vector<RankReport>& reports) {
  return int(reports.size() * sizeof(RankReport));
}

/// The ranks that wait poll MPI, and so hold the lock for a large part of the time.
bool lock_within(std::unique_lock<std::mutex>& guard, std::chrono::milliseconds limit) {
  for (const Clock::time_point until = Clock::now() + limit; !guard.try_lock();) {
    if (Clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

}  // namespace

StatusExchange::StatusExchange(MPI_Comm comm, const RankStatusBoard& board, std::mutex& lock)
    : board_(board), lock_(lock) {
  check_mpi(MPI_Comm_dup(comm, &comm_), "copy a communicator");
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "report errors");
  find_hosts();
  listen();
}

void StatusExchange::find_hosts() {
  int size = 0;
  check_mpi(MPI_Comm_size(comm_, &size), "count the processes");
  const int own = int(board_.reports().front().rank);
  std::vector<int> firsts(static_cast<std::size_t>(size));  // the first rank of its host, by rank
  check_mpi(MPI_Allgather(&own, 1, MPI_INT, firsts.data(), 1, MPI_INT, comm_), "exchange hosts");
  std::map<int, std::vector<int>> hosts;
  for (int rank = 0; rank < size; ++rank) hosts[firsts[std::size_t(rank)]].push_back(rank);
  hosts.erase(own);
  for (auto& [first, ranks] : hosts) others_.push_back({std::move(ranks), false});
}

void StatusExchange::listen() {
  check_mpi(MPI_Irecv(nullptr, 0, MPI_BYTE, MPI_ANY_SOURCE, kQuestionTag, comm_, &question_),
            "listen for questions");
}

void StatusExchange::release() {
  MPI_Cancel(&question_);
  MPI_Wait(&question_, MPI_STATUS_IGNORE);
  MPI_Comm_free(&comm_);
}

void StatusExchange::answer() {
  std::unique_lock guard(lock_, std::defer_lock);
  if (lock_within(guard, std::chrono::milliseconds(5))) answer_all();
}

void StatusExchange::answer_all() {
  for (;;) {
    int heard = 0;
    MPI_Status status = {};
    if (MPI_Test(&question_, &heard, &status) != MPI_SUCCESS || heard == 0) return;
    Message& answer = answers_.emplace_back();
    answer.reports = board_.reports();
    MPI_Isend(answer.reports.data(), size_of(answer.reports), MPI_BYTE, status.MPI_SOURCE,
              kAnswerTag, comm_, &answer.request);
    listen();
  }
}

void StatusExchange::send_questions() {
  for (std::size_t host = 0; host < others_.size(); ++host) {
    const std::vector<int>& ranks = others_[host].ranks;
    for (const int rank : {ranks.front(), ranks.back()}) {
      Message& question = questions_.emplace_back();
      question.host = host;
      question.reports.resize(ranks.size());
      MPI_Irecv(question.reports.data(), size_of(question.reports), MPI_BYTE, rank, kAnswerTag,
                comm_, &question.request);
      MPI_Request sent = MPI_REQUEST_NULL;
      MPI_Isend(nullptr, 0, MPI_BYTE, rank, kQuestionTag, comm_, &sent);
      MPI_Request_free(&sent);
      if (ranks.size() == 1) break;
    }
  }
}

bool StatusExchange::all_answered() {
  for (Message& question : questions_) {
    int heard = 0;
    if (question.request == MPI_REQUEST_NULL) continue;
    MPI_Test(&question.request, &heard, MPI_STATUS_IGNORE);
    if (heard != 0) others_[question.host].answered = true;
  }
  for (const Host& host : others_) {
    if (!host.answered) return false;
  }
  return true;
}

std::optional<std::vector<RankReport>> StatusExchange::ask() {
  std::unique_lock guard(lock_, std::defer_lock);
  if (!lock_within(guard, kAnswersWithin)) return std::nullopt;
  const Clock::time_point until = Clock::now() + kAnswersWithin;
  if (questions_.empty()) send_questions();
  // The ranks that are asked may ask, too.
  for (answer_all(); !all_answered() && Clock::now() < until; answer_all()) {
    guard.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (!lock_within(guard, kAnswersWithin)) return std::nullopt;
  }
  std::vector<RankReport> all;
  for (std::size_t host = 0; host < others_.size(); ++host) {
    const auto answer = std::ranges::find_if(questions_, [&](const Message& question) {
      return question.host == host && question.request == MPI_REQUEST_NULL;
    });
    if (answer != questions_.end()) {
      all.insert(all.end(), answer->reports.begin(), answer->reports.end());
      continue;
    }
    for (const int rank : others_[host].ranks) {
      RankReport& report = all.emplace_back();
      report.rank = rank;
      report.silent = RankReport::kNoAnswer;
    }
  }
  std::ranges::sort(all, {}, &RankReport::rank);
  return all;
}

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
