// A thread of each process watches its calls of MPI that block without a deadline, such as starting
// MPI, and ends the process if another one keeps it waiting for too long, which it names.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "runtime/comm/rank_status.h"
#include "runtime/comm/waited.h"

namespace plimsoll {

class StatusExchange;

/// The watch of one process. For as long as the process runs, its thread also gives the signs of
/// life of the board and answers other hosts.
class CallWatch {
 public:
  /// Processes take different times to get ready, so a call may take so many deadlines at first.
  static constexpr int kDeadlines = 10;

  explicit CallWatch(std::chrono::milliseconds deadline);
  ~CallWatch();
  CallWatch(const CallWatch&) = delete;
  CallWatch& operator=(const CallWatch&) = delete;

  /// Until its rank is known, the process has the name that its launcher gave it.
  void set_rank(std::int64_t rank);
  /// Messages say what the ranks on `board` do, and the thread answers questions of other hosts by
  /// `exchange`. Null: there is none, or no longer.
  void set_board(RankStatusBoard* board, StatusExchange* exchange);

  /// Calls that begin from now on may take so many deadlines.
  void set_deadlines(int deadlines);

  /// A call that blocks, or several in a row, for as long as this object lives. Where that is
  /// longer than the limit, the process says who waits for whom, and ends with exit code 6. One
  /// thread makes such calls at a time.
  class Call {
   public:
    /// `what` follows "waited to" in the message.
    Call(CallWatch& watch, const char* what);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    CallWatch& watch_;
  };

 private:
  void look_after();
  [[noreturn]] void end_process() const;

  const std::chrono::milliseconds deadline_;
  std::mutex lock_;
  std::condition_variable stops_;
  bool stopping_ = false;
  std::optional<std::int64_t> rank_;
  RankStatusBoard* board_ = nullptr;
  StatusExchange* exchange_ = nullptr;
  int deadlines_ = kDeadlines;
  const char* what_ = nullptr;  ///< the call that blocks; null: none does
  Waited waited_;               ///< in this call
  std::thread thread_;
};

/// Returns "rank 3" where the launcher has numbered process `id`, else "process 4711".
std::string name_of_process(int id);
/// Returns those processes of this process' launcher on this host that are stopped (SIGSTOP, or a
/// debugger): "rank 1 is stopped, rank 3 is stopped". Empty: none is, or Linux does not say.
std::string stopped_processes();

}  // namespace plimsoll
