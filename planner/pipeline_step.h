// Pipeline step: one step of all stages in the order of the schedule, a chunk and micro-batch at a
// time, and what follows it on each.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "passes/pipeline_order.h"
#include "planner/time_bound.h"
#include "simulator/kernel_delays.h"

namespace plimsoll {

class PipelineStep {
 public:
  PipelineStep(const Strategy& strategy, std::span<const StageSpans> stages,
               std::int64_t micro_batches);

  /// When each stage's step ends. Actions that begin as those of the run before are not run again:
  /// strategies that differ in their tails alone share them.
  std::vector<Picoseconds> run(const std::vector<Picoseconds>& starts,
                               std::span<const StepTail* const> tails);

 private:
  /// One direction of transfers out of a stage and into it.
  struct Transfers {
    std::vector<std::size_t> sent;  ///< in order: indices into Border's times
    std::vector<std::size_t> sends;  ///< the same: numbers of these communications
    Picoseconds received;           ///< when the stream of receives is free
  };
  struct State {
    Picoseconds clock, issued;
    Picoseconds clock_before;  ///< clock when the last action came up: receives posted ahead
    std::size_t next = 0;      ///< of the stage's order
    Picoseconds last_began;
    std::array<Transfers, 2> transfers;  ///< activations, gradients
    KernelDelays delays;
    std::size_t communications = 0;            ///< so far: each has its number in `delays`
    std::optional<std::size_t> received_ahead;  ///< the receive that was posted before its action
  };
  /// Of activations or gradients, by part of the model they leave and micro-batch: when they are
  /// written and when they are over.
  struct Border {
    std::vector<Picoseconds> written, arrived;
  };

  std::size_t index(std::int64_t part, std::int64_t micro_batch) const {
    return std::size_t(part * m_ + micro_batch);
  }
  void run_actions();
  bool advance(std::size_t s);
  bool act(std::size_t s, const Action& action);
  Picoseconds slot_free(std::size_t s, std::size_t direction) const;
  /// How much longer the action's kernels take beside transfers.
  Picoseconds delay(std::size_t s, const ActionSpans& spans, std::size_t direction);

  /// When the meetings of all stages [0] and of the two ends [1] are over, in order: each stage
  /// that takes part has its k-th meeting of a kind with the k-th of the others.
  using MeetingEnds = std::array<std::vector<Picoseconds>, 2>;
  MeetingEnds meeting_ends() const;
  std::vector<Picoseconds> ends() const;
  std::vector<Picoseconds> sources(std::size_t s, const MeetingEnds& over) const;
  const ActionSpans& spans_of(std::size_t s, const Action& action) const;

  std::span<const StageSpans> stages_;
  std::int64_t m_, parts_;
  std::size_t slots_;  ///< 0: sends wait for none
  std::span<const StepTail* const> tails_;  ///< of the run
  /// By stage: when the first action may begin, and when its host may issue it.
  using Begins = std::vector<std::array<Picoseconds, 2>>;
  Begins begins_;  ///< of the actions that were run last
  std::vector<std::vector<Action>> orders_;
  std::vector<double> most_slowdown_;  ///< by stage: of its kernels, beside any of its transfers
  std::vector<State> states_;
  std::array<Border, 2> borders_;
};

}  // namespace plimsoll
