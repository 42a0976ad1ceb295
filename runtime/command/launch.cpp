// The command line of mpirun or srun is made and run.
#include "runtime/command/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <system_error>

#include "base/command_line.h"
#include "base/error.h"
#include "base/process.h"

namespace plimsoll {
namespace {

/// A launcher gives the code of the rank that failed. Where a signal ended the rank, that is this
/// number and the signal's.
constexpr int kBySignal = 128;

/// Signals that are passed on. mpirun kills its ranks a second after a signal that asks it to end,
/// so the first one goes to the ranks as SIGUSR1, which launchers pass on and ranks answer as they
/// answer SIGTERM (command_line/interrupt.h).
constexpr std::array kPassedOn = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

/// A SIGHUP that is ignored, as under nohup(1), is left out: sigtimedwait would return it.
sigset_t watched_signals() {
  struct sigaction of_hang_up = {};
  sigaction(SIGHUP, nullptr, &of_hang_up);
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kPassedOn) {
    if (signal != SIGHUP || of_hang_up.sa_handler != SIG_IGN) sigaddset(&set, signal);
  }
  sigaddset(&set, SIGCHLD);
  return set;
}

/// Becomes the launcher, in a process group of its own: what a terminal sends comes to its parent
/// alone. The parent's death would leave the ranks behind.
[[noreturn]] void become(char* const* argv, const sigset_t& before, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) std::_Exit(kBySignal + SIGTERM);
  setpgid(0, 0);
  std::signal(SIGXFSZ, SIG_DFL);  // run_program() ignores it
  // A process group in the background that reads from its terminal is stopped.
  if (isatty(STDIN_FILENO) != 0) {
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  execvp(argv[0], argv);
  std::fprintf(stderr, "cannot start %s: %s\n", argv[0], std::strerror(errno));
  std::_Exit(int(ExitCode::environment));
}

/// Whether processes that the launcher started itself have ended, and none of them is alive. A
/// launcher that works asks for the status of each one that ends, after which there is none.
bool has_only_ended_children(pid_t launcher) {
  if (process_state(launcher).state == 'T') return false;
  bool ended = false;
  std::error_code error;
  for (std::filesystem::directory_iterator thread(fmt::format("/proc/{}/task", launcher), error),
       end;
       !error && thread != end; thread.increment(error)) {
    std::ifstream file(thread->path() / "children");
    for (pid_t child = 0; file >> child;) {
      const char state = process_state(child).state;
      if (state != 'Z' && state != 'X') return false;
      ended = true;
    }
  }
  return ended;
}

/// Finds a launcher that hangs. Where a rank ends while it starts MPI, mpirun of Open MPI 4.1.4
/// with PMIx 4.2.2 may wait for ever for a lock in PMIx_server_finalize, and ignores SIGTERM then.
class HangWatch {
 public:
  static constexpr std::chrono::milliseconds kLook{200};
  static constexpr int kLooks = 50;  ///< 10 s, but more where the machine stood still

  /// Returns whether the launcher had only ended children `kLooks` times in a row.
  bool look(pid_t launcher) {
    looks_ = has_only_ended_children(launcher) ? looks_ + 1 : 0;
    return looks_ >= kLooks;
  }

