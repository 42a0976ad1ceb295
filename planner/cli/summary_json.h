// JSON of the results that have no file format of their own (docs/reference/other-results.md).
#pragma once

#include <optional>
#include <span>
#include <string>

#include "models/job/job.h"
#include "plan/check.h"
#include "planner/explore/explore.h"
#include "predict/evaluate.h"
#include "predict/stage_memory.h"

namespace plimsoll {

/// `planner space --json`; `legal` only where they are listed.
std::string space_json(const Job& job, std::int64_t devices, const SpaceSummary& summary,
                       bool list);
/// `planner simulate --json`; `outside`: what the framework takes beside its tensors.
std::string evaluation_json(const Job& job, const Strategy& strategy, std::int64_t devices,
                            const Evaluation& evaluation, std::span<const StageMemory> memory,
                            Bytes outside, Bytes reserve);
/// `planner check --json`: all rules, and those that the plan breaks.
std::string check_json(std::span<const Rule> rules, std::span<const Violation> violations);
/// `planner report --json`: where the page is, and its verdict; null without a measurement.
std::string report_json(const std::string& output, const std::optional<std::string>& verdict);

}  // namespace plimsoll
