// A library to be preloaded (LD_PRELOAD), which lets one call that changes files fail, or kills the
// process there. Calls of write, pwrite, fsync, posix_fallocate, ftruncate, rename, renameat2,
// mkdir, unlink, unlinkat, of open and openat where they create, and of close for what these gave
// are counted from 1. So are calls of read and pread, and requests of memory that main() makes:
// calls of malloc and its like, which operator new makes, too.
//
//   PLIMSOLL_FAULT       count (prints numbers at the end), kill (before the call), killed_after,
//                        enospc, eio, eintr, edquot, short (half of a write),
//                        erofs (this call and all that follow, but for standard output and error),
//                        unread (EIO from a read),
//                        enomem (one request is refused), enomem_on (it and all that follow)
//   PLIMSOLL_FAULT_AT    number of the call, the read or the request
//   PLIMSOLL_FAULT_RANK  only in the process of mpirun that has this rank
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

/// Bytes, as /proc says.
long most_address_space() {
  std::FILE* const file = std::fopen("/proc/self/status", "r");
  long kib = 0;
  for (char line[256]; file != nullptr && std::fgets(line, sizeof line, file) != nullptr;) {
    if (std::sscanf(line, "VmPeak: %ld", &kib) == 1) break;
  }
  if (file != nullptr) std::fclose(file);
  return kib * 1024;
}

/// Whether the fault is meant for this process.
bool is_meant() {
  const char* const wanted = std::getenv("PLIMSOLL_FAULT_RANK");
  const char* const own = std::getenv("OMPI_COMM_WORLD_RANK");
  return wanted == nullptr || (own != nullptr && std::strcmp(wanted, own) == 0);
}

struct Fault {
  const char* kind = is_meant() ? std::getenv("PLIMSOLL_FAULT") : nullptr;
  long at =
      std::getenv("PLIMSOLL_FAULT_AT") == nullptr ? 0 : std::atol(std::getenv("PLIMSOLL_FAULT_AT"));
  std::atomic<long> calls = 0, reads = 0, requests = 0;
  std::array<std::atomic<bool>, 1024> created = {};  ///< by file descriptor
  /// Requests are looked at while main() runs: before and behind it nothing can catch anything.
  std::atomic<bool> in_main = false;

  bool is(const char* name) const { return kind != nullptr && std::strcmp(kind, name) == 0; }
  bool refuses_one = is("enomem"), refuses_on = is("enomem_on"), counts = is("count");
  ~Fault() {
    if (!counts) return;
    dprintf(STDERR_FILENO, "calls %ld reads %ld requests %ld peak %ld\n", calls.load(),
            reads.load(), requests.load(), most_address_space());
  }
};

Fault fault;

int error_of_fault() {
  if (fault.is("enospc")) return ENOSPC;
  if (fault.is("eio")) return EIO;
  if (fault.is("eintr")) return EINTR;
  if (fault.is("edquot")) return EDQUOT;
  if (fault.is("erofs")) return EROFS;
  return 0;
}

/// Counts a call. Returns whether the fault is of this call; a process that is to be killed before
/// it is.
bool reached() {
  const long call = ++fault.calls;
  if (call != fault.at) return call > fault.at && fault.is("erofs");
  if (fault.is("kill")) raise(SIGKILL);
  return true;
}

/// A file system that has become read-only still lets messages through.
bool is_spared(int file) {
  if (!fault.is("erofs") || (file != STDOUT_FILENO && file != STDERR_FILENO)) return false;
  ++fault.calls;
  return true;
}

int remember(int file, bool created) {
  if (file >= 0 && std::size_t(file) < fault.created.size())
    fault.created[std::size_t(file)] = created;
  return file;
}

/// Counts a read, and returns whether it fails.
bool is_unread() { return ++fault.reads == fault.at && fault.is("unread"); }

template <class Result, class Real>
Result with_fault(Result failed, Real real) {
  const bool here = reached();
  if (here && error_of_fault() != 0) {
    errno = error_of_fault();
    return failed;
  }
  const Result result = real();
  if (here && fault.is("killed_after")) raise(SIGKILL);
  return result;
}

template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

/// Counts a request of memory, and returns whether it is refused.
bool refused() {
  if (!fault.in_main || !(fault.refuses_one || fault.refuses_on || fault.counts)) return false;
  const long number = ++fault.requests;
  return fault.refuses_on ? number >= fault.at : fault.refuses_one && number == fault.at;
}

template <class Real>
void* memory_of(Real real) {
  if (!refused()) return real();
  errno = ENOMEM;
  return nullptr;
}

using Main = int(int, char**, char**);
Main* real_main = nullptr;

int main_with_requests_counted(int argc, char** argv, char** environment) {
  fault.in_main = true;
  const int code = real_main(argc, argv, environment);
  fault.in_main = false;
  return code;
}

}  // namespace

