// Threads of this process act as the processes of a cluster.
#include "tests/runtime/thread_processes.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "runtime/comm/rank_status.h"

namespace plimsoll {
namespace {

using Clock = std::chrono::steady_clock;

/// A Job is what the threads of one job share.
struct Job {
  Job(std::vector<std::string> names, const MakeCommunicator& maker, Clock::time_point start)
      : hosts(std::move(names)), make(maker), epoch(start), statuses(hosts.size()) {}

  std::vector<std::string> hosts;
  const MakeCommunicator& make;
  Clock::time_point epoch;
  std::deque<RankStatus> statuses;  ///< by rank
  std::mutex lock;
  std::condition_variable changed;
  struct Round {
    std::vector<std::string> texts;
    std::size_t come = 0, left = 0;
  };
  std::map<std::uint64_t, Round> rounds;
  std::map<std::uint64_t, std::shared_ptr<Job>> parts;
  bool failed = false;
};

class ThreadProcess final : public Processes {
 public:
  ThreadProcess(std::shared_ptr<Job> job, std::int64_t index)
      : job_(std::move(job)),
        index_(index),
        board_(job_->statuses[std::size_t(index)], known(*job_), true) {}

  std::string_view name() const override { return "threads"; }
  std::string version() const override { return "threads of one process"; }
  std::int64_t index() const override { return index_; }
  std::int64_t size() const override { return std::int64_t(job_->hosts.size()); }
  Clock::time_point epoch() const override { return job_->epoch; }
  const std::vector<std::string>& hosts() const override { return job_->hosts; }

  std::unique_ptr<Communicator> make_communicator(std::span<const Program> programs,
                                                  std::chrono::milliseconds deadline,
                                                  RankDevice* device) override {
    return job_->make(*this, programs, deadline, device);
  }
  void barrier(std::chrono::milliseconds deadline) override { exchange({}, deadline); }
  void begin_any(bool own) override { asks_ = own ? "1" : ""; }
  bool end_any(std::chrono::milliseconds deadline) override {
    const std::vector<std::string> all = exchange(asks_, deadline);
    return std::any_of(all.begin(), all.end(), [](const auto& text) { return !text.empty(); });
  }
  std::vector<std::string> gather(const std::string& bytes,
                                  std::chrono::milliseconds deadline) override {
    std::vector<std::string> all = exchange(bytes, deadline);
    return index_ == 0 ? all : std::vector<std::string>();
  }
  std::string broadcast(const std::string& bytes, std::chrono::milliseconds deadline) override {
    return exchange(index_ == 0 ? bytes : std::string(), deadline)[0];
  }
  std::unique_ptr<Processes> first(std::int64_t size) override {
    const std::lock_guard guard(job_->lock);
    std::shared_ptr<Job>& part = job_->parts[parts_++];
    if (!part) {
      const auto& all = job_->hosts;
      part = std::make_shared<Job>(std::vector(all.begin(), all.begin() + size), job_->make,
                                   job_->epoch);
    }
    return index_ < size ? std::make_unique<ThreadProcess>(part, index_) : nullptr;
  }
  RankStatusBoard* status_board() override { return &board_; }

 private:
  static std::vector<RankStatusBoard::Known> known(const Job& job) {
    std::vector<RankStatusBoard::Known> ranks;
    for (const RankStatus& status : job.statuses)
      ranks.push_back({std::int64_t(ranks.size()), &status});
    return ranks;
  }
  /// Returns the text that each process passed.
  std::vector<std::string> exchange(const std::string& text, std::chrono::milliseconds deadline) {
    std::unique_lock guard(job_->lock);
    const std::uint64_t number = rounds_++;
    Job::Round& round = job_->rounds[number];
    round.texts.resize(job_->hosts.size());
    round.texts[std::size_t(index_)] = text;
    ++round.come;
    job_->changed.notify_all();
    const bool all = job_->changed.wait_for(
        guard, deadline, [&] { return job_->failed || round.come == round.texts.size(); });
    if (job_->failed) throw RankFailure("another process failed");
    if (!all) throw EnvironmentError("a process did not come");
    std::vector<std::string> texts = round.texts;
    if (++round.left == texts.size()) job_->rounds.erase(number);
    return texts;
  }

  std::shared_ptr<Job> job_;
  std::int64_t index_;
  RankStatusBoard board_;
  std::string asks_;
  std::uint64_t rounds_ = 0, parts_ = 0;
};

void fail(Job& job) {
  const std::lock_guard guard(job.lock);
  job.failed = true;
  job.changed.notify_all();
  for (const auto& [number, part] : job.parts) fail(*part);
}

}  // namespace

void run_as_processes(const std::vector<std::string>& hosts, const MakeCommunicator& make,
                      const std::function<void(Processes& processes)>& work) {
  const auto job = std::make_shared<Job>(hosts, make, Clock::now());
  std::exception_ptr reason;
  std::mutex lock;
  {
    std::vector<std::jthread> threads;
    for (std::size_t index = 0; index < hosts.size(); ++index) {
      threads.emplace_back([&, index] {
        try {
          ThreadProcess process(job, std::int64_t(index));
          work(process);
        } catch (...) {
          {
            const std::lock_guard guard(lock);
            if (!reason) reason = std::current_exception();
          }
          fail(*job);
        }
      });
    }
  }
  if (reason) std::rethrow_exception(reason);
}

}  // namespace plimsoll
