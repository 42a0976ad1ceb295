// The pipeline order is the list of actions of a pipeline stage. An action works on one chunk of
// the stage's layers for one micro-batch, forward or backward.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
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
  /// A forward and the backward behind it, which does not depend on it, are issued in turns
  /// (Strategy::experts.overlap_exchange).
  bool in_turns = false;
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
/// - one_f_one_b with `in_pairs`, with or without virtual stages: one more forward comes first. So
///   the two of a pair do not depend on each other (Megatron-LM, get_pp_rank_microbatches in that
///   file, with overlap_moe_expert_parallel_comm). Only they, dualpipe_v and dualpipe heed it.
/// - zb_h1: 1F1B whose backward is split; stage s delays weight gradients by s micro-batches, so
///   that every stage keeps at most P micro-batches in flight, as stage 0 does in 1F1B (Qi et al.
///   2023, arXiv 2401.10241, section 2.2).
/// - zb_h2: the same with twice as many forwards first and weight gradients delayed twice as long,
///   so that 2 P - 1 micro-batches are in flight (the same paper, section 2.3).
/// - zb_v: two chunks per stage, placed as a V (the same paper, section 6). This is the order of
///   PyTorch's ScheduleZBVZeroBubble (torch/distributed/pipelining/schedules.py): a forward of the
///   second chunk and its whole backward follow those of the first.
/// - v_half and v_min: the passes of each micro-batch lie at fixed times, and micro-batches follow
///   each other by six passes; weight gradients take what is free (Qi et al. 2024, arXiv
///   2405.15362). The paper reorders the begin and the end of the step besides.
/// - dualpipe_v: a forward of one chunk and a backward of the other in turn (DeepSeek-AI 2024,
///   arXiv 2412.19437; deepseek-ai/DualPipe dualpipe/dualpipev.py). With `in_pairs` these two are
///   issued in turns.
/// - dualpipe: the same order (the same repository, dualpipe/dualpipe.py). See swaps_halves().
/// Only one_f_one_b takes other numbers of virtual stages than its own; legal() refuses them.
std::vector<Action> pipeline_order(Schedule schedule, std::int64_t stages, std::int64_t stage,
                                   std::int64_t virtual_stages, std::int64_t micro_batches,
                                   bool in_pairs = false);
/// Returns the actions of a stage under a strategy, for so many micro-batches.
std::vector<Action> stage_order(const Strategy& strategy, std::int64_t stage,
                                std::int64_t micro_batches);

/// Actions [first, first + count * length) of an order are the same `length` actions `count` times,
/// each time for later micro-batches.
struct RepeatedActions {
  std::size_t first = 0, length = 0, count = 0;
  std::size_t begin(std::size_t cycle) const { return first + cycle * length; }
};
/// Returns the actions around the middle of an order of `micro_batches` that repeat themselves
/// `per_cycle` micro-batches later. Their count is 0 if there are none, as in GPipe.
RepeatedActions repeated_actions(std::span<const Action> order, std::int64_t micro_batches,
                                 std::int64_t per_cycle);

/// Returns whether a schedule computes gradients of inputs and of weights in actions of their own.
constexpr bool splits_backward(Schedule schedule) {
  return schedule != Schedule::one_f_one_b && schedule != Schedule::gpipe;
}

/// Returns whether chunks lie as a V: the first ones from the first stage to the last, the second
/// ones back. The first stage has both ends of the model.
constexpr bool is_placed_as_v(Schedule schedule) {
  return splits_backward(schedule) && schedule != Schedule::zb_h1 && schedule != Schedule::zb_h2;
}

/// Returns whether the two halves of the data ranks swap their micro-batches where the V turns, as
/// in DualPipe. P stages of each half then are the published pipeline of 2 P ranks. Micro-batches
/// enter at both of its ends, and its ranks have the parameters of their mirror images (DeepSeek-AI
/// 2024, arXiv 2412.19437, section 3.2.1 and figure 5). The second chunk works on micro-batches of
/// the partner (partner_of in graph/grid.h).
constexpr bool swaps_halves(Schedule schedule) { return schedule == Schedule::dualpipe; }

/// A PartPlace is the chunk of a stage that holds a part of the model.
struct PartPlace {
  std::int64_t stage = 0, chunk = 0;
  bool operator==(const PartPlace&) const = default;
};

/// Returns which part of the model, counted from its front, chunk `chunk` of stage `stage` is.
constexpr std::int64_t part_of(Schedule schedule, std::int64_t stages, std::int64_t stage,
                               std::int64_t chunk) {
  const bool back = is_placed_as_v(schedule) && chunk % 2 == 1;
  return chunk * stages + (back ? stages - 1 - stage : stage);
}

/// Returns where a part of the model lies.
constexpr PartPlace place_of(Schedule schedule, std::int64_t stages, std::int64_t part) {
  const std::int64_t chunk = part / stages, within = part % stages;
  const bool back = is_placed_as_v(schedule) && chunk % 2 == 1;
  return {back ? stages - 1 - within : within, chunk};
}

/// Returns the stage that has the end of the model: the head and the loss.
std::int64_t stage_of_head(const Strategy& strategy);

/// Returns whether the input of an action is received while the action before it runs. A stage then
/// has memory for one more boundary tensor. Otherwise a receive is posted when the action before is
/// over.
bool receives_ahead(const Framework& framework, const Strategy& strategy);

}  // namespace plimsoll
