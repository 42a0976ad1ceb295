// Assessing candidates: fewer micro-batches than the job has, and only the allocators that matter.
#include "planner/explore/assess.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "planner/bounds/shorter_step.h"
#include "simulator/memory/allocation_replay.h"
#include "simulator/simulate.h"

namespace plimsoll {
namespace {

Footprint footprint_of(const Target& target, const Strategy& strategy) {
  return lay_out(target, strategy, Proof::none, AllocatorReplay::leave_out);
}

/// Notes a candidate's step. A step longer than the simulator reckons with counts as too long.
void set_time(Seconds step, Candidate& candidate) {
  candidate.prediction.step_time = step;
  candidate.too_long = step > kLongestTimeline.seconds();
}

/// The shares by which allocators exceed the bytes alive at once. On the fullest stage it is 1 to
/// 5 %, and on one stage in twenty 15 %.
constexpr double kUsualOverhead = 0.05, kMostOverhead = 0.15;

/// A replay of the stages of one candidate.
struct Replay {
  Footprint footprint;
  std::vector<std::size_t> order;                 ///< stages, those with the least room first
  Bytes unavailable;                              ///< bytes of a device that no allocator gets
  std::vector<std::optional<AllocatorUse>> uses;  ///< by stage; nothing: not replayed
};

Bytes unavailable_to_allocator(const Target& target, const Strategy& strategy) {
  return outside_program(target, strategy) + target.reserve;
}

Replay begin_replay(const Target& target, const Strategy& strategy, Footprint footprint) {
  Replay replay{std::move(footprint), {}, unavailable_to_allocator(target, strategy), {}};
  const std::vector<StagePrediction>& stages = replay.footprint.stages;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) replay.order.push_back(stage);
  replay.uses.resize(stages.size());
  std::stable_sort(replay.order.begin(), replay.order.end(), [&](std::size_t a, std::size_t b) {
    return stages[a].peak - stages[a].capacity > stages[b].peak - stages[b].capacity;
  });
  return replay;
}

/// Whether the stage has so little room that its allocator decides whether it fits.
bool is_tight(const StagePrediction& stage, Bytes unavailable) {
  return double((stage.peak + unavailable).count()) >
         (1 - kUsualOverhead) * double(stage.capacity.count());
}

/// Whether the stage must be replayed. A replay tells whether the stage fits, and whether it takes
/// more than `most`, the bytes of the fullest stage so far. In 138 plans of 7 jobs a tenth of the
/// stages were replayed. In two of these plans a stage left out takes more than `most`, by at most
/// 1.6 %.
bool is_open(const Replay& replay, std::size_t stage, Bytes most) {
  const StagePrediction& prediction = replay.footprint.stages[stage];
  const auto peak = double(prediction.peak.count());
  const auto room = double((prediction.capacity - replay.unavailable).count());
  return (1 + kMostOverhead) * peak > room || (1 + kUsualOverhead) * peak > double(most.count());
}

/// Replays stages, those with the least room first. Returns whether all fit.
bool replay_stages(const Framework& framework, Replay& replay) {
  Bytes most;
  for (const std::size_t stage : replay.order) {
    if (!is_open(replay, stage, most)) continue;
    const Bytes room = replay.footprint.stages[stage].capacity - replay.unavailable;
    std::optional<AllocatorUse>& use = replay.uses[stage];
    use = replay_within(replay.footprint.programs[stage], framework, room);
    if (!use) return false;
    most = std::max(most, use->reserved);
  }
  return true;
}

/// Writes the bytes that replayed stages take. A stage that was not replayed counts with the bytes
/// that are alive at once.
void set_uses(std::span<const std::optional<AllocatorUse>> uses,
              std::span<StagePrediction> stages) {
  for (std::size_t stage = 0; stage < uses.size(); ++stage) {
    stages[stage].allocated = uses[stage] ? uses[stage]->allocated : stages[stage].peak;
    stages[stage].reserved = uses[stage] ? uses[stage]->reserved : stages[stage].peak;
  }
}

/// Runs the allocators of a candidate that was laid out.
void run_allocators(const Target& target, Footprint& footprint, Candidate& candidate) {
  Replay replay = begin_replay(target, candidate.strategy, std::move(footprint));
  candidate.fits = replay_stages(target.framework(), replay);
  candidate.replayed = true;
  if (candidate.fits) {
    set_uses(replay.uses, replay.footprint.stages);
  } else {
    candidate.prediction = {};
  }
  candidate.prediction.stages = replay.footprint.stages;
  footprint = std::move(replay.footprint);
}

/// Finds the memory of a candidate that was laid out. Returns whether its allocators decide whether
/// it fits.
bool find_memory(const Target& target, const Footprint& footprint, Candidate& candidate) {
  candidate.prediction.stages = footprint.stages;
  candidate.fits = fits_host(target, candidate.strategy, footprint.stages);
  if (!candidate.fits) return false;
  if (has_arena(target.framework())) {
    candidate.fits = fits_devices(target, candidate.strategy, footprint.stages);
    return false;
  }
  const Bytes unavailable = unavailable_to_allocator(target, candidate.strategy);
  return std::ranges::any_of(
      footprint.stages, [&](const StagePrediction& stage) { return is_tight(stage, unavailable); });
}

/// Finds memory and step time. Both are those of a shorter step where one stands for all.
void find(const Target& target, const IsWorthReplay& is_worth, Candidate& candidate) {
  const Strategy& strategy = candidate.strategy;
  const CostModel costs = costs_of(target, strategy);
  const auto shorter = with_fewer_micro_batches(target, strategy);
  Footprint footprint = footprint_of(shorter ? shorter->target : target, strategy);
  bool open = find_memory(target, footprint, candidate);
  const auto settle = [&] {
    if (std::exchange(open, false)) run_allocators(target, footprint, candidate);
  };
  if (!is_worth) settle();
  if (!candidate.fits) return;
  const auto whole_step = [&](const Footprint& whole) {
    return simulate(whole.programs, costs, Folding::folded, Detail::none).step_time;
  };
  const auto step = shorter ? step_time(footprint.programs, shorter->stand_for, costs)
                            : std::optional(whole_step(footprint));
  if (step) {
    set_time(*step, candidate);
    if (open && feasible(candidate) && is_worth(candidate)) settle();
    return;
  }
  settle();
  if (candidate.fits) set_time(whole_step(footprint_of(target, strategy)), candidate);
}

}  // namespace

Candidate assess(const Target& target, const Strategy& strategy, std::size_t index,
                 const IsWorthReplay& is_worth) {
  Candidate candidate;
  candidate.index = index;
  candidate.strategy = strategy;
  try {
    find(target, is_worth, candidate);
  } catch (const InfeasibleError&) {
    candidate.too_long = true;
  }
  return candidate;
}

void confirm_memory(const Target& target, std::span<Candidate> candidates, std::int64_t threads) {
  if (has_arena(target.framework())) return;
  for_each_index(candidates.size(), threads, [&](std::size_t i) {
    const Strategy& strategy = candidates[i].strategy;
    if (!feasible(candidates[i]) || candidates[i].replayed) return;
    const auto shorter = with_fewer_micro_batches(target, strategy);
    Footprint footprint = footprint_of(shorter ? shorter->target : target, strategy);
    run_allocators(target, footprint, candidates[i]);
  });
}

Bytes taken_by(const Target& target, const Candidate& candidate) {
  return largest(candidate.prediction.stages, &StagePrediction::reserved) +
         outside_program(target, candidate.strategy);
}

}  // namespace plimsoll
