// Routers' selection biases and the load of their experts are kept from step to step, and moved
// once in each. Choices of all layers together are kept for a step.
#pragma once

#include <vector>

#include "passes/schedule/stage_context.h"

namespace plimsoll {

/// The biases of all routers of a stage lie in one buffer, and their experts' loads in another. So
/// ranks with other tokens sum all loads at once, and one op moves all biases (Megatron-LM
/// core/distributed/finalize_model_grads.py, _update_router_expert_bias).
class SelectionBiases : StageCalls {
 public:
  using StageCalls::StageCalls;

  /// Adds memory for an instance with this forward routine, if its router has biases. To be called
  /// for each instance in order.
  void add_instance(const Routine& forward);
  /// Adds the buffers, once all instances are known.
  void add_buffers();
  /// Returns the memory of a slot of an instance. The layers of a micro-batch share that of their
  /// choices.
  Binding binding(SlotKind kind, std::size_t instance, std::int64_t micro_batch) const;
  /// Zeroes the choices of all micro-batches. To be called before forward.
  void begin_step();
  /// Sums the step's loads and moves the biases. To be called when all forward calls are issued.
  void end_step();

 private:
  Group group() const;

  std::vector<Bytes> offsets_;  ///< by instance
  Bytes bytes_;                 ///< of all
  Bytes of_layers_;             ///< the choices of a micro-batch
  BufferId biases_, loads_, layer_choices_;
};

}  // namespace plimsoll
