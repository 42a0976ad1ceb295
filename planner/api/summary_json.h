// Writes JSON for results that have no file format of their own (docs/reference/other-results.md).
#pragma once

#include <optional>
#include <span>
#include <string>

#include "models/job/job.h"
#include "plan/check.h"
#include "planner/api/questions.h"
#include "planner/explore/explore.h"
#include "predict/evaluate.h"
#include "predict/stage_memory.h"

namespace plimsoll {

/// Returns the result of `planner space --json`, with every legal strategy if `list` is set.
std::string space_json(const Job& job, std::int64_t devices, const SpaceSummary& summary,
                       bool list);
/// Returns the result of `planner simulate --json`.
std::string evaluation_json(const SimulationAnswer& answer);
/// Returns the result of `planner check --json`: all rules, and those that the plan breaks.
std::string check_json(std::span<const Rule> rules, std::span<const Violation> violations);
/// Returns the result of `planner report --json`: the page's file, and its verdict, which is null
/// without a measurement.
std::string report_json(const std::string& output, const std::optional<std::string>& verdict);

}  // namespace plimsoll
