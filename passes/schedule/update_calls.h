// Update calls are the calls of the step that work on arenas: its beginning and the update, over
// whole arenas or tensor by tensor.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <vector>

#include "passes/cut/cut_blocks.h"
#include "passes/schedule/stage_context.h"

namespace plimsoll {

/// Gradients of a range of the arenas, which the update reads where backward leaves them.
struct ReleasedGradients {
  Bucket range;               ///< of the arenas
  std::int64_t elements = 0;  ///< of these, the ones that the rank updates
  Binding at;
  std::int64_t layer = 0, micro_batch = 0;  ///< as in Call
};

/// Issues the calls of a stage's update in the order of the Graph's ops. A run of ops without a
/// block is one call on arenas of this stage's sizes. A run of ops with blocks is one call for
/// every segment that this class of ranks updates, in the order of the arenas. A run that begins
/// with copies between host and device is one call for each part of what it updates.
class UpdateCalls : StageCalls {
 public:
  UpdateCalls(StageContext& stage, const CutGraph& cut)
      : StageCalls(stage), cut_(cut), widens_own_part_(!runs_here(context_.framework)) {}

  /// Issues the call that sets scalars and zeroes gradients. Returns the call.
  std::size_t begin_step();
  /// Issues the update, which waits for `reductions`. Returns the last call.
  std::size_t update(const std::vector<std::size_t>& reductions);
  /// Issues the update of the parameters whose gradients these are, and returns the call. With
  /// release_gradients there is no other update.
  std::size_t update(const ReleasedGradients& gradients, std::vector<Wait> waits);

 private:
  /// A range of the elements that the host has.
  struct HostPart {
    std::int64_t begin = 0, elements = 0;
  };
  std::size_t arena_call(Routine routine, std::optional<HostPart> part = {},
                         std::vector<Wait> waits = {}, const ReleasedGradients* released = nullptr);
  std::int64_t on_host() const;
  void place_host_part(std::optional<HostPart> part, Routine& routine,
                       std::vector<Binding>& bindings) const;
  void call_in_parts(const Routine& routine);
  static Routine weighted(Routine routine, const Segment& segment);
  void segment_calls(const std::vector<ParameterRoutine>& routines);
  Binding arena_binding(SlotKind kind);
  bool sums_norms(const Routine& routine, const Op& op) const;
  Binding segment_binding(SlotKind kind, const Segment& segment);
  BufferId transient(SlotKind kind);
  void set_elements(Op& op) const;
  bool updates(const Segment& segment) const;
  std::int64_t counted_segments() const;

  const CutGraph& cut_;
  /// Whether a rank casts only the reduced gradients that it updates. The bundled runtime casts all
  /// of them, since an op of its Programs reads an arena from its begin.
  const bool widens_own_part_;
  std::map<SlotKind, BufferId> transients_;
  std::int64_t next_norm_ = 0;
  /// Elements of both moments, where those of tensors follow each other.
  std::array<std::int64_t, 2> next_moment_ = {};
  std::int64_t most_paged_ = 0;    ///< elements of the largest part
  std::size_t last_released_ = 0;  ///< call
};

}  // namespace plimsoll
