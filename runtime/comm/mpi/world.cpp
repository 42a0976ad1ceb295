// MPI is initialised, and the processes agree on hosts and on a clock.
#include "runtime/comm/mpi/world.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "base/command_line.h"
#include "base/error.h"
#include "base/process.h"
#include "runtime/comm/mpi/communicator.h"
#include "runtime/comm/mpi/status_exchange.h"
#include "runtime/comm/waited.h"

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

using Clock = std::chrono::steady_clock;

constexpr int kClockTag = 1;
constexpr int kRoundTrips = 64;

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

std::int64_t nanoseconds(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

/// Returns the texts of all ranks, by rank, on every rank.
std::vector<std::string> all_texts(const std::string& mine, MPI_Comm comm, int size) {
  constexpr int kRoom = 256;
  std::array<char, kRoom> own = {};
  std::copy_n(mine.begin(), std::min<std::size_t>(mine.size(), kRoom - 1), own.begin());
  std::vector<char> all(std::size_t(size) * kRoom);
  check_mpi(MPI_Allgather(own.data(), kRoom, MPI_CHAR, all.data(), kRoom, MPI_CHAR, comm),
            "exchange host names");
  std::vector<std::string> texts;
  for (int rank = 0; rank < size; ++rank)
    texts.emplace_back(all.data() + std::size_t(rank) * kRoom);
  return texts;
}

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

void check_mpi(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text = {};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw EnvironmentError(fmt::format("MPI cannot {}: {}", what, text.data()));
}

MpiWorld::MpiWorld(int& argc, char**& argv, std::chrono::milliseconds deadline)
    : lock_(std::make_shared<std::mutex>()), watch_(std::make_shared<CallWatch>(deadline)) {
  const CallWatch::Call call(*watch_, "start MPI");
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided), "start");
  if (provided < MPI_THREAD_SERIALIZED) {
    throw EnvironmentError("this MPI does not let the threads of a process take turns");
  }
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &index_), "number the processes");
  watch_->set_rank(index_);
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "copy the communicator of all processes");
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "report errors");
  check_mpi(MPI_Comm_size(comm_, &size_), "count the processes");
  status_ = std::make_shared<SharedRankStatus>(comm_);
  if (!board().all()) {
    exchange_ = std::make_shared<StatusExchange>(comm_, board(), *lock_);
    board().set_others([exchange = exchange_.get()] { return exchange->ask(); });
  }
  // From here on the thread of the watch calls MPI, too.
  const std::lock_guard guard(*lock_);
  watch_->set_board(&board(), exchange_.get());
  find_hosts();
  agree_on_epoch();
}

MpiWorld::MpiWorld(const MpiWorld& whole, MPI_Comm comm)
    : device_communicator_(whole.device_communicator_),
      comm_(comm),
      index_(whole.index_),
      epoch_(whole.epoch_),
      hosts_(whole.hosts_),
      kernels_(whole.kernels_),
      lock_(whole.lock_),
      status_(whole.status_),
      exchange_(whole.exchange_),
      watch_(whole.watch_),
      whole_(false) {
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "report errors");
  check_mpi(MPI_Comm_size(comm_, &size_), "count the processes");
  hosts_.resize(std::size_t(size_));
  kernels_.resize(std::size_t(size_));
}

MpiWorld::~MpiWorld() {
  if (std::uncaught_exceptions() > 0) return;  // the process leaves without finalising
  const CallWatch::Call call(*watch_, whole_ ? "finish MPI" : "free a communicator");
  const std::lock_guard guard(*lock_);
  MPI_Comm_free(&comm_);
  if (!whole_) return;
  watch_->set_board(nullptr, nullptr);
  if (exchange_) exchange_->release();
  status_->release();
  MPI_Finalize();
}

std::unique_ptr<Processes> MpiWorld::first(std::int64_t size) {
  INVARIANT(size >= 1 && size <= size_, "some of these processes");
  MPI_Comm comm = MPI_COMM_NULL;
  const CallWatch::Call call(*watch_, "split the processes");
  const std::lock_guard guard(*lock_);
  check_mpi(MPI_Comm_split(comm_, index_ < size ? 0 : MPI_UNDEFINED, index_, &comm),
            "split the processes");
  if (comm == MPI_COMM_NULL) return nullptr;
  return std::unique_ptr<Processes>(new MpiWorld(*this, comm));
}

std::string MpiWorld::version() const {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text = {};
  int length = 0;
  check_mpi(MPI_Get_library_version(text.data(), &length), "name its version");
  const std::string all = text.data();
  return all.substr(0, all.find_first_of(",\n"));
}

void MpiWorld::find_hosts() {
  std::array<char, MPI_MAX_PROCESSOR_NAME> name = {};
  int length = 0;
  check_mpi(MPI_Get_processor_name(name.data(), &length), "name this host");
  hosts_ = all_texts(name.data(), comm_, size_);
  kernels_ = all_texts(boot_id(), comm_, size_);
}

