// Evaluate: Strategy -> lower -> simulate -> Score.
#pragma once

#include "models/framework.h"
#include "models/job.h"
#include "passes/strategy.h"
#include "plan/plan.h"
#include "simulator/cost_model.h"
#include "simulator/simulate.h"

namespace plimsoll {

struct Score {
  Prediction prediction;
  Bytes arena;         ///< largest over stages: what is allocated
  Bytes peak;         ///< largest over stages
  bool fits = false;  ///< every stage's arena plus `reserve` within the device
};

struct Evaluation {
  Score score;
  std::vector<std::string> program_digests;
  Timeline timeline;
};

/// Reserve: bytes kept free on each device beside the planned arena (runtime, libraries). The
/// strategy must be legal(). Throws InputError when the cluster states no peak for the job's dtype.
Evaluation evaluate(const Job& job, const Strategy& strategy, const Framework& framework,
                    const CostModel& costs, std::int64_t devices, Bytes reserve,
                    Folding folding = Folding::folded);

}  // namespace plimsoll