extern "C" {

ssize_t write(int file, const void* bytes, size_t size) {
  static auto* const call = real<ssize_t(int, const void*, size_t)>("write");
  if (is_spared(file)) return call(file, bytes, size);
  const bool halves = fault.is("short") && fault.calls.load() + 1 == fault.at && size > 1;
  return with_fault<ssize_t>(-1, [&] { return call(file, bytes, halves ? size / 2 : size); });
}

ssize_t pwrite(int file, const void* bytes, size_t size, off_t at) {
  static auto* const call = real<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  const bool halves = fault.is("short") && fault.calls.load() + 1 == fault.at && size > 1;
  return with_fault<ssize_t>(-1, [&] { return call(file, bytes, halves ? size / 2 : size, at); });
}

ssize_t pwrite64(int file, const void* bytes, size_t size, off_t at)
    __attribute__((alias("pwrite")));

/// It returns the error and leaves errno.
int posix_fallocate(int file, off_t at, off_t size) {
  static auto* const call = real<int(int, off_t, off_t)>("posix_fallocate");
  const bool here = reached();
  if (here && error_of_fault() != 0) return error_of_fault();
  const int result = call(file, at, size);
  if (here && fault.is("killed_after")) raise(SIGKILL);
  return result;
}

int posix_fallocate64(int file, off_t at, off_t size) __attribute__((alias("posix_fallocate")));

int mkdir(const char* path, mode_t mode) {
  static auto* const call = real<int(const char*, mode_t)>("mkdir");
  return with_fault(-1, [&] { return call(path, mode); });
}

int unlinkat(int folder, const char* path, int flags) {
  static auto* const call = real<int(int, const char*, int)>("unlinkat");
  return with_fault(-1, [&] { return call(folder, path, flags); });
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned int flags) {
  static auto* const call =
      real<int(int, const char*, int, const char*, unsigned int)>("renameat2");
  return with_fault(-1, [&] { return call(from_folder, from, to_folder, to, flags); });
}

int fsync(int file) {
  static auto* const call = real<int(int)>("fsync");
  return with_fault(-1, [&] { return call(file); });
}

int fdatasync(int file) {
  static auto* const call = real<int(int)>("fdatasync");
  return with_fault(-1, [&] { return call(file); });
}

int rename(const char* from, const char* to) {
  static auto* const call = real<int(const char*, const char*)>("rename");
  return with_fault(-1, [&] { return call(from, to); });
}

int unlink(const char* path) {
  static auto* const call = real<int(const char*)>("unlink");
  return with_fault(-1, [&] { return call(path); });
}

int open(const char* path, int flags, ...) {
  static auto* const call = real<int(const char*, int, ...)>("open");
  va_list more;
  va_start(more, flags);
  const int mode = (flags & O_CREAT) != 0 ? va_arg(more, int) : 0;
  va_end(more);
  if ((flags & O_CREAT) == 0) return remember(call(path, flags, mode), false);
  return remember(with_fault(-1, [&] { return call(path, flags, mode); }), true);
}

int open64(const char* path, int flags, ...) __attribute__((alias("open")));

int openat(int folder, const char* path, int flags, ...) {
  static auto* const call = real<int(int, const char*, int, ...)>("openat");
  va_list more;
  va_start(more, flags);
  const int mode = (flags & O_CREAT) != 0 ? va_arg(more, int) : 0;
  va_end(more);
  if ((flags & O_CREAT) == 0) return remember(call(folder, path, flags, mode), false);
  return remember(with_fault(-1, [&] { return call(folder, path, flags, mode); }), true);
}

int openat64(int folder, const char* path, int flags, ...) __attribute__((alias("openat")));

/// A close that fails closes nevertheless, as on Linux.
int close(int file) {
  static auto* const call = real<int(int)>("close");
  const bool created = file >= 0 && std::size_t(file) < fault.created.size() &&
                       fault.created[std::size_t(file)].exchange(false);
  if (!created) return call(file);
  const bool here = reached();
  const int result = call(file);
  if (here && fault.is("killed_after")) raise(SIGKILL);
  if (!here || error_of_fault() == 0) return result;
  errno = error_of_fault();
  return -1;
}

int ftruncate(int file, off_t size) {
  static auto* const call = real<int(int, off_t)>("ftruncate");
  return with_fault(-1, [&] { return call(file, size); });
}

int ftruncate64(int file, off_t size) __attribute__((alias("ftruncate")));

ssize_t read(int file, void* bytes, size_t size) {
  static auto* const call = real<ssize_t(int, void*, size_t)>("read");
  if (!is_unread()) return call(file, bytes, size);
  errno = EIO;
  return -1;
}

ssize_t pread(int file, void* bytes, size_t size, off_t at) {
  static auto* const call = real<ssize_t(int, void*, size_t, off_t)>("pread");
  if (!is_unread()) return call(file, bytes, size, at);
  errno = EIO;
  return -1;
}

ssize_t pread64(int file, void* bytes, size_t size, off_t at) __attribute__((alias("pread")));

int __libc_start_main(Main* main, int argc, char** argv, void (*begin)(), void (*end)(),
                      void (*end_of_loader)(), void* stack) {
  static auto* const call =
      real<int(Main*, int, char**, void (*)(), void (*)(), void (*)(), void*)>("__libc_start_main");
  real_main = main;
  return call(main_with_requests_counted, argc, argv, begin, end, end_of_loader, stack);
}

void* malloc(size_t size) {
  static auto* const call = real<void*(size_t)>("malloc");
  return memory_of([&] { return call(size); });
}

void* calloc(size_t count, size_t size) {
  static auto* const call = real<void*(size_t, size_t)>("calloc");
  return memory_of([&] { return call(count, size); });
}

void* realloc(void* memory, size_t size) {
  static auto* const call = real<void*(void*, size_t)>("realloc");
  return memory_of([&] { return call(memory, size); });
}

void* aligned_alloc(size_t alignment, size_t size) {
  static auto* const call = real<void*(size_t, size_t)>("aligned_alloc");
  return memory_of([&] { return call(alignment, size); });
}

/// It returns the error and leaves errno.
int posix_memalign(void** memory, size_t alignment, size_t size) {
  static auto* const call = real<int(void**, size_t, size_t)>("posix_memalign");
  return refused() ? ENOMEM : call(memory, alignment, size);
}

}  // extern "C"
