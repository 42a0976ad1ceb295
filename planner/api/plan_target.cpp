// Loads the cluster and calibration of a plan, and checks that they are its own.
#include "planner/api/plan_target.h"

#include <fmt/format.h>

#include "base/file.h"
#include "models/presets/presets.h"
#include "planner/api/learned_files.h"
#include "predict/evaluate.h"

namespace plimsoll {
namespace {

std::string cluster_text_of(const Plan& plan, const PlanFiles& files) {
  if (!files.cluster.empty()) {
    const std::string file = cluster_file(files.cluster, plan.devices, files.texts);
    const std::string text = given_text(files.texts, file, cluster_presets());
    check_same("--cluster", files.cluster, digest(text), plan.cluster_digest);
    return text;
  }
  for (const Preset& preset : cluster_presets()) {
    if (digest(preset.text) == plan.cluster_digest) return std::string(preset.text);
  }
  throw UsageError(fmt::format(
      "--cluster is required: no built-in cluster is the {} that the plan was made with",
      plan.cluster_name));
}

std::vector<std::string> calibration_of(const Plan& plan, const PlanFiles& files,
                                        const Cluster& cluster) {
  if (!files.calibration.empty()) return files.calibration;
  if (!plan.origin.calibration_name.empty()) return {plan.origin.calibration_name};
  if (plan.calibration_digest.empty()) return {std::string(kNoCalibration)};
  for (const std::string& file : learned_calibration(cluster, plan.framework)) {
    if (digest(read_file(file)) == plan.calibration_digest) return {file};
  }
  throw UsageError(
      "--calibration is required: the plan was made with a calibration file; give it as to plan");
}

}  // namespace

void check_same(const char* flag, const std::string& file, const std::string& found,
                const std::string& wanted) {
  if (found == wanted) return;
  throw InputError(
      file, "",
      fmt::format("found the digest {}; the plan was made with {} {}",
                  found.empty() ? "of nothing" : found, flag, wanted.empty() ? "none" : wanted));
}

LoadedTarget target_of_plan(const Plan& plan, const PlanFiles& files) {
  const std::string text = cluster_text_of(plan, files);
  const std::string name = files.cluster.empty() ? plan.cluster_name : files.cluster;
  const Cluster cluster = parse_cluster(text, name);
  CostBasis basis = cost_basis(cluster, plan.framework,
                               read_calibration_choice(calibration_of(plan, files, cluster)), name);
  check_same("--calibration", basis.source.name, basis.source.digest, plan.calibration_digest);
  check_same("--calibration", basis.source.name, basis.source.rest_digest,
             plan.calibration_rest_digest);
  CostModel costs(std::move(basis.cluster), std::move(basis.measured), std::move(basis.framework),
                  std::move(basis.fitted));
  LoadedTarget loaded{Target(plan.job, std::move(costs), plan.devices, plan.reserve),
                      std::move(basis.source), plan.stated_vocabulary, plan.cluster_digest};
  const Footprint footprint =
      lay_out(loaded.target, plan.strategy, Proof::none, AllocatorReplay::leave_out);
  const Seconds step =
      predict(loaded.target, plan.strategy, footprint, Folding::folded, Detail::none)
          .prediction.step_time;
  if (step == plan.prediction.step_time) return loaded;
  throw InputError(files.plan, "/prediction/step_time_s",
                   fmt::format("found {}, and this version predicts {} with these costs; make the "
                               "plan again: {}",
                               to_text(plan.prediction.step_time), to_text(step),
                               plan.origin.command.empty() ? "planner plan" : plan.origin.command));
}

}  // namespace plimsoll
