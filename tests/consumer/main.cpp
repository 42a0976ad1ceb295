// Predicts a strategy and searches for the best one, with installed headers and libraries alone.
#include <cstdio>

#include "models/cluster/cluster.h"
#include "models/framework/framework.h"
#include "models/job/job.h"
#include "models/presets/presets.h"
#include "planner/search/search.h"
#include "predict/cost_basis.h"
#include "predict/evaluate.h"

int main(int, char** argv) {
  using namespace plimsoll;
  const std::string job = argv[1], cluster = argv[2];
  CostBasis basis = cost_basis(read_cluster(cluster), bundled_framework(), own_numbers(), cluster);
  CostModel costs(std::move(basis.cluster), std::move(basis.measured), std::move(basis.framework),
                  std::move(basis.fitted));
  const Target target(parse_job(read_file_or_preset(job, job_presets()), job), std::move(costs), 2);
  const Evaluation two_stages = evaluate(target, parse_strategy("pp=2"));
  const Plan plan = search(SearchRequest{target});
  std::printf("%s %.9g %.9g %s\n", std::string(kProductVersion).c_str(),
              two_stages.prediction.step_time.value(), plan.prediction.step_time.value(),
              strategy_summary(plan.strategy).c_str());
  return 0;
}
