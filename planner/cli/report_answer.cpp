// Explains a plan for its page.
#include "planner/cli/report_answer.h"

#include "base/error.h"
#include "planner/explain/report_explanation.h"

namespace plimsoll {

Explained explain_for_report(const Plan& plan, const ExplainQuestion& question,
                             const std::function<void(std::int64_t, std::int64_t)>& progress,
                             const std::function<bool()>& stop) {
  if (!question.time_limit.empty()) parse_time_limit(question.time_limit);  // never a plan's fault
  const bool files_given = !question.files.cluster.empty() || !question.files.calibration.empty();
  try {
    ExplainRequest request = explain_base(plan, question).request;
    if (progress) request.progress = progress;
    if (stop) request.stop = stop;
    return {explanation_for_report(request), ""};
  } catch (const UsageError& missing) {
    if (files_given) throw;
    return {std::nullopt, missing.what()};
  } catch (const InputError& other) {
    if (files_given) throw;
    return {std::nullopt, other.what()};
  }
}

}  // namespace plimsoll
