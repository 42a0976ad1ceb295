// `planner plan` and `planner space`: what could run, and what should.
#include <fmt/format.h>

#include <array>
#include <stdexcept>

#include "base/command_line.h"
#include "base/file.h"
#include "planner/commands.h"
#include "planner/describe.h"
#include "planner/progress.h"
#include "planner/search.h"
#include "planner/summary_json.h"

namespace plimsoll {

ExitCode run_plan(const PlanOptions& options) {
  const Fixed fixed = parse_fixed(options.fix);
  const Bytes reserve = parse_reserve(options.reserve);
  const TargetOptions& files = options.target;
  check_output("-o", options.output, std::array{files.job, files.cluster, files.calibration});
  const Target target = load_target(options.target);
  const CostModel costs = cost_model(target);

  Plan plan;
  {
    Progress progress("evaluating strategies:");
    SearchRequest request;
    request.job = target.job;
    request.framework = target.framework;
    request.devices = options.target.devices;
    request.fixed = fixed;
    request.reserve = reserve;
    request.cluster_digest = target.cluster_digest;
    request.calibration_digest = target.calibration_digest;
    request.progress = [&](std::int64_t done, std::int64_t of) { progress.update(done, of); };
    plan = search(request, costs);
  }
  const std::string text = plan_text(plan);
  if (!options.output.empty()) {
    write_file_atomically(options.output, text);
    print_note(fmt::format("wrote {}\n", options.output));
  }
  print_result(options.json ? text
                            : fmt::format("{}; reserve {} per device\n{}",
                                          headline(target, plan.devices, plan.oversubscribed),
                                          to_text(reserve), describe(plan)));
  return ExitCode::ok;
}

ExitCode run_space(const SpaceOptions& options) {
  const Fixed fixed = parse_fixed(options.fix);
  const Job job = load_job(options.target);
  const Space space = enumerate(job, bundled_framework(), options.target.devices, fixed);
  print_result(options.json ? space_json(job, options.target.devices, space) : describe(space));
  if (!space.legal.empty()) return ExitCode::ok;
  throw InfeasibleError(fmt::format("no legal strategy for {} on {} devices: {}", job.name,
                                    options.target.devices, space.first_reason));
}

}  // namespace plimsoll
