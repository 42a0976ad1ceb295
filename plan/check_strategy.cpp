// Rules: the job is well formed and the strategy legal for it on these devices.
#include "plan/check_rules.h"

namespace plimsoll {
namespace {

Finding job_well_formed(const CheckContext& context) {
  try {
    check_job(context.plan.job, "job");
  } catch (const InputError& error) {
    return error.what();
  }
  return std::nullopt;
}

Finding strategy_legal(const CheckContext& context) {
  if (job_well_formed(context)) return std::nullopt;  // other jobs have no meaning further on
  const Strategy& strategy = context.plan.strategy;
  Verdict verdict = legal(context.plan.job, strategy, context.plan.devices);
  if (verdict) verdict = legal(context.plan.framework, context.plan.job, strategy);
  if (verdict) return std::nullopt;
  return verdict.reason();
}

constexpr CheckRule kStrategyRules[] = {
    {{"job-well-formed", "The embedded job keeps the rules of a job file."}, job_well_formed},
    {{"strategy-legal", "The strategy is legal for the job, these devices and the framework."},
     strategy_legal},
};

}  // namespace

std::span<const CheckRule> strategy_rules() { return kStrategyRules; }

}  // namespace plimsoll
