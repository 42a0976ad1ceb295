// Questions of planning and their answers, without a terminal: command lines and the Python module
// ask the same ones.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "passes/strategy/constraints.h"
#include "plan/plan.h"
#include "planner/api/plan_target.h"
#include "planner/api/target.h"
#include "planner/explain/why_not.h"
#include "predict/evaluate.h"
#include "predict/stage_memory.h"
#include "reports/sections/explanation.h"

namespace plimsoll {

/// Asks for the best strategy of a job.
struct PlanQuestion {
  TargetOptions target;
  Constraints constraints;
  std::optional<TrainingGoal> training;
  Bytes reserve = kDefaultReserve;
  std::optional<Seconds> time_limit;
  std::int64_t threads = 0;      ///< 0: all cores
  std::int64_t top = 0;          ///< how many plans are listed; 0: the usual runners-up
  bool fastest = false;          ///< as in SearchRequest
  std::function<bool()> stop{};  ///< as in SearchRequest
  std::function<void(std::int64_t done, std::int64_t of)> progress{};  ///< as in SearchRequest
};

struct PlanAnswer {
  Plan plan;  ///< with its origin
  LoadedTarget loaded;
  Seconds elapsed;  ///< of the search
  /// The layout of the script that `target.from` names, if it is legal on these devices.
  std::optional<Prediction> script;
};

/// Throws as search() does, and as the readers of what the question names.
PlanAnswer plan_job(PlanQuestion question);

/// Asks what one strategy costs.
struct SimulationQuestion {
  TargetOptions target;
  /// "mp=2,pp=2", a file, or a key of `target.texts`. Empty: the strategy of the script that
  /// `target.from` names.
  std::string strategy;
  std::optional<TrainingGoal> training;
  Bytes reserve = kDefaultReserve;
  Folding folding = Folding::folded;
};

struct SimulationAnswer {
  LoadedTarget loaded;
  Strategy strategy;
  Evaluation evaluation;
  std::vector<StageMemory> memory;  ///< by class of ranks
  std::optional<Training> training;
};

/// Throws InfeasibleError where the strategy is not legal. A strategy that does not fit is
/// answered.
SimulationAnswer simulate_job(SimulationQuestion question);

/// Asks why a plan is best, or what other choices cost against it.
struct ExplainQuestion {
  PlanFiles files;
  std::optional<Seconds> time_limit;  ///< of each search
  std::int64_t threads = 0;
};

/// Explanations of one plan begin with this.
struct ExplainBase {
  LoadedTarget loaded;
  ExplainRequest request;
};

/// Finds the plan's costs again, and the choices that were held as it was made.
ExplainBase explain_base(const Plan& plan, const ExplainQuestion& question);

/// Returns the choices in which the strategy of a script differs from the plan's. Throws InputError
/// where the script is of another job, or of other devices.
Fixed choices_of_script(const Plan& plan, const std::string& file, const TargetOptions& reading);

/// The explanation of a plan, or why there is none.
struct Explained {
  std::optional<Explanation> explanation;
  std::string why_not;
};

/// Explains the plan with its cluster and calibration. When neither is given and they are not built
/// in, or this version predicts another step, there is no explanation. `progress` and `stop` may be
/// empty; they are those of ExplainRequest.
Explained explain_for_report(const Plan& plan, const ExplainQuestion& question,
                             const std::function<void(std::int64_t, std::int64_t)>& progress,
                             const std::function<bool()>& stop);

}  // namespace plimsoll
