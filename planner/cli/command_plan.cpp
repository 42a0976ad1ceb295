// `planner plan` and `planner space`: what could run, and what should.
#include <fmt/format.h>

#include <array>
#include <chrono>
#include <stdexcept>

#include "base/command_line.h"
#include "base/file.h"
#include "planner/cli/commands.h"
#include "planner/cli/describe.h"
#include "planner/cli/interrupt.h"
#include "planner/cli/progress.h"
#include "planner/cli/summary_json.h"
#include "planner/explore/explore.h"
#include "planner/search/search.h"

namespace plimsoll {
namespace {

/// How much faster a plan that the time limit left out may be.
std::string words_of_gap(const Plan& plan) {
  if (plan.search.gap == 0) {
    return "no plan is faster than the chosen one; runners-up and Pareto front may lack some";
  }
  return fmt::format("no plan takes less than {}, {:.2f} % below the best so far",
                     to_text(plan.prediction.step_time / (1 + plan.search.gap)),
                     100 * (1 - 1 / (1 + plan.search.gap)));
}

/// Why a search did not prove its choice.
std::string why_unproven(const InterruptNotice& interrupt, std::optional<Seconds> time_limit,
                         Seconds elapsed) {
  if (interrupt.asked()) return "stopped by an interrupt";
  if (time_limit && elapsed >= *time_limit)
    return fmt::format("stopped after the time limit of {}", to_text(*time_limit));
  return "a faster plan that others were cut beside turned out not to fit";
}

}  // namespace

ExitCode run_plan(const PlanOptions& options) {
  const Fixed fixed = parse_fixed(options.fix);
  const Bytes reserve = parse_reserve(options.reserve);
  std::optional<Seconds> time_limit;
  if (!options.time_limit.empty()) time_limit = parse_time_limit(options.time_limit);
  const TargetOptions& files = options.target;
  std::vector<std::string> inputs = files.calibration;
  inputs.insert(inputs.end(), {files.job, files.cluster});
  check_output("-o", options.output, inputs);
  const Target target = load_target(options.target);
  const CostModel costs = cost_model(target);

  Plan plan;
  const InterruptNotice interrupt;
  const auto begin = std::chrono::steady_clock::now();
  try {
    Progress progress("strategies done with:");
    SearchRequest request;
    request.job = target.job;
    request.framework = target.framework;
    request.devices = target.devices;
    request.fixed = fixed;
    request.reserve = reserve;
    request.cluster_digest = target.cluster_digest;
    request.calibration_digest = target.calibration_digest;
    request.threads = options.threads;
    request.time_limit = time_limit;
    request.stop = [&] { return interrupt.asked(); };
    request.progress = [&](std::int64_t done, std::int64_t of) { progress.update(done, of); };
    plan = search(request, costs);
  } catch (const NothingFoundYet& stopped) {
    print_note(fmt::format("planner: {}\n", stopped.what()));
    return ExitCode::stopped_early;
  } catch (const NothingFits& refused) {
    print_note("planner: " + describe(refused));
    return ExitCode::infeasible;
  }
  const Seconds elapsed(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  print_note(fmt::format("searched {} strategies in {}\n", plan.search.space, to_text(elapsed)));
  plan.stated_vocabulary = target.stated_vocabulary;
  plan.calibration_rest_digest = target.calibration_rest_digest;
  plan.origin = origin_of(target, options);
  const std::string text = plan_text(plan);
  if (!options.output.empty()) {
    write_file_atomically(options.output, text);
    print_note(fmt::format("wrote {}\n", options.output));
  }
  print_result(options.json ? text
                            : fmt::format("{}; reserve {} per device\n{}{}{}",
                                          headline(target, plan.devices, plan.oversubscribed),
                                          to_text(reserve), efficiency_line(target),
                                          describe_parameters(stated_job(target)), describe(plan)));
  if (plan.search.proven) return ExitCode::ok;
  print_note(fmt::format("planner: {}: {}\n", why_unproven(interrupt, time_limit, elapsed),
                         words_of_gap(plan)));
  return ExitCode::stopped_early;
}

ExitCode run_space(const SpaceOptions& options) {
  const Fixed fixed = parse_fixed(options.fix);
  const Bytes reserve = parse_reserve(options.reserve);
  std::int64_t devices = options.target.devices;
  SpaceSummary summary;
  Job job, stated;
  std::string head;  // with a cluster
  if (options.target.cluster.empty()) {
    if (devices == 0) throw UsageError("--devices is required without --cluster");
    const Framework framework = load_framework(options.target);
    job = load_job(options.target, framework);
    stated = job;
    stated.vocab = read_job(options.target.job).vocab;
    DeviceUnits unknown;
    unknown.alike = false;  // ranks may be neighbours in any way: every order is one of its own
    summary.space = enumerate(job, framework, devices, fixed, unknown);
  } else {
    const Target target = load_target(options.target);
    job = target.job;
    stated = stated_job(target);
    devices = target.devices;
    head = headline(target, devices, check_devices(target.cluster, devices)) + "\n";
    summary.space = enumerate(job, target.framework, devices, fixed, units_of(target.cluster));
    SearchRequest request;
    request.job = job;
    request.framework = target.framework;
    request.devices = devices;
    request.reserve = reserve;
    summary.bounds = count_bounds(request, cost_model(target), summary.space);
  }
  print_result(options.json ? space_json(stated, devices, summary, options.list)
                            : head + describe_parameters(stated) + describe(summary, options.list));
  if (!summary.space.legal.empty()) return ExitCode::ok;
  throw InfeasibleError(fmt::format("no legal strategy for {} on {}: {}", job.name,
                                    devices_text(devices), summary.space.reason));
}

}  // namespace plimsoll
