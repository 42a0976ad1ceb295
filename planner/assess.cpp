#include "planner/assess.h"

#include "simulator/simulate.h"

namespace plimsoll {
namespace {

/// Of a strategy laid out; longer than the simulator reckons with counts as too long.
void simulate_candidate(const SearchRequest& request, const CostModel& costs,
                        const Footprint& footprint, Candidate& candidate) {
  try {
    candidate.score = predict(request.job, candidate.strategy, footprint, costs, request.devices,
                              Folding::folded, Detail::none)
                          .score;
    candidate.too_long = candidate.score.prediction.step_time > kLongestTimeline.seconds();
  } catch (const InfeasibleError&) {
    candidate.too_long = true;
  }
}

/// What is known of its memory.
void set_memory(const Footprint& footprint, Score& score) {
  score.arena = footprint.arena;
  score.peak = footprint.peak;
  score.allocated = footprint.allocated;
  score.reserved = footprint.reserved;
  score.fits = footprint.fits;
  score.prediction.stages = footprint.stages;
}

}  // namespace

std::optional<Candidate> assess(const SearchRequest& request, const CostModel& costs,
                                const Strategy& strategy, std::size_t index,
                                const std::function<bool(const Candidate&)>& may_matter) {
  Footprint footprint = lay_out(request.job, strategy, request.framework, costs.cluster(),
                                request.reserve, Proof::none, AllocatorReplay::leave_out);
  Candidate candidate;
  candidate.index = index;
  candidate.strategy = strategy;
  set_memory(footprint, candidate.score);
  if (!footprint.fits) return candidate;
  simulate_candidate(request, costs, footprint, candidate);
  if (request.framework.allocator.kind == AllocatorKind::arena) return candidate;
  if (!candidate.too_long && !may_matter(candidate)) return std::nullopt;
  replay_allocators(footprint, request.job, strategy, request.framework, request.reserve);
  if (!footprint.fits) {
    candidate.score = {};
    candidate.too_long = false;
  }
  set_memory(footprint, candidate.score);
  return candidate;
}

}  // namespace plimsoll
