#include "planner/time_bound.h"

#include <algorithm>

#include "base/error.h"
#include "passes/stage_blocks.h"
#include "passes/strategy.h"

namespace plimsoll {

namespace {

/// The first or last block of a stage.
const BlockFacts* end_block(const MicroBatchFacts& facts,
                            const std::vector<std::int64_t>& instances, bool first) {
  const BlockFacts* found = nullptr;
  for (std::size_t b = 0; b < instances.size(); ++b) {
    if (instances[b] > 0 && !(first && found)) found = &facts.blocks[b];
  }
  return found;
}

}  // namespace

std::vector<StageSpans> stage_spans(const Job& job, const Strategy& strategy,
                                    const MicroBatchFacts& facts, const LeastCosts& costs) {
  const auto instances = instances_per_stage(job, strategy);
  const Grid grid = grid_of(strategy);
  const CostModel& model = costs.model();
  const Picoseconds transfer = model.dispatch_op() + model.dispatch_call();
  std::vector<StageSpans> stages(instances.size());
  for (std::size_t s = 0; s < stages.size(); ++s) {
    StageSpans& stage = stages[s];
    const bool first = s == 0, last = s + 1 == stages.size();
    for (std::size_t b = 0; b < facts.blocks.size(); ++b) {
      const BlockFacts& block = facts.blocks[b];
      const std::int64_t count = instances[s][b];
      if (count == 0) continue;
      if (stage.last_backward == Picoseconds()) {
        stage.last_backward = block.backward.span;
        stage.gradient_sent = block.backward.sends;
      }
      stage.last_forward = block.forward.span;
      stage.activation_sent = block.forward.sends;
      stage.forward += repeated(block.forward.span, count);
      stage.backward += repeated(block.backward.span, count);
      stage.forward_dispatch += repeated(block.forward.dispatch, count);
      stage.backward_dispatch += repeated(block.backward.dispatch, count);
    }
    if (!first) stage.forward_dispatch += transfer;
    if (!last) stage.backward_dispatch += transfer;
    stage.send_activation_dispatch = last ? Picoseconds() : transfer;
    stage.send_gradient_dispatch = first ? Picoseconds() : transfer;
    if (model.host_executes()) stage.post = transfer;
    if (!first) {
      const BlockFacts& sender = *end_block(facts, instances[s - 1], false);
      stage.receive_activation = costs.of(*sender.send_output, grid, std::int64_t(s) - 1)[0];
    }
    if (!last) {
      const BlockFacts& sender = *end_block(facts, instances[s + 1], true);
      stage.receive_gradient = costs.of(*sender.send_input_gradient, grid, std::int64_t(s) + 1)[0];
    }
  }
  return stages;
}

Picoseconds bottleneck_bound(std::span<const StageSpans> stages, std::int64_t micro_batches) {
  Picoseconds longest, there, back;  // to stage s and from it
  for (const StageSpans& stage : stages) {
    const bool first = &stage == &stages.front();
    const Picoseconds forward = stage.forward + stage.receive_activation;
    const Picoseconds backward = stage.backward + stage.receive_gradient;
    // The gradient leaves before the last backward is over; of stage 0 all of it counts.
    const Picoseconds early = first ? Picoseconds() : stage.last_backward - stage.gradient_sent;
    longest = std::max(longest, there + repeated(forward + backward, micro_batches) - early + back);
    longest = std::max(longest,
                       repeated(stage.forward_dispatch + stage.backward_dispatch, micro_batches));
    there += forward - stage.last_forward + stage.activation_sent;
    back += backward - early;
  }
  return longest;
}

namespace {

constexpr Picoseconds kNotYet{-1};

/// One step of the pipeline, a micro-batch per stage at a time.
class PipelineStep {
 public:
  PipelineStep(std::span<const StageSpans> stages, std::int64_t micro_batches,
               std::int64_t send_slots, std::span<const StepTail* const> tails)
      : stages_(stages), m_(micro_batches), slots_(send_slots), tails_(tails) {}

