// Processes are what train() needs when every rank of a job is a process of its own, on one host or
// on many.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/program.h"
#include "runtime/communicator.h"

namespace plimsoll {

class RankStatusBoard;

class Processes {
 public:
  virtual ~Processes() = default;
  virtual std::string_view name() const = 0;  ///< name of their communicator: "mpi"
  virtual std::string version() const = 0;    ///< version of the library: "Open MPI v4.1.4"
  virtual std::int64_t index() const = 0;     ///< the rank that this process is
  virtual std::int64_t size() const = 0;      ///< ranks of the job
  /// Returns one instant that all processes share, on the clock of this process.
  virtual std::chrono::steady_clock::time_point epoch() const = 0;
  /// Returns the name of each rank's host, by ascending rank. It is the same on all.
  virtual const std::vector<std::string>& hosts() const = 0;

  /// Returns this process' handle for a job's Programs. Every process must call it. Its waits are
  /// no longer than `deadline`. Operands lie in the memory of `device`, or of the host where it is
  /// null. Throws EnvironmentError where nothing can exchange them.
  virtual std::unique_ptr<Communicator> make_communicator(std::span<const Program> programs,
                                                          std::chrono::milliseconds deadline,
                                                          RankDevice* device) = 0;
  /// All processes are ready for the work. Until then, calls that make and free what all share may
  /// take ten deadlines, since processes take different times to get ready; from then on, one.
  virtual void are_ready() {}
  /// Returns when all have called it. Throws EnvironmentError after `deadline`.
  virtual void barrier(std::chrono::milliseconds deadline) = 0;
  /// Asks whether any process passes true, and does not wait. end_any() has to follow before the
  /// next question.
  virtual void begin_any(bool own) = 0;
  /// Returns on all processes whether any passed true to begin_any(). Throws EnvironmentError after
  /// `deadline`.
  virtual bool end_any(std::chrono::milliseconds deadline) = 0;
  bool any(bool own, std::chrono::milliseconds deadline) {
    begin_any(own);
    return end_any(deadline);
  }
  /// Returns the bytes that each process passed, by rank, on process 0, and nothing elsewhere.
  /// Throws EnvironmentError after `deadline`.
  virtual std::vector<std::string> gather(const std::string& bytes,
                                          std::chrono::milliseconds deadline) = 0;
  /// Returns on all processes the bytes that process 0 passed. Throws EnvironmentError after
  /// `deadline`.
  virtual std::string broadcast(const std::string& bytes, std::chrono::milliseconds deadline) = 0;
  /// Returns the first `size` of these processes as a job of their own, and null on the others.
  /// Every process calls it, and these processes must outlive the result.
  virtual std::unique_ptr<Processes> first(std::int64_t size) = 0;
  /// Returns what the ranks of this host tell each other (runtime/comm/rank_status.h). Null: they
  /// have no memory in common.
  virtual RankStatusBoard* status_board() = 0;
};

}  // namespace plimsoll
