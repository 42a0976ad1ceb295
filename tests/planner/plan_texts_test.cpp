// Commands print a plan as text, and write it for other programs.
#include <gtest/gtest.h>

#include "plan/filling.h"
#include "planner/cli/describe.h"
#include "planner/commands/slurm_script.h"
#include "reports/numbers.h"
#include "tests/plan/example_plan.h"
#include "tests/states.h"

namespace plimsoll {
namespace {

TEST(PlanTexts, LeaveOutWhatIsNothing) {
  Prediction prediction = example_prediction();
  prediction.breakdown.recompute = Seconds();
  prediction.breakdown.dispatch = Seconds(1e-6);  // of 21 ms: 0.0 %
  prediction.extrapolated = {{"matmul 1x2x3 f32", 0.04}, {"add 5 f32", 0.0004}};
  std::string text = describe_step(prediction, true);
  EXPECT_FALSE(states(text, {" 0.0 %"}));
  EXPECT_FALSE(states(text, {"dispatch"}));
  EXPECT_TRUE(states(text, {"matmul 1x2x3 f32"}));
  EXPECT_FALSE(states(text, {"--json"}));
  EXPECT_TRUE(states(text, {"causal attention"}));
  prediction.extrapolated.erase(prediction.extrapolated.begin());
  text = describe_step(prediction, true);
  EXPECT_FALSE(states(text, {"extrapolated"}));
}

TEST(PlanTexts, FillDevicesAsTheReportDoes) {
  const Plan plan = example_plan();
  const std::string text = describe(plan);
  for (const Filling& filling : fillings_of(plan)) {
    EXPECT_TRUE(
        states(text, {to_text(filling.reserved), to_text(filling.outside), taken_text(filling)}));
  }
  EXPECT_TRUE(states(text, {"takes", to_text(plan.runners_up[0].taken)}));
}

TEST(PlanTexts, SayWhichPlanIsFasterAndWhyItIsNotRecommended) {
  Plan plan = example_plan();
  EXPECT_TRUE(states(describe(plan), {words_of(plan.fastest->reasons)}));
  EXPECT_TRUE(states(describe(plan), {"-1.0 %"}));
  EXPECT_TRUE(states(describe(plan), {"+16.7 %", "+10.0", "+25.0 %", "slower"}));
  plan.runners_up[0].ratio = {0.9, 1.44, true};
  EXPECT_TRUE(states(describe(plan), {"+16.7 %", "-10.0", "+44.0 %", "tied"}));
  plan.fastest.reset();
  EXPECT_FALSE(states(describe(plan), {"not recommended"}));
}

TEST(PlanTexts, CountParameters) {
  EXPECT_TRUE(states(describe_parameters(example_job()), {"parameters", "234,880"}));
}

TEST(SlurmScript, KeepsAJobNameOneWord) {
  Plan plan = example_plan();
  plan.job.name = "my job --nodes=99\n#SBATCH --exclusive";
  ExportOptions options;
  options.plan = "p.json";
  options.data = "data";
  const std::string script = slurm_script(plan, options, "planner-run-mpi");
  EXPECT_TRUE(states(script, {"#SBATCH --job-name=my_job_--nodes_99__SBATCH_--exclusive\n"}));
  EXPECT_FALSE(states(script, {"--nodes=99"}));
  EXPECT_FALSE(states(script, {"\n#SBATCH --exclusive"}));
}

}  // namespace
}  // namespace plimsoll