  /// When each stage's step ends.
  std::vector<Picoseconds> run(const std::vector<Picoseconds>& starts) {
    states_.assign(stages_.size(), {});
    for (std::size_t s = 0; s < states_.size(); ++s) {
      State& state = states_[s];
      state.clock = starts[s] + tails_[s]->begins;
      state.issued = starts[s] + tails_[s]->begins_dispatch;
      for (auto* times : {&state.activation_sent, &state.gradient_sent, &state.activation_received,
                          &state.gradient_received}) {
        times->assign(std::size_t(m_), kNotYet);
      }
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t s = 0; s < states_.size(); ++s) moved = advance(s) || moved;
    }
    return ends();
  }

 private:
  struct State {
    Picoseconds clock, issued;
    std::int64_t forwards = 0, backwards = 0;
    Picoseconds last_backward_began;
    /// By micro-batch: when its activation and its gradient are there to be sent, and when those of
    /// the neighbours have arrived here.
    std::vector<Picoseconds> activation_sent, gradient_sent, activation_received, gradient_received;
  };

  bool advance(std::size_t s) {
    bool moved = false;
    while (states_[s].backwards < m_ && (forward_is_next(s) ? forward(s) : backward(s))) {
      moved = true;
    }
    return moved;
  }

  bool forward_is_next(std::size_t s) const {
    const State& state = states_[s];
    const std::int64_t warm_up = std::min(m_, std::int64_t(states_.size() - s) - 1);
    return state.forwards < m_ && state.forwards < state.backwards + warm_up + 1;
  }

  /// When a transfer over the same pair of streams as the one before it ends, posted by both.
  static Picoseconds received(const std::vector<Picoseconds>& arrived, std::size_t i,
                              Picoseconds sent, Picoseconds posted, Picoseconds duration) {
    Picoseconds begin = std::max(sent, posted);
    if (i > 0) begin = std::max(begin, arrived[i - 1]);
    return begin + duration;
  }

  /// When the slot that micro-batch i sends from is free; kNotYet where that is not known.
  Picoseconds slot_free(const std::vector<Picoseconds>& arrived, std::size_t i) const {
    return std::int64_t(i) < slots_ ? kLongAgo : arrived[i - std::size_t(slots_)];
  }

  bool forward(std::size_t s) {
    State& state = states_[s];
    const StageSpans& stage = stages_[s];
    const auto i = std::size_t(state.forwards);
    const bool sends = s + 1 < states_.size();
    const Picoseconds slot = sends ? slot_free(states_[s + 1].activation_received, i) : kLongAgo;
    if (slot == kNotYet) return false;
    Picoseconds begin = state.clock;
    if (s > 0) {
      const Picoseconds sent = states_[s - 1].activation_sent[i];
      if (sent == kNotYet) return false;
      begin += stage.post;
      state.activation_received[i] =
          received(state.activation_received, i, sent, begin, stage.receive_activation);
      begin = std::max(begin, state.activation_received[i]);
    }
    const Picoseconds end = std::max(begin + stage.forward, slot + stage.last_forward);
    state.issued += stage.forward_dispatch;
    state.clock = std::max(end, state.issued);
    state.activation_sent[i] = stage.post > Picoseconds()
                                   ? state.clock + stage.post
                                   : end - stage.last_forward + stage.activation_sent;
    state.issued += stage.send_activation_dispatch;
    if (sends) state.clock += stage.post;
    ++state.forwards;
    return true;
  }

