// Calls of MPI that block are limited in time by a thread that MPI does not know.
#include "runtime/comm/mpi/call_watch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/command_line.h"
#include "base/error.h"
#include "base/process.h"
#include "runtime/comm/mpi/status_exchange.h"

namespace plimsoll {
namespace {

constexpr std::chrono::milliseconds kSignOfLife{100};

std::string host_name() {
  std::array<char, 256> name = {};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "this host";
}

std::string limit_text(int deadlines, double seconds) {
  if (deadlines == 1) return fmt::format("the deadline of {} s", seconds);
  return fmt::format("{} s, {} times the deadline,", seconds, deadlines);
}

/// Variables in which launchers pass the rank: by PMIx, by PMI, and srun by itself.
constexpr std::array<std::string_view, 3> kRankIn = {"PMIX_RANK", "PMI_RANK", "SLURM_PROCID"};

}  // namespace

CallWatch::CallWatch(std::chrono::milliseconds deadline) : deadline_(deadline) {
  thread_ = std::thread([this] { look_after(); });
}

CallWatch::~CallWatch() {
  {
    const std::lock_guard guard(lock_);
    stopping_ = true;
  }
  stops_.notify_all();
  thread_.join();
}

void CallWatch::set_rank(std::int64_t rank) {
  const std::lock_guard guard(lock_);
  rank_ = rank;
}

void CallWatch::set_board(RankStatusBoard* board, StatusExchange* exchange) {
  const std::lock_guard guard(lock_);
  board_ = board;
  exchange_ = exchange;
  if (board_ != nullptr && what_ != nullptr) board_->waits_to(what_);
}

void CallWatch::set_deadlines(int deadlines) {
  const std::lock_guard guard(lock_);
  deadlines_ = deadlines;
}

CallWatch::Call::Call(CallWatch& watch, const char* what) : watch_(watch) {
  const std::lock_guard guard(watch_.lock_);
  watch_.what_ = what;
  watch_.waited_ = {};
  if (watch_.board_ != nullptr) watch_.board_->waits_to(what);
}

CallWatch::Call::~Call() {
  const std::lock_guard guard(watch_.lock_);
  watch_.what_ = nullptr;
  if (watch_.board_ != nullptr) watch_.board_->waits(false);
}

void CallWatch::look_after() {
  std::unique_lock guard(lock_);
  while (!stopping_) {
    if (board_ != nullptr) board_->lives();
    if (exchange_ != nullptr) exchange_->answer();
    if (what_ != nullptr && waited_.so_far() > deadlines_ * deadline_) end_process();
    stops_.wait_for(guard, kSignOfLife);
  }
}

// Nothing is unwound and MPI is not finalised: its calls are what blocks.
void CallWatch::end_process() const {
  const auto limit = deadlines_ * deadline_;
  const std::string who = rank_ ? fmt::format("rank {}", *rank_) : name_of_process(getpid());
  // The call that blocks has MPI's lock: other hosts cannot be asked.
  std::string others =
      board_ != nullptr ? describe(board_->reports(), limit, board_->all()) : stopped_processes();
  if (others.empty()) others = "another process of the job has not come";
  print_note(fmt::format("{}: {} on {} waited longer than {} to {}: {}\n",
                         program_invocation_short_name, who, host_name(),
                         limit_text(deadlines_, std::chrono::duration<double>(limit).count()),
                         what_, others));
  std::_Exit(int(ExitCode::environment));
}

std::string name_of_process(int id) {
  std::ifstream file(fmt::format("/proc/{}/environ", id));
  for (std::string variable; std::getline(file, variable, '\0');) {
    const std::size_t equals = variable.find('=');
    const auto name = std::string_view(variable).substr(0, equals);
    if (std::find(kRankIn.begin(), kRankIn.end(), name) == kRankIn.end()) continue;
    const std::string rank = variable.substr(std::min(equals, variable.size() - 1) + 1);
    const bool numbered =
        !rank.empty() && rank.find_first_not_of("0123456789") == std::string::npos;
    if (numbered) return "rank " + rank;
  }
  return fmt::format("process {}", id);
}

std::string stopped_processes() {
  const int launcher = getppid();
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    int id = 0;
    const auto [stop, bad] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (bad != std::errc() || stop != name.data() + name.size()) continue;
    const ProcessState found = process_state(id);
    const bool stopped = found.state == 'T' || found.state == 't';
    if (stopped && found.parent == launcher) names.push_back(name_of_process(id) + " is stopped");
  }
  std::sort(names.begin(), names.end());
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace plimsoll
