// An Arena is the one allocation that holds all buffers of a rank, at the offsets of the memory
// plan.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "graph/program.h"
#include "runtime/rank_device.h"

namespace plimsoll {

/// The bytes between blocks in a layout for checking.
inline constexpr Bytes kGuard{64};

class Arena {
 public:
  /// Allocates zeroed memory for the buffers of `program`, which must outlive the arena. With
  /// `checking` the layout must leave kGuard bytes after each block. The memory is on `device`,
  /// which must outlive the arena, or in host memory where it is null. Throws EnvironmentError when
  /// there is no memory.
  Arena(const Program& program, bool checking, RankDevice* device = nullptr);

  /// Addresses are those that kernels use. The host may only compute with addresses of device
  /// memory.
  std::byte* base() const { return memory_.get(); }
  std::byte* at(BufferId id) const;

  /// Returns whether the arena is in host memory. Then every rank has a core of its own, and the
  /// host can read the values.
  bool in_host_memory() const { return device_ == nullptr; }
  /// Returns the bytes of a buffer where the host can read them: in place, or in `copy`.
  const std::byte* on_host(BufferId id, std::vector<std::byte>& copy) const;
  /// Changes the contents of a buffer. `work` gets its bytes, in place or as a copy that is stored
  /// afterwards.
  void change(BufferId id, const std::function<void(std::byte* stored)>& work);

  /// Checking: fills the guard zone after the block, and the block itself with NaN unless it lives
  /// between steps.
  void acquire(BufferId id);
  /// For checking: fills the guard zone after the block with a pattern. It fills the block with NaN
  /// unless it lives between steps.
  /// the block with NaN.
  void release(BufferId id);
  /// For checking: verifies the guard zones of the buffers that live between steps.
  void verify_persistent() const;

 private:
  struct Free {
    RankDevice* device;
    void operator()(std::byte* memory) const;
  };
  void set(std::byte* begin, std::byte value, std::byte* end);
  void verify_guard(BufferId id) const;

  const Program& program_;
  const bool checking_;
  RankDevice* const device_;  ///< null: host memory
  std::unique_ptr<std::byte[], Free> memory_;
};

}  // namespace plimsoll
