// Whole files: bounded reads, atomic durable writes, digests.
#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <new>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace plimsoll {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

[[noreturn]] void cannot_read(const std::filesystem::path& path, const std::string& why) {
  throw InputError(path.string(), "", why);
}

[[noreturn]] void cannot_write(const std::filesystem::path& path, const char* step, int error) {
  throw EnvironmentError(
      fmt::format("cannot write {}: {}: {}", path.string(), step, reason(error)));
}

[[noreturn]] void not_regular(const std::filesystem::path& path) {
  throw EnvironmentError(
      fmt::format("cannot write {}: it exists and is not a regular file", path.string()));
}

/// Removes the temporary file unless it has become the real one.
class Temporary {
 public:
  explicit Temporary(std::filesystem::path path) : path_(std::move(path)) {}
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    if (!renamed_) ::unlink(path_.c_str());
  }
  const std::filesystem::path& path() const { return path_; }
  void keep() { renamed_ = true; }

 private:
  std::filesystem::path path_;
  bool renamed_ = false;
};

void sync(int descriptor, const std::filesystem::path& path, const char* step) {
  if (uninterrupted([&] { return ::fsync(descriptor); }) != 0) cannot_write(path, step, errno);
}

/// Returns 16 hexadecimal digits that nobody can foresee.
std::string random_digits(const std::filesystem::path& target) {
  std::uint64_t bits = 0;
  if (uninterrupted([&] { return ::getrandom(&bits, sizeof(bits), 0); }) != sizeof(bits))
    cannot_write(target, "choose a name", errno);
  return fmt::format("{:016x}", bits);
}

/// Creates a file that did not exist, beside `target`, with the permissions of any new file. Its
/// name is random, so that whoever may write to the folder cannot take it first.
std::pair<std::filesystem::path, int> create_beside(const std::filesystem::path& target) {
  for (;;) {
    std::filesystem::path path = target;
    path.replace_filename(
        fmt::format(".{}.{}.part", target.filename().string(), random_digits(target)));
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0) return {std::move(path), descriptor};
    if (errno != EEXIST && errno != EINTR) cannot_write(target, "create", errno);
  }
}

/// Follows symbolic links to the path that they name. No file needs to be there.
std::filesystem::path behind_links(std::filesystem::path path, std::error_code& error) {
  constexpr int kMostLinks = 40;  // as Linux follows
  std::error_code absent;         // of a file that is not there yet, which is fine
  for (int links = 0; std::filesystem::is_symlink(path, absent); ++links) {
    if (links == kMostLinks) error = std::make_error_code(std::errc::too_many_symbolic_link_levels);
    const std::filesystem::path next =
        error ? std::filesystem::path() : std::filesystem::read_symlink(path, error);
    if (error) break;
    path = path.parent_path() / next;  // `next` alone where it is absolute
  }
  return path;
}

/// Where the bytes go: through symbolic links, and only onto regular files.
std::filesystem::path resolved_target(const std::filesystem::path& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) not_regular(path);
  std::error_code error;
  std::filesystem::path target = behind_links(path, error);
  if (error) cannot_write(path, "follow link", error.value());
  if (target.filename().empty()) {
    throw EnvironmentError(fmt::format("cannot write {}: it names no file", path.string()));
  }
  return target;
}

}  // namespace

std::string read_file(const std::filesystem::path& path, Bytes limit) {
  const Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (descriptor.get() < 0) cannot_read(path, "cannot open: " + reason(errno));
  struct stat status = {};
  if (::fstat(descriptor.get(), &status) != 0) cannot_read(path, "cannot stat: " + reason(errno));
  if (S_ISDIR(status.st_mode)) cannot_read(path, "is a directory, not a file");
  std::string contents;
  std::array<char, 1 << 16> buffer;
  for (;;) {
    const ssize_t count = ::read(descriptor.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) cannot_read(path, "cannot read: " + reason(errno));
    if (count == 0) return contents;
    contents.append(buffer.data(), static_cast<std::size_t>(count));
    if (static_cast<std::int64_t>(contents.size()) > limit.count()) {
      cannot_read(path, fmt::format("is larger than {}", to_text(limit)));
    }
  }
}

int write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written =
        uninterrupted([&] { return ::write(descriptor, bytes.data(), bytes.size()); });
    if (written < 0 && errno == EAGAIN) {  // a pipe that does not block, and is full
      pollfd ready{descriptor, POLLOUT, 0};
      ::poll(&ready, 1, -1);
      continue;
    }
    if (written < 0) return errno;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

void write_file_atomically(const std::filesystem::path& path, std::string_view contents) {
  const std::filesystem::path target = resolved_target(path);
  auto [temporary_path, raw] = create_beside(target);
  Temporary temporary(std::move(temporary_path));
  Descriptor file(raw);
  if (const int error = write_all(file.get(), contents)) cannot_write(path, "write", error);
  sync(file.get(), path, "fsync");
  // Linux closes a file whose close() a signal interrupts.
  if (::close(file.release()) != 0 && errno != EINTR) cannot_write(path, "close", errno);
  if (uninterrupted([&] { return ::rename(temporary.path().c_str(), target.c_str()); }) != 0)
    cannot_write(path, "rename", errno);
  temporary.keep();
  // Without this the new name may be lost in a power failure, though its bytes are safe.
  const std::filesystem::path folder =
      target.has_parent_path() ? target.parent_path() : std::filesystem::path(".");
  const Descriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0) cannot_write(path, "open folder", errno);
  sync(directory.get(), path, "fsync folder");
}

Descriptor open_in_place(const std::filesystem::path& path, int flags) {
  // Without O_NONBLOCK the call would wait for a reader where `path` is a pipe.
  constexpr int kAlways = O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  Descriptor file(uninterrupted([&] { return ::open(path.c_str(), flags | kAlways, 0666); }));
  if (file.get() < 0 && errno == ELOOP) {
    throw EnvironmentError(fmt::format(
        "cannot write {}: it is a symbolic link, which is not followed", path.string()));
  }
  if (file.get() < 0) cannot_write(path, "open", errno);
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) cannot_write(path, "stat", errno);
  if (!S_ISREG(status.st_mode)) not_regular(path);
  return file;
}

void check_writable(const std::filesystem::path& path) {
  auto [temporary, descriptor] = create_beside(resolved_target(path));
  const Temporary removed(std::move(temporary));
  const Descriptor closed(descriptor);
}

bool same_file(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code error;
  if (std::filesystem::equivalent(a, b, error)) return true;
  // Absent files have no identity but their names.
  error.clear();
  const auto first = std::filesystem::weakly_canonical(behind_links(a, error), error);
  if (error) return false;
  const auto second = std::filesystem::weakly_canonical(behind_links(b, error), error);
  return !error && first == second;
}

std::string digest(std::string_view contents) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes;
  unsigned size = 0;
  const int done =
      EVP_Digest(contents.data(), contents.size(), bytes.data(), &size, EVP_sha256(), nullptr);
  if (done != 1) throw std::bad_alloc();  // SHA-256 is always available
  INVARIANT(size == 32, "a SHA-256 has 32 bytes");
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

}  // namespace plimsoll
