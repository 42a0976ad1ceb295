// Brief: results of the planner in at most fifteen lines of a terminal, in the field's words. What
// they leave out is in planner/cli/describe.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "planner/api/target.h"
#include "planner/refusal/refuse.h"
#include "predict/evaluate.h"

namespace plimsoll {

inline constexpr std::size_t kBriefLines = 15;

/// A BriefEnd stands below a result.
struct BriefEnd {
  std::optional<Training> training;  ///< as asked
  std::vector<std::string> next;     ///< commands that go on from here, a line each
  bool lists_all = false;            ///< all other plans are listed, however many lines they take
  /// The script's own layout, if the plan is of a script that states one.
  std::optional<Prediction> script{};
};

/// Returns lines on a plan: layout, step, speed, memory, days of a training, where the step goes,
/// what the numbers rest on, plans to take instead, and commands.
std::string brief(const LoadedTarget& loaded, const Plan& plan, const BriefEnd& end);
/// Returns these lines for one strategy, without other plans.
std::string brief(const LoadedTarget& loaded, const Strategy& strategy,
                  const Prediction& prediction, const BriefEnd& end);

/// Returns three lines: what does not fit and by how much, the change that a practitioner would try
/// first, and the command for it. An empty command is left out.
std::string brief(const NothingFits& refused, const std::string& command);

/// Returns the first line: "llama3-8b (8.03 B parameters) on 16 GPUs (2 x dgx-h100-80gb),
/// megatron-lm".
std::string brief_headline(const LoadedTarget& loaded, const std::string& found = "");
/// Returns "16 GPUs (2 x dgx-h100-80gb)", "4 GPUs of dgx-h100-80gb".
std::string devices_of(const Target& target);
/// Returns what step times rest on: "124 published runs of megatron-lm on dgx-h100-80gb ...".
std::string basis_text(const LoadedTarget& loaded);

}  // namespace plimsoll
