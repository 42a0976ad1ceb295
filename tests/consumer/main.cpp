// Asks what one strategy costs and which is best, with installed headers and libraries alone.
#include <cstdio>

#include "planner/api/questions.h"

int main(int, char** argv) {
  using namespace plimsoll;
  TargetOptions target;
  target.job = argv[1];
  target.cluster = argv[2];
  target.calibration = {"none"};
  target.devices = 2;
  SimulationQuestion two_stages{target};
  two_stages.strategy = "pp=2";
  PlanQuestion best{target};
  best.reserve = Bytes();
  const Plan plan = plan_job(best).plan;
  std::printf("%s %.9g %.9g %s\n", std::string(kProductVersion).c_str(),
              simulate_job(two_stages).evaluation.prediction.step_time.value(),
              plan.prediction.step_time.value(), strategy_summary(plan.strategy).c_str());
  return 0;
}