  bool backward(std::size_t s) {
    State& state = states_[s];
    const StageSpans& stage = stages_[s];
    const auto i = std::size_t(state.backwards);
    const Picoseconds slot = s > 0 ? slot_free(states_[s - 1].gradient_received, i) : kLongAgo;
    if (slot == kNotYet) return false;
    Picoseconds begin = state.clock;
    if (s + 1 < states_.size()) {
      const Picoseconds sent = states_[s + 1].gradient_sent[i];
      if (sent == kNotYet) return false;
      begin += stage.post;
      state.gradient_received[i] =
          received(state.gradient_received, i, sent, begin, stage.receive_gradient);
      begin = std::max(begin, state.gradient_received[i]);
    }
    state.last_backward_began = begin;
    const Picoseconds end = std::max(begin + stage.backward, slot + stage.last_backward);
    state.issued += stage.backward_dispatch;
    state.clock = std::max(end, state.issued);
    state.gradient_sent[i] = stage.post > Picoseconds()
                                 ? state.clock + stage.post
                                 : end - stage.last_backward + stage.gradient_sent;
    state.issued += stage.send_gradient_dispatch;
    if (s > 0) state.clock += stage.post;
    ++state.backwards;
    return true;
  }

  /// When the meetings of all stages [0] and of the two ends [1] are over, in order: each stage
  /// that takes part has its k-th meeting of a kind with the k-th of the others.
  using MeetingEnds = std::array<std::vector<Picoseconds>, 2>;

  std::vector<Picoseconds> ends() const {
    MeetingEnds over;
    // A meeting depends on those before it: after as many rounds as there are, all are known.
    for (std::size_t round = 0; round < tails_.front()->meetings.size(); ++round) {
      MeetingEnds next;
      for (std::size_t s = 0; s < states_.size(); ++s) {
        const std::vector<Picoseconds> known = sources(s, over);
        std::array<std::size_t, 2> count = {};
        for (const Meeting& meeting : tails_[s]->meetings) {
          std::vector<Picoseconds>& ends = next[meeting.pipeline_ends];
          const std::size_t k = count[meeting.pipeline_ends]++;
          if (k == ends.size()) ends.push_back(kLongAgo);
          ends[k] = std::max(ends[k], latest(meeting.posted, known) + meeting.duration);
        }
      }
      over = std::move(next);
    }
    std::vector<Picoseconds> ends;
    for (std::size_t s = 0; s < states_.size(); ++s) {
      const Picoseconds issued = states_[s].issued + tails_[s]->dispatch -
                                 stages_[s].backward_dispatch - stages_[s].send_gradient_dispatch;
      ends.push_back(
          std::max({latest(tails_[s]->ends, sources(s, over)), states_[s].clock, issued}));
    }
    return ends;
  }

  /// Begin of the last backward, then the ends of the stage's meetings.
  std::vector<Picoseconds> sources(std::size_t s, const MeetingEnds& over) const {
    std::vector<Picoseconds> times = {states_[s].last_backward_began};
    std::array<std::size_t, 2> count = {};
    for (const Meeting& meeting : tails_[s]->meetings) {
      const std::vector<Picoseconds>& ends = over[meeting.pipeline_ends];
      const std::size_t k = count[meeting.pipeline_ends]++;
      times.push_back(k < ends.size() ? ends[k] : kLongAgo);
    }
    return times;
  }

  std::span<const StageSpans> stages_;
  std::int64_t m_, slots_;
  std::span<const StepTail* const> tails_;
  std::vector<State> states_;
};

}  // namespace

Picoseconds pipeline_bound(std::span<const StageSpans> stages, std::int64_t micro_batches,
                           std::int64_t send_slots, std::span<const StepTail* const> tails) {
  PipelineStep step(stages, micro_batches, send_slots, tails);
  std::vector<Picoseconds> starts(stages.size());
  Picoseconds bound;
  for (int k = 0; k < 2; ++k) {
    const std::vector<Picoseconds> ends = step.run(starts);
    std::optional<Picoseconds> least;
    for (std::size_t s = 0; s < ends.size(); ++s) {
      const Picoseconds advance = ends[s] - starts[s];
      least = least ? std::min(*least, advance) : advance;
    }
    bound = std::max(bound, *least);
    starts = ends;
  }
  return bound;
}

}  // namespace plimsoll
