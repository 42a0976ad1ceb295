// Describes strategies, and the plans that chose them.
#include <fmt/format.h>

#include "passes/strategy/strategy_fields.h"
#include "planner/describe/describe_input.h"
#include "reports/numbers.h"
#include "reports/plan_words.h"

namespace plimsoll {
namespace {

Section choice_section(const Strategy& strategy) {
  Section section{"strategy", "strategy"};
  for (const StrategyField& field : shown_fields(strategy)) {
    section.add(std::string(field.key),
                fmt::format("{:<12} {}", field.value, meaning_of(field.key, field.value)),
                field.value);
  }
  return section;
}

}  // namespace

Description describe_strategy(const Strategy& strategy, const std::string& name) {
  Description description{"strategy", name, {choice_section(strategy)}};
  Section ranks{"ranks", "ranks"};
  ranks.add_count("devices", grid_of(strategy).world_size());
  ranks.add_count("shards of the optimizer", optimizer_shards(strategy));
  description.sections.push_back(std::move(ranks));
  return description;
}

Description describe_plan(const Plan& plan) {
  Section origin{"made", "made"};
  origin.add("by", fmt::format("planner {}", printable(plan.origin.version)));
  if (!plan.origin.command.empty()) origin.add("with", printable(plan.origin.command, 1000));
  origin.add("calibration", plan.origin.calibration_provenance);
  origin.add("interval", plan.origin.interval_basis);
  Section target{"for", "for"};
  target.add("job", plan.job.name);
  target.add_count("parameters", parameter_count(plan));
  target.add_count("global batch", plan.job.global_batch);
  target.add_count("devices", plan.devices);
  target.add("cluster", plan.cluster_name);
  target.add("framework", plan.framework.name);
  target.add_bytes("kept free", plan.reserve);
  return {"plan", plan.job.name, {origin, target, choice_section(plan.strategy)}};
}

}  // namespace plimsoll
