// First plan: finds a plan that fits before all strategies are bounded, so that a search that is
// stopped early has one to show.
#pragma once

#include <functional>
#include <optional>

#include "planner/explore/family_bounds.h"
#include "planner/explore/runners_up.h"

namespace plimsoll {

/// The space of a target and its bounds, in which a first plan is looked for.
struct FirstPlanRequest {
  const Target& target;
  const StrategyList& legal;
  const Bounds& bounds;
  const FamilyBounds& families;
  std::function<bool()> passed;  ///< whether to end without a plan
  std::int64_t threads = 0;      ///< as SearchRequest::threads
};

/// Returns the fastest of a few plans that fit. One is the first of the leanest families, from the
/// fewest ranks for one copy of the model on, each with the smallest micro-batch and all layers
/// recomputed. The others are the first of the families of usual choices, in the order of their
/// bounds. Usual are small micro-batches, tensor parallelism within
/// a node, a power of two of stages, no context parallelism, and whole experts. Optimizer states
/// are shared by all replicas or by none. Returns nothing where no try of the first list fits, or
/// `passed` comes first.
std::optional<Candidate> first_plan(const FirstPlanRequest& request);

}  // namespace plimsoll