 private:
  int looks_ = 0;
};

/// How the launcher ended.
struct Ending {
  int status = 0;      ///< as waitpid says it
  int signal = 0;      ///< SIGHUP, SIGINT or SIGTERM, which this process got; 0: it got none
  bool hangs = false;  ///< it was killed, since it did not end after its processes
};

Ending wait_for(pid_t child, const sigset_t& signals) {
  const timespec interval{0, std::chrono::nanoseconds(HangWatch::kLook).count()};
  HangWatch watch;
  for (Ending ending;;) {
    const int signal = sigtimedwait(&signals, nullptr, &interval);
    if (signal < 0 && !ending.hangs && watch.look(child)) {
      ending.hangs = true;
      kill(child, SIGKILL);
    }
    const bool asks_to_stop = signal == SIGHUP || signal == SIGINT || signal == SIGTERM;
    if (asks_to_stop && ending.signal == 0) {
      print_note("the ranks are asked to stop; a second signal ends them at once\n");
      ending.signal = signal;
      kill(child, SIGUSR1);
    } else if (signal > 0 && signal != SIGCHLD && signal != SIGHUP) {  // which may come twice
      kill(child, asks_to_stop ? SIGTERM : signal);
    }
    if (waitpid(child, &ending.status, WNOHANG) == child &&
        (WIFEXITED(ending.status) || WIFSIGNALED(ending.status)))
      return ending;
  }
}

ExitCode code_of(const std::string& launcher, const Ending& ending) {
  const int code =
      WIFEXITED(ending.status) ? WEXITSTATUS(ending.status) : kBySignal + WTERMSIG(ending.status);
  const bool by_signal = code > kBySignal;
  if (ending.hangs) {
    throw EnvironmentError(
        fmt::format("{} hung, and was killed: its processes had ended {} s before; what the ranks "
                    "said is above",
                    launcher, (HangWatch::kLook * HangWatch::kLooks).count() / 1000));
  }
  // mpirun that is ended itself gives 1.
  if (ending.signal != 0 && (by_signal || code == 1)) return ExitCode(kBySignal + ending.signal);
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {  // a rank answered it
    if (code == kBySignal + signal) return ExitCode(code);
  }
  const char* const name = by_signal ? sigdescr_np(code - kBySignal) : nullptr;
  if (name == nullptr) return ExitCode(code);
  throw EnvironmentError(fmt::format("{} ended with {}: perhaps signal {} ({}) ended a rank",
                                     launcher, code, code - kBySignal, name));
}

}  // namespace

std::vector<std::string> launch_command(const std::string& launcher, std::int64_t ranks,
                                        const std::string& program,
                                        const std::vector<std::string>& arguments) {
  std::vector<std::string> command;
  std::istringstream words(launcher);
  for (std::string word; words >> word;) command.push_back(word);
  const std::string name =
      command.empty() ? "" : std::filesystem::path(command[0]).filename().string();
  if (name != "mpirun" && name != "srun") {
    throw UsageError(
        fmt::format("--launcher: found \"{}\"; local, mpirun and srun are allowed, the last two "
                    "with their options after them",
                    launcher));
  }
  command.insert(command.end(), {"-n", std::to_string(ranks), program});
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

ExitCode launch(const std::string& launcher, std::int64_t ranks, const std::string& name,
                const std::vector<std::string>& arguments) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) throw EnvironmentError("cannot find the running executable: " + error.message());
  const std::string program = (self.parent_path() / name).string();
  const std::vector<std::string> command = launch_command(launcher, ranks, program, arguments);
  if (!std::filesystem::exists(program)) {
    throw EnvironmentError(program + " is missing: this build found no MPI");
  }
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  std::fflush(nullptr);
  sigset_t before;
  const sigset_t signals = watched_signals();
  std::signal(SIGCHLD, SIG_DFL);  // where it is ignored, the end of a child is not told
  sigprocmask(SIG_BLOCK, &signals, &before);
  const pid_t self_id = getpid(), child = fork();
  if (child == 0) become(argv.data(), before, self_id);
  if (child < 0) {
    throw EnvironmentError(fmt::format("cannot start {}: {}", command[0], std::strerror(errno)));
  }
  const Ending ending = wait_for(child, signals);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  return code_of(command[0], ending);
}

std::vector<std::string> without_launcher(int argc, char** argv) {
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--launcher") {
      ++i;
    } else if (!word.starts_with("--launcher=")) {
      words.push_back(word);
    }
  }
  return words;
}

Verdict fits_placement(std::int64_t devices_per_node, std::span<const std::string> hosts) {
  std::map<std::string, std::size_t> first_on;  // by host: its first rank
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const std::size_t node = rank / std::size_t(devices_per_node);
    const std::size_t first_of_node = node * std::size_t(devices_per_node);
    if (hosts[rank] != hosts[first_of_node]) {
      return Verdict::no(fmt::format(
          "ranks {} and {} are on hosts {} and {}; the plan puts {} ranks on each node, in order",
          first_of_node, rank, hosts[first_of_node], hosts[rank], devices_per_node));
    }
    const std::size_t other = first_on.try_emplace(hosts[rank], rank).first->second;
    if (other / std::size_t(devices_per_node) != node) {
      return Verdict::no(fmt::format(
          "ranks {} and {} share host {}; the plan puts them on nodes {} and {}, {} rank{} on each",
          other, rank, hosts[rank], other / std::size_t(devices_per_node), node, devices_per_node,
          devices_per_node == 1 ? "" : "s"));
    }
  }
  return Verdict::yes();
}

}  // namespace plimsoll
