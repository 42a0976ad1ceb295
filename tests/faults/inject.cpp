// A library to be preloaded (LD_PRELOAD), which lets one call that changes files fail, or kills the
// process there. Calls of write, pwrite, fsync, posix_fallocate, rename, renameat2, mkdir, unlink,
// unlinkat, and of open where it creates, are counted from 1.
//
//   PLIMSOLL_FAULT     count (prints the number of calls at the end), kill (before the call),
//   killed_after,
//                      enospc, eio, eintr, edquot, short (half of a write)
//   PLIMSOLL_FAULT_AT  number of the call
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

struct Fault {
  const char* kind = std::getenv("PLIMSOLL_FAULT");
  long at =
      std::getenv("PLIMSOLL_FAULT_AT") == nullptr ? 0 : std::atol(std::getenv("PLIMSOLL_FAULT_AT"));
  std::atomic<long> calls = 0;

  bool is(const char* name) const { return kind != nullptr && std::strcmp(kind, name) == 0; }
  ~Fault() {
    if (is("count")) dprintf(STDERR_FILENO, "calls %ld\n", calls.load());
  }
};

Fault fault;

int error_of_fault() {
  if (fault.is("enospc")) return ENOSPC;
  if (fault.is("eio")) return EIO;
  if (fault.is("eintr")) return EINTR;
  if (fault.is("edquot")) return EDQUOT;
  return 0;
}

/// Counts a call. Returns whether the fault is of this call; a process that is to be killed before
/// it is.
bool reached() {
  if (++fault.calls != fault.at) return false;
  if (fault.is("kill")) raise(SIGKILL);
  return true;
}

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

}  // namespace

extern "C" {

ssize_t write(int file, const void* bytes, size_t size) {
  static auto* const call = real<ssize_t(int, const void*, size_t)>("write");
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
  if ((flags & O_CREAT) == 0) return call(path, flags, mode);
  return with_fault(-1, [&] { return call(path, flags, mode); });
}

int open64(const char* path, int flags, ...) __attribute__((alias("open")));

}  // extern "C"
