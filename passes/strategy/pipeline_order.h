// The pipeline order is the list of actions of a pipeline stage. An action works on one chunk of
// the stage's layers for one micro-batch, forward or backward.
#pragma once

#include <cstdint>
#include <vector>

#include "models/framework/framework.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

enum class ActionKind : std::uint8_t {
  forward,
  backward,         ///< gradients of inputs and of weights
  input_gradient,   ///< the part of backward for which the stage before waits
  weight_gradient,  ///< the rest of backward, any time after input_gradient
};

struct Action {
  ActionKind kind = ActionKind::forward;
  std::int64_t chunk = 0;  ///< one of the stage's virtual_stages; 0 comes first in the model
  std::int64_t micro_batch = 0;
  bool operator==(const Action&) const = default;
};

/// Returns the actions of stage `stage` of `stages` in one step, in host issue order.
/// - gpipe: all forwards, then all backwards, last micro-batch first (Huang et al. 2019, arXiv
///   1811.06965, figure 2c).
/// - one_f_one_b: min(m, P-s-1) forwards, then pairs of one forward and one backward, then the
///   remaining backwards (Narayanan et al. 2021, arXiv 2104.04473, PipeDream-Flush).
/// - one_f_one_b with virtual_stages v > 1: the same paper's interleaved schedule as Megatron-LM
///   runs it (megatron/core/pipeline_parallel/schedules.py). Groups of P micro-batches visit one
///   chunk after another, and min(m v, 2 (P-s-1) + (v-1) P) forwards come first. P must divide m.
/// - zb_h1: 1F1B whose backward is split; stage s delays weight gradients by s micro-batches, so
///   that every stage keeps at most P micro-batches in flight, as stage 0 does in 1F1B (Qi et al.
///   2023, arXiv 2401.10241, section 2.2).
/// Only one_f_one_b takes more than one virtual stage; legal() refuses others.
std::vector<Action> pipeline_order(Schedule schedule, std::int64_t stages, std::int64_t stage,
                                   std::int64_t virtual_stages, std::int64_t micro_batches);

/// Returns which part of the model, counted from its front, chunk `chunk` of stage `stage` is.
constexpr std::int64_t part_of(std::int64_t stages, std::int64_t stage, std::int64_t chunk) {
  return chunk * stages + stage;
}

/// Returns whether the input of an action is received while the action before it runs. A stage then
/// has memory for one more boundary tensor. Otherwise a receive is posted when the action before is
/// over.
bool receives_ahead(const Framework& framework, const Strategy& strategy);

}  // namespace plimsoll
