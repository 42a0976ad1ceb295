// A Descriptor owns an open file, and closes it. Calls that signals interrupt are made again.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace plimsoll {

/// Makes a system call, again while a signal interrupts it. Returns what it returns: below 0 where
/// it failed, with errno.
template <class Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

/// A Descriptor is of a file that is open, or below 0.
class Descriptor {
 public:
  explicit Descriptor(int value = -1) : value_(value) {}
  Descriptor(Descriptor&& other) noexcept : value_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  /// Whoever wants to know whether closing failed takes it with release() and closes it.
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  int get() const { return value_; }
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

}  // namespace plimsoll
