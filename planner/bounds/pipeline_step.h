// Pipeline step: runs one step of all stages in the order of the schedule, an action at a time.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "passes/strategy/pipeline_order.h"
#include "planner/bounds/pipeline_rhythm.h"
#include "planner/bounds/time_bound.h"
#include "simulator/ranks/kernel_delays.h"

namespace plimsoll {

/// The step of a pipeline. Where few micro-batches show that all stages repeat themselves, only
/// these are run, and the time of the cycles that were left out is added (pipeline_rhythm.h). The
/// result is the same.
class PipelineStep {
 public:
  PipelineStep(const Strategy& strategy, std::span<const StageSpans> stages,
               std::int64_t micro_batches);
  /// Takes the cycles to leave out; a default PipelineCycles leaves none out.
  PipelineStep(const Strategy& strategy, std::span<const StageSpans> stages,
               std::int64_t micro_batches, const PipelineCycles& cycles);

  /// Runs a step, and a second one that begins where the first ended. Returns the least advance of
  /// any stage in a step. If `enough` accepts the bound of the first step, the second is not run.
  Picoseconds bound(const std::function<bool(Picoseconds)>& enough = {});
  /// Returns when each stage's step ends if it begins at its start.
  std::vector<Picoseconds> run(const std::vector<Picoseconds>& starts);
  /// Whether the last run left cycles out.
  bool left_cycles_out() const { return m_ < all_; }

 private:
  /// Sets up a run of so many micro-batches.
  void order(std::int64_t micro_batches);
  /// One direction of transfers out of a stage and into it.
  struct Transfers {
    std::vector<std::size_t> sent;   ///< in order: indices into Border's times
    std::vector<std::size_t> sends;  ///< the same: numbers of these communications
    Picoseconds received;            ///< when the stream of receives is free
  };
  struct State {
    Picoseconds clock, issued;
    Picoseconds clock_before;  ///< clock when the last action came up, for receives ahead of it
    std::size_t next = 0;      ///< of the stage's order
    Picoseconds last_began;
    Picoseconds reduced;                 ///< all gradients are
    std::array<Transfers, 2> transfers;  ///< activations, gradients
    KernelDelays delays;
    std::size_t communications = 0;             ///< so far: each has its number in `delays`
    std::optional<std::size_t> received_ahead;  ///< the receive that was posted before its action
  };
  /// When activations or gradients are written and when they have arrived, by the part of the model
  /// that they leave and by micro-batch.
  struct Border {
    std::vector<Picoseconds> written, arrived;
  };

  std::size_t index(std::int64_t part, std::int64_t micro_batch) const {
    return std::size_t(part * m_ + micro_batch);
  }
  void run_actions();
  /// Adds the cycles that were left out. Returns false where the run does not show their time.
  bool add_cycles();
  bool advance(std::size_t s);
  bool act(std::size_t s, const Action& action);
  /// Returns when the host has posted the receives that it posts before the action.
  Picoseconds posted(std::size_t s, const ActionSpans& action) const;
  Picoseconds slot_free(std::size_t s, std::size_t direction) const;
  /// Returns how much longer the action's kernels take beside transfers.
  Picoseconds delay(std::size_t s, const ActionSpans& spans, std::size_t direction);

  std::vector<Picoseconds> ends() const;
  /// An action with delays that follow from its times alone.
  struct TimedAction {
    ActionSpans spans;
    KernelDelays::Loss transfer, sending;  ///< that kernels have beside these transfers
    Picoseconds most_before;  ///< the most that the first call loses to transfers under way
  };
  static TimedAction timed(const ActionSpans& spans, double most_slowdown);
  const TimedAction& timed(std::size_t s, const Action& action) const {
    const std::size_t kind = action.kind == ActionKind::forward           ? 0
                             : action.kind == ActionKind::weight_gradient ? 2
                                                                          : 1;
    return timed_[s][std::size_t(action.chunk)][kind];
  }

  const Strategy strategy_;
  std::span<const StageSpans> stages_;
  const std::int64_t all_;  ///< micro-batches of the step
  std::int64_t m_ = 0;      ///< micro-batches that are run
  std::int64_t parts_;
  PipelineCycles cycles_;
  const bool v_;                     ///< chunks are placed as a V
  std::size_t slots_;                ///< 0: sends wait for none
  std::vector<Picoseconds> starts_;  ///< of the run, by stage
  std::vector<std::vector<Action>> orders_;
  /// By stage and chunk: forward, backward, weight gradients.
  std::vector<std::vector<std::array<TimedAction, 3>>> timed_;
  std::vector<bool> host_waits_;  ///< by stage
  std::vector<State> states_;
  std::array<Border, 2> borders_;
  std::vector<StageRecord> records_;  ///< by stage; empty where all micro-batches are run
};

}  // namespace plimsoll
