// MpiWorld is the MPI side of this process: initialisation, errors, and the one lock around all MPI
// calls.
#pragma once

#include <mpi.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/mpi/status_exchange.h"
#include "runtime/comm/rank_status.h"
#include "runtime/comm/waited.h"
#include "runtime/processes.h"

namespace plimsoll {

class StatusExchange;

/// A thread of each process watches its calls of MPI that block without a deadline, such as
/// starting MPI, and ends the process if another one keeps it waiting for too long, which it names.
/// For as long as the process runs, its thread also gives the signs of life of the board and
/// answers other hosts.
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

/// Throws EnvironmentError with MPI's text and `what`, where `code` is not MPI_SUCCESS.
void check_mpi(int code, const char* what);

/// Initialises MPI for threads that take turns (MPI_THREAD_SERIALIZED) and finds the host of each
/// process. A process has one. Clocks of other hosts are compared by round trips, and half of the
/// shortest is the error (Cristian 1989). Processes under one kernel share its monotonic clock.
///
/// Making and freeing a world or a communicator takes all processes, and MPI waits for them without
/// a deadline. Where one does not come, CallWatch ends the others.
class MpiWorld final : public Processes {
 public:
  /// `deadline` is that of CallWatch.
  MpiWorld(int& argc, char**& argv, std::chrono::milliseconds deadline);
  /// Finalises MPI. A process that failed must leave with _Exit instead, since others may not
  /// finalise.
  ~MpiWorld() override;
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  std::string_view name() const override { return "mpi"; }
  std::string version() const override;
  std::int64_t index() const override { return index_; }
  std::int64_t size() const override { return size_; }
  std::chrono::steady_clock::time_point epoch() const override { return epoch_; }
  const std::vector<std::string>& hosts() const override { return hosts_; }
  std::unique_ptr<Communicator> make_communicator(std::span<const Program> programs,
                                                  std::chrono::milliseconds deadline,
                                                  RankDevice* device) override;
  void are_ready() override { watch_->set_deadlines(1); }
  void barrier(std::chrono::milliseconds deadline) override;
  void begin_any(bool own) override;
  bool end_any(std::chrono::milliseconds deadline) override;
  std::vector<std::string> gather(const std::string& bytes,
                                  std::chrono::milliseconds deadline) override;

  std::string broadcast(const std::string& bytes, std::chrono::milliseconds deadline) override;
  std::unique_ptr<Processes> first(std::int64_t size) override;
  RankStatusBoard* status_board() override { return &board(); }

  /// The function that makes communicators for operands in device memory. Without it, there are
  /// none.
  using DeviceCommunicator = std::unique_ptr<Communicator> (*)(Processes& processes,
                                                               std::span<const Program> programs,
                                                               std::chrono::milliseconds deadline,
                                                               RankDevice& device);
  void set_device_communicator(DeviceCommunicator make) { device_communicator_ = make; }

  MPI_Comm comm() const { return comm_; }
  std::mutex& lock() { return *lock_; }
  RankStatusBoard& board() { return status_->board(); }
  CallWatch& watch() { return *watch_; }

 private:
  /// Makes the world of the processes of `comm`, which are the first of `whole`.
  MpiWorld(const MpiWorld& whole, MPI_Comm comm);
  void find_hosts();
  void agree_on_epoch();
  /// Polls until the request is complete. After the deadline it says which ranks did not come.
  void finish(MPI_Request& request, std::chrono::milliseconds deadline, const char* what);

  DeviceCommunicator device_communicator_ = nullptr;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int index_ = 0, size_ = 1;
  std::chrono::steady_clock::time_point epoch_;
  std::vector<std::string> hosts_;
  std::vector<std::string> kernels_;  ///< by rank: boot id of the kernel under which it runs
  // Shared by all worlds of this process. The thread of the watch uses the others, so it ends
  // first.
  std::shared_ptr<std::mutex> lock_;
  std::shared_ptr<SharedRankStatus> status_;
  std::shared_ptr<StatusExchange> exchange_;  ///< null: all processes are on one host
  std::shared_ptr<CallWatch> watch_;
  bool whole_ = true;  ///< whether it has initialised MPI
  MPI_Request any_ = MPI_REQUEST_NULL;
  int any_own_ = 0, any_all_ = 0;  ///< MPI reads and writes them until end_any()
};

}  // namespace plimsoll
