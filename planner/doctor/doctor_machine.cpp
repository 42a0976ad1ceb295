// Doctor: the machine that this process runs on. Programs and the CUDA driver are asked in
// processes of their own, which are ended when they do not answer.
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <sstream>

#include "planner/doctor/doctor.h"

/// The table of the dynamic linker. The linker defines it for each program and library that can
/// load others; in a program that is linked statically it has no address.
extern "C" const char _DYNAMIC[] __attribute__((weak));  // NOLINT(bugprone-reserved-identifier)

namespace plimsoll {
namespace {

constexpr std::chrono::seconds kPatience{10};
constexpr std::size_t kMostOutput = std::size_t{1} << 20;

/// Runs `body` in a child process and returns its standard output. The code is 124 for a process
/// that was ended, and 127 where the body returned.
DoctorMachine::Output in_child(const std::function<void()>& body) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return {127, ""};
  const pid_t child = fork();
  if (child < 0) {
    close(ends[0]);
    close(ends[1]);
    return {127, ""};
  }
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    body();
    _exit(127);
  }
  close(ends[1]);
  DoctorMachine::Output output;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  bool ended = false;
  std::array<char, 4096> buffer;
  while (!ended) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    pollfd waiting{ends[0], POLLIN, 0};
    if (left.count() <= 0) break;
    const int ready = poll(&waiting, 1, int(left.count()));
    if (ready < 0 && errno != EINTR) break;
    if (ready <= 0) continue;
    const ssize_t count = read(ends[0], buffer.data(), buffer.size());
    if (count <= 0 || output.text.size() > kMostOutput) ended = true;
    if (count > 0) output.text.append(buffer.data(), std::size_t(count));
  }
  close(ends[0]);
  if (!ended) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  output.code = !ended ? 124 : WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return output;
}

bool in_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

std::optional<DoctorMachine::Output> run_program(const std::vector<std::string>& command) {
  if (!in_path(command[0])) return std::nullopt;
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  return in_child([&] { execvp(argv[0], argv.data()); });
}

template <class Function>
Function* symbol(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

/// Prints "present error version devices pairs" in the child. The signatures are those of the CUDA
/// driver API (cuda.h), whose handles of devices are int.
void ask_driver() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    dprintf(STDOUT_FILENO, "driver 0 0 0 0 0\n");
    _exit(0);
  }
  auto* init = symbol<int(unsigned)>(library, "cuInit");
  auto* version = symbol<int(int*)>(library, "cuDriverGetVersion");
  auto* count = symbol<int(int*)>(library, "cuDeviceGetCount");
  auto* device = symbol<int(int*, int)>(library, "cuDeviceGet");
  auto* peer = symbol<int(int*, int, int)>(library, "cuDeviceCanAccessPeer");
  int error = init == nullptr || version == nullptr || count == nullptr ? -1 : init(0);
  int newest = 0, devices = 0, unreachable = 0;
  if (error == 0) error = version(&newest);
  if (error == 0) error = count(&devices);
  for (int i = 0; error == 0 && device != nullptr && peer != nullptr && i < devices; ++i) {
    for (int j = 0; j < devices; ++j) {
      int a = 0, b = 0, can = 0;
      if (i == j || device(&a, i) != 0 || device(&b, j) != 0) continue;
      if (peer(&can, a, b) == 0 && can == 0) ++unreachable;
    }
  }
  dprintf(STDOUT_FILENO, "driver 1 %d %d %d %d\n", error, newest, devices, unreachable);
  _exit(0);
}

DriverProbe probe_driver() {
  const DoctorMachine::Output answer = in_child(ask_driver);
  DriverProbe probe;
  const std::size_t at = answer.text.rfind("driver ");
  std::istringstream fields(at == std::string::npos ? "" : answer.text.substr(at + 7));
  int present = 0, error = 0;
  if (!(fields >> present >> error >> probe.version >> probe.devices >> probe.unreachable_pairs)) {
    probe.present = true;
    probe.error = answer.code == 124 ? "the driver does not answer" : "the driver crashes";
    return probe;
  }
  probe.present = present == 1;
  if (error != 0) probe.error = "cuInit fails with CUDA error " + std::to_string(error);
  return probe;
}

/// The way in which a library states its version.
enum class Ask { pointer, size };

struct Library {
  const char* name;
  std::array<const char*, 3> files;  ///< newest first
  const char* function;
  Ask ask;
};
constexpr std::array<Library, 4> kLibraries = {
    {{"CUDA runtime",
      {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"},
      "cudaRuntimeGetVersion",
      Ask::pointer},
     {"cuBLASLt",
      {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"},
      "cublasLtGetVersion",
      Ask::size},
     {"cuDNN", {"libcudnn.so.9", "libcudnn.so.8"}, "cudnnGetVersion", Ask::size},
     {"NCCL", {"libnccl.so.2"}, "ncclGetVersion", Ask::pointer}}};

/// Prints a line "file version" for each library in the child, "- 0" where there is none.
void ask_libraries() {
  for (const Library& library : kLibraries) {
    const char* found = "-";
    long long version = 0;
    for (const char* file : library.files) {
      void* handle = file == nullptr ? nullptr : dlopen(file, RTLD_LAZY);
      if (handle == nullptr) continue;
      found = file;
      if (library.ask == Ask::pointer) {
        int value = 0;
        auto* ask = symbol<int(int*)>(handle, library.function);
        if (ask != nullptr && ask(&value) == 0) version = value;
      } else if (auto* ask = symbol<std::size_t()>(handle, library.function)) {
        version = static_cast<long long>(ask());
      }
      break;
    }
    dprintf(STDOUT_FILENO, "%s %lld\n", found, version);
  }
  _exit(0);
}

std::vector<LibraryProbe> probe_libraries() {
  std::istringstream answer(in_child(ask_libraries).text);
  std::vector<LibraryProbe> probes;
  for (const Library& library : kLibraries) {
    LibraryProbe probe{library.name, "", std::nullopt};
    std::string file;
    std::int64_t version = 0;
    if (answer >> file >> version && file != "-") {
      probe.file = file;
      if (version > 0) probe.version = version;
    }
    probes.push_back(std::move(probe));
  }
  return probes;
}

}  // namespace

DoctorMachine this_machine() {
  DoctorMachine machine;
  std::error_code error;
  machine.programs = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  machine.output = std::filesystem::current_path(error);
  for (const char* name :
       {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
        "OMPI_MCA_hwloc_base_binding_policy", "SLURM_JOB_ID", "OMP_NUM_THREADS"}) {
    if (const char* value = std::getenv(name)) machine.environment[name] = value;
  }
  machine.is_superuser = geteuid() == 0;
  machine.run = run_program;
  if (static_cast<const char*>(_DYNAMIC) != nullptr) {
    machine.driver = probe_driver;
    machine.libraries = probe_libraries;
  }
  return machine;
}

}  // namespace plimsoll
