// Activations lie in the host's memory between a layer's forward and its backward
// (Strategy::offloaded).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "passes/owners/owned_cuts.h"
#include "passes/schedule/kept_buffers.h"
#include "passes/schedule/stage_context.h"
#include "passes/schedule/stage_routines.h"

namespace plimsoll {

/// Adds the copies of a stage to its Program while the schedule issues the other calls. What a
/// layer keeps is copied to the host behind its forward. The second call after that waits for the
/// copy, and the device's memory is freed there: one call hides the copy, as in Transformer
/// Engine's AsyncDoubleBufferGroupOffloadHandler (transformer_engine/pytorch/cpu_offload.py). The
/// copy back is posted before the backward call that precedes the one which reads it.
class OffloadedActivations : StageCalls {
 public:
  OffloadedActivations(StageContext& stage, const OwnedCuts& cuts, const StageRoutines& routines)
      : StageCalls(stage), cuts_(cuts), routines_(routines) {}

  /// Takes the actions of the step, in the order of issue of their backwards.
  void begin_step(const std::vector<Action>& actions);
  /// Prepares the first call of an instance in an action: what the call reads is in `kept` again,
  /// and what the next backward call reads is on its way. Returns the copies for which the call
  /// waits.
  std::vector<Wait> before_call(const Action& action, std::size_t instance, KeptBuffers& kept);
  /// Frees memory whose copies are due, before the next call. Returns the copies, for which that
  /// call must wait.
  std::vector<Wait> free_due();
  /// Copies what a forward leaves, which `calls` wrote, and takes it out of `kept`.
  void after_forward(const Action& action, std::size_t instance,
                     const std::vector<std::size_t>& calls, KeptBuffers& kept);
  /// To be called when all calls are issued. Memory that nothing has freed lives to the end of the
  /// step.
  void finish();

 private:
  using Key = std::pair<std::size_t, std::int64_t>;  ///< instance and micro-batch
  /// Memory of one slot that the host holds, or that is on its way back.
  struct Parked {
    SlotKind slot = SlotKind::offloaded;
    BufferId host;
    std::size_t copied_out = 0;           ///< the call
    std::optional<BufferId> device = {};  ///< to which it is copied back
    std::size_t copied_back = 0;          ///< the call, if there is `device`
  };
  struct Leaving {
    BufferId device;
    std::size_t copy = 0;     ///< the call
    std::int64_t posted = 0;  ///< calls of instances before the copy
  };

  std::size_t copy(OpKind kind, const Key& key, BufferId from, BufferId into,
                   std::vector<Wait> waits);
  void bring(const Key& key);

  const OwnedCuts& cuts_;
  const StageRoutines& routines_;
  std::vector<bool> offloads_;  ///< by instance
  std::vector<Key> backwards_;  ///< in the order of their calls
  std::size_t next_backward_ = 0;
  std::map<Key, std::vector<Parked>> parked_;
  std::deque<Leaving> leaving_;
  std::int64_t calls_ = 0;  ///< first calls of instances so far
};

}  // namespace plimsoll
