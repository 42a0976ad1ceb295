// Arena: the one allocation that holds all buffers of a rank, at the offsets of the memory plan.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "graph/program.h"
#include "runtime/rank_device.h"

namespace plimsoll {

/// Bytes between blocks in a layout made for checking.
inline constexpr Bytes kGuard{64};

class Arena {
 public:
  /// Zeroed memory for the buffers of `program`, which must outlive it. With `checking` the layout
  /// must leave kGuard bytes after each block. On `device`, which must outlive it, or where there
  /// is none in host memory. Throws EnvironmentError when there is no memory.
  Arena(const Program& program, bool checking, RankDevice* device = nullptr);

  /// Addresses where the kernels run: of device memory the host may only compute with them.
  std::byte* base() const { return memory_.get(); }
  std::byte* at(BufferId id) const;

  /// Whether the host reaches it: then every rank has a core of its own, and the values there.
  bool in_host_memory() const { return device_ == nullptr; }
  /// The bytes of a buffer, where the host can read them: in place, or in `copy`.
  const std::byte* on_host(BufferId id, std::vector<std::byte>& copy) const;
  /// Changes what a buffer holds: `work` gets its bytes, in place or as a copy that is stored
  /// after.
  void change(BufferId id, const std::function<void(std::byte* stored)>& work);

  /// Checking: fills the guard zone after the block, and the block itself with NaN unless it lives
  /// between steps.
  void acquire(BufferId id);
  /// Checking: verifies the guard zone (throws std::runtime_error naming the buffer) and poisons.
  void release(BufferId id);
  /// Checking: the guard zones of the buffers that live between steps.
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
