// `planner doctor`.
#include <algorithm>

#include "base/command_line.h"
#include "planner/cli/commands.h"
#include "planner/doctor/doctor.h"

namespace plimsoll {

ExitCode run_doctor(const DoctorOptions& options) {
  const std::vector<Finding> findings = examine(this_machine());
  print_result(options.json ? findings_json(findings) : findings_text(findings));
  const bool failed = std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.health == Health::fail;
  });
  return failed ? ExitCode::environment : ExitCode::ok;
}

}  // namespace plimsoll
