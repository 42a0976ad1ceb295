// An Arena is the one allocation that holds all buffers of a rank, at the offsets of the memory
// plan. Ranges of an arena are what an op of the update works on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"
#include "graph/program.h"
#include "graph/tensor.h"
#include "runtime/backend.h"
#include "runtime/rank_device.h"

namespace plimsoll {

/// The bytes between blocks in a layout for checking.
inline constexpr Bytes kGuard{64};

class Arena {
 public:
  /// Allocates zeroed memory for the buffers of `program`, which must outlive the arena. With
  /// `checking` the layout must leave kGuard bytes after each block. The memory is on `device`,
  /// which must outlive the arena, or in host memory where it is null. Buffers of the host have a
  /// separate allocation. Throws EnvironmentError when there is no memory.
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

  /// For checking: fills the guard zone after the block with a pattern, and the block with NaN
  /// unless it lives between steps.
  void acquire(BufferId id);
  /// For checking: verifies the guard zone after the block, and fills the block with NaN.
  void release(BufferId id);
  /// For checking: verifies the guard zones of the buffers that live between steps.
  void verify_persistent() const;

 private:
  struct Free {
    RankDevice* device;
    bool on_host;
    void operator()(std::byte* memory) const;
  };
  /// A device may still copy to and from memory of the host when its buffer is acquired or
  /// released.
  bool checks(const Buffer& buffer) const {
    return checking_ && !(buffer.on_host && device_ != nullptr);
  }
  void set(std::byte* begin, std::byte value, std::byte* end);
  void verify_guard(BufferId id) const;

  const Program& program_;
  const bool checking_;
  RankDevice* const device_;  ///< null: host memory
  std::unique_ptr<std::byte[], Free> memory_;
  std::unique_ptr<std::byte[], Free> host_;  ///< of buffers that lie in the host's memory
};

/// Returns the ranges of an operand. For an arena they are the parts that this rank owns, of one
/// attribute group if `group` is given. For a tensor it is the whole tensor, whose norm weight and
/// decay are the op's parameters.
std::vector<OwnedRange> ranges_of(const Tensor& operand, const RankContext& context,
                                  std::optional<std::int64_t> group);
/// Leaves of ranges of the arenas those that an update has the state of, whose offsets in the state
/// are then those in `state`. An arena on the device has the first elements of a rank's state, and
/// an update works on the elements from `begin` to `end` of the arenas (end 0: all). A part of the
/// moments, and what the host updates, has the elements from `begin` to `end` of the rank's state.
/// All operands of the host are of these alone.
void keep_updated(const Tensor& state, std::int64_t begin, std::int64_t end,
                  std::vector<OwnedRange>& ranges);
/// Returns the ranges that an update of this operand works on: those of its group, and of the part
/// of the arenas (AdamParams) and of the rank's state that it has.
template <class Params>
std::vector<OwnedRange> updated_ranges(const Tensor& operand, const Tensor& state,
                                       const RankContext& context, const Params& params) {
  std::vector<OwnedRange> ranges = ranges_of(operand, context, params.group);
  if constexpr (requires { params.end; }) {
    if (operand.arena) keep_updated(state, params.begin, params.end, ranges);
  }
  return ranges;
}

/// Returns the element of the rank's state with which the state of an update on the device begins.
template <class Params>
std::int64_t state_begin(const Tensor& state, const Params& params) {
  if constexpr (requires { params.end; }) return state.arena || state.on_host ? 0 : params.begin;
  return 0;
}

/// Returns whether the operand is an arena that holds only the rank's own parts: gradients from
/// sharding stage 2 on, parameters in stage 3, masters, and what the host updates. Ranges then have
/// the offsets of the optimizer's state.
bool keeps_part(const Tensor& operand, const RankContext& context);

/// A GradientPlace locates the gradient of an updated range in the update's operand: it begins at
/// offset_in(range, part) - begin.
struct GradientPlace {
  bool part = false;
  std::int64_t begin = 0;
};
GradientPlace gradient_place(const Tensor& gradients, const RankContext& context,
                             std::int64_t begin, std::int64_t end);
template <class Params>
GradientPlace gradient_place(const Tensor& gradients, const Tensor& state,
                             const RankContext& context, const Params& params) {
  if constexpr (requires { params.end; }) {
    if (state.arena && !state.on_host)
      return gradient_place(gradients, context, params.begin, params.end);
  }
  const bool part = keeps_part(gradients, context);
  return {part, part ? -state_begin(state, params) : 0};
}

inline std::int64_t offset_in(const OwnedRange& range, bool part) {
  return part ? range.state_offset : range.arena_offset;
}

/// An op of a whole tensor has the final weight decay in its parameters; the segments of an arena
/// have their own.
inline double weight_decay_of(const OwnedRange& range, double optimizer) {
  return range.weight_decay.value_or(range.decay ? optimizer : 0);
}

/// A MemoryAccount counts live bytes and their first peak by role.
class MemoryAccount {
 public:
  /// Says that a block of `needed` bytes becomes alive. It counts rounded up to kBlockAlignment.
  void acquire(TensorRole role, Bytes needed);
  /// Says that the block dies. Releasing more than was acquired breaks an invariant.
  void release(TensorRole role, Bytes needed);

  Bytes live() const { return live_; }
  const BytesByRole& by_role() const { return by_role_; }
  Bytes peak() const { return peak_; }
  /// Returns the live bytes at the time when the peak was first reached.
  const BytesByRole& peak_by_role() const { return peak_by_role_; }

 private:
  Bytes live_, peak_;
  BytesByRole by_role_ = {}, peak_by_role_ = {};
};

}  // namespace plimsoll
