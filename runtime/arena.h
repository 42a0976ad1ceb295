// Arena: the one allocation that holds all buffers of a rank, at the offsets of the memory plan.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "graph/program.h"

namespace plimsoll {

/// Bytes between blocks in a layout made for checking.
inline constexpr Bytes kGuard{64};

class Arena {
 public:
  /// Zeroed memory for the buffers of `program`, which must outlive it. With `checking` the layout
  /// must leave kGuard bytes after each block. Throws EnvironmentError when there is no memory.
  Arena(const Program& program, bool checking);

  std::byte* base() const { return memory_.get(); }
  std::byte* at(BufferId id) const;

  /// Checking: fills the guard zone after the block, and the block itself with NaN unless it lives
  /// between steps.
  void acquire(BufferId id);
  /// Checking: verifies the guard zone (throws std::runtime_error naming the buffer) and poisons.
  void release(BufferId id);
  /// Checking: the guard zones of the buffers that live between steps.
  void verify_persistent() const;

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  void verify_guard(BufferId id) const;

  const Program& program_;
  const bool checking_;
  std::unique_ptr<std::byte[], Free> memory_;
};

}  // namespace plimsoll