// Process 0 is asked for its time by one after the other; the answer of the shortest round trip is
// taken to be from its middle.
void MpiWorld::agree_on_epoch() {
  std::int64_t start = nanoseconds(Clock::now());
  check_mpi(MPI_Bcast(&start, 1, MPI_INT64_T, 0, comm_), "agree on a time");
  std::int64_t offset = 0;  // of this clock, ahead of that of process 0
  for (int rank = 1; rank < size_; ++rank) {
    if (kernels_[std::size_t(rank)] == kernels_[0] && !kernels_[0].empty()) continue;
    if (index_ != 0 && index_ != rank) continue;
    std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
    for (int trip = 0; trip < kRoundTrips; ++trip) {
      std::int64_t theirs = 0;
      if (index_ == 0) {
        check_mpi(MPI_Recv(nullptr, 0, MPI_BYTE, rank, kClockTag, comm_, MPI_STATUS_IGNORE),
                  "compare clocks");
        theirs = nanoseconds(Clock::now());
        check_mpi(MPI_Send(&theirs, 1, MPI_INT64_T, rank, kClockTag, comm_), "compare clocks");
        continue;
      }
      const std::int64_t asked = nanoseconds(Clock::now());
      check_mpi(MPI_Send(nullptr, 0, MPI_BYTE, 0, kClockTag, comm_), "compare clocks");
      check_mpi(MPI_Recv(&theirs, 1, MPI_INT64_T, 0, kClockTag, comm_, MPI_STATUS_IGNORE),
                "compare clocks");
      const std::int64_t answered = nanoseconds(Clock::now());
      if (answered - asked >= shortest) continue;
      shortest = answered - asked;
      offset = asked + shortest / 2 - theirs;
    }
  }
  epoch_ = Clock::time_point(std::chrono::nanoseconds(start + offset));
}

void MpiWorld::finish(MPI_Request& request, std::chrono::milliseconds deadline, const char* what) {
  Waited waited;
  board().waits_to(what);
  for (int done = 0; done == 0;) {
    {
      const std::lock_guard guard(*lock_);
      check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), what);
    }
    if (done != 0) break;
    if (waited.so_far() > deadline) {
      throw EnvironmentError(fmt::format(
          "rank {} waited longer than the deadline of {} s to {}: {}", index_,
          std::chrono::duration<double>(deadline).count(), what, board().describe(deadline)));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  board().waits(false);
}

void MpiWorld::barrier(std::chrono::milliseconds deadline) {
  MPI_Request request = MPI_REQUEST_NULL;
  {
    const std::lock_guard guard(*lock_);
    check_mpi(MPI_Ibarrier(comm_, &request), "meet the other ranks");
  }
  finish(request, deadline, "meet the other ranks");
}

void MpiWorld::begin_any(bool own) {
  INVARIANT(any_ == MPI_REQUEST_NULL, "one question at a time");
  any_own_ = own ? 1 : 0;
  const std::lock_guard guard(*lock_);
  check_mpi(MPI_Iallreduce(&any_own_, &any_all_, 1, MPI_INT, MPI_MAX, comm_, &any_),
            "ask the other ranks");
}

bool MpiWorld::end_any(std::chrono::milliseconds deadline) {
  finish(any_, deadline, "hear whether another rank stops");
  return any_all_ != 0;
}

std::vector<std::string> MpiWorld::gather(const std::string& bytes,
                                          std::chrono::milliseconds deadline) {
  if (bytes.size() > std::size_t(std::numeric_limits<int>::max())) {
    throw EnvironmentError(
        fmt::format("rank {} measured {} bytes, more than MPI gathers", index_, bytes.size()));
  }
  const char* const what = "gather what was measured";
  const int length = int(bytes.size());
  std::vector<int> lengths(std::size_t(size_), 0);
  MPI_Request request = MPI_REQUEST_NULL;
  {
    const std::lock_guard guard(*lock_);
    check_mpi(MPI_Igather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, 0, comm_, &request),
              what);
  }
  finish(request, deadline, what);

  // One after the other, so that the sum may be longer than an int counts.
  std::vector<std::string> all;
  if (index_ != 0) {
    {
      const std::lock_guard guard(*lock_);
      check_mpi(MPI_Isend(bytes.data(), length, MPI_CHAR, 0, 0, comm_, &request), what);
    }
    finish(request, deadline, what);
    return all;
  }
  all.push_back(bytes);
  for (int rank = 1; rank < size_; ++rank) {
    std::string& theirs = all.emplace_back(std::size_t(lengths[std::size_t(rank)]), '\0');
    {
      const std::lock_guard guard(*lock_);
      check_mpi(MPI_Irecv(theirs.data(), int(theirs.size()), MPI_CHAR, rank, 0, comm_, &request),
                what);
    }
    finish(request, deadline, what);
  }
  return all;
}

std::string MpiWorld::broadcast(const std::string& bytes, std::chrono::milliseconds deadline) {
  if (bytes.size() > std::size_t(std::numeric_limits<int>::max())) {
    throw EnvironmentError(fmt::format("{} bytes are more than MPI shares", bytes.size()));
  }
  const char* const what = "share what process 0 decided";
  std::string all = index_ == 0 ? bytes : std::string();
  int length = int(all.size());
  MPI_Request request = MPI_REQUEST_NULL;
  {
    const std::lock_guard guard(*lock_);
    check_mpi(MPI_Ibcast(&length, 1, MPI_INT, 0, comm_, &request), what);
  }
  finish(request, deadline, what);
  all.resize(std::size_t(length));
  {
    const std::lock_guard guard(*lock_);
    check_mpi(MPI_Ibcast(all.data(), length, MPI_CHAR, 0, comm_, &request), what);
  }
  finish(request, deadline, what);
  return all;
}

std::unique_ptr<Communicator> MpiWorld::make_communicator(std::span<const Program> programs,
                                                          std::chrono::milliseconds deadline,
                                                          RankDevice* device) {
  if (device != nullptr) {
    if (device_communicator_ == nullptr) {
      throw EnvironmentError(
          "ranks of several processes rendezvous device memory by NCCL, without "
          "which this program was built");
    }
    return device_communicator_(*this, programs, deadline, *device);
  }
  const CallWatch::Call call(*watch_, "make a communicator");
  return make_mpi_communicator(*this, programs, deadline);
}

}  // namespace plimsoll
