// Finds the runs of a layout among those that a calibration was learned from.
#include "predict/tried_layouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/file.h"

namespace plimsoll {
namespace {

std::vector<const LearnedStep*> runs_of(const Target& target) {
  std::vector<const LearnedStep*> runs;
  const std::optional<FittedCalibration>& fitted = target.costs->fitted();
  if (!fitted || !fitted->learned) return runs;
  const std::string job =
      digest_of(target.job, target.devices, target.cluster(), target.framework());
  for (const LearnedStep& run : fitted->learned->runs)
    if (run.job_digest == job && !run.contradicts) runs.push_back(&run);
  return runs;
}

}  // namespace

std::string digest_of(Job job, std::int64_t devices, const Cluster& cluster,
                      const Framework& framework) {
  job.name.clear();
  job.vocab = 1;
  return digest(fmt::format("{}{} {} {}", job_text(job), devices, cluster.name, framework.name));
}

std::string digest_of(const Job& job, Strategy strategy) {
  strategy.pipeline.layer_split = layers_per_part(job, strategy);
  strategy.pipeline.embedding_as_layers = strategy.pipeline.loss_as_layers = 0;
  return digest(strategy_text(strategy));
}

const LearnedStep* fastest_run(const Target& target) {
  const std::vector<const LearnedStep*> runs = runs_of(target);
  const auto fastest = std::ranges::min_element(runs, {}, &LearnedStep::measured);
  return fastest == runs.end() ? nullptr : *fastest;
}

const LearnedStep* last_run(const Target& target, const Strategy& strategy) {
  const LearnedStep* last = nullptr;
  for (const LearnedStep* run : runs_of(target))
    if (run->strategy_digest == digest_of(target.job, strategy)) last = run;
  return last;
}

}  // namespace plimsoll
