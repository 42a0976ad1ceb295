// Gradients that backward frees train, bit by bit, what kept ones do, in the predicted bytes.
#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "base/json.h"
#include "plan/measured.h"
#include "tests/runtime/nano.h"
#include "tests/runtime/saved_training.h"

namespace plimsoll {
namespace {

Job unclipped(const char* name, bool tied) {
  Job job = read_job(tests_folder() / (std::string(name) + ".json"));
  job.clip_norm = 0;
  job.tied_embeddings = tied;
  return job;
}

TrainResult run_checked(const Job& job, const Strategy& strategy, bool checking = false) {
  const std::vector<Program> programs = nano_programs(strategy, job);
  TrainOptions options = steps_of(3);
  options.keep_parameters = true;
  options.checking = checking;
  TrainResult result = train_nano(programs, options, job);
  expect_predicted_bytes(programs, result.measured, checking);
  return result;
}

/// Shards of a tied table are sums over ranks of what head and embedding give. They are rounded
/// each, where gradients are kept, or once.
void expect_same_training(const Job& job, const Strategy& strategy) {
  const bool rounds_once = !job.tied_embeddings || strategy.sharding_degree == 1;
  Strategy released = strategy;
  released.gradients.release = true;
  const TrainResult kept = run_checked(job, strategy);
  for (const bool checking : {false, true}) {
    SCOPED_TRACE(strategy_summary(released) + (checking ? ", checked" : ""));
    const TrainResult found = run_checked(job, released, checking);
    EXPECT_EQ(found.measured.losses, kept.measured.losses);
    if (rounds_once) {
      EXPECT_EQ(found.parameters, kept.parameters);
    } else {
      for (std::size_t rank = 0; rank < kept.parameters.size(); ++rank)
        EXPECT_LE(relative_distance(found.parameters[rank], kept.parameters[rank]), 1e-6);
    }
    const double none = std::numeric_limits<double>::quiet_NaN();
    EXPECT_TRUE(same_numbers(found.measured.gradient_norms, {none, none, none}));
    EXPECT_EQ(Json::parse(measured_text(found.measured)).at("gradient_norms").dump(),
              "[null,null,null]");
    EXPECT_LT(found.measured.timeline.memory[0].peak, kept.measured.timeline.memory[0].peak);
  }
}

TEST(ReleaseGradients, TrainTheSameBits) {
  const std::pair<const char*, Recompute> cases[] = {
      {"dp=1", Recompute::none},
      {"dp=1", Recompute::selective},
      {"dp=1,loss_chunks=4", Recompute::full},
      {"dp=2", Recompute::none},
      {"dp=2,overlap_grad_reduce=false", Recompute::none},
      {"mp=2,sequence_parallel=true", Recompute::none},
      {"cp=2,dp=2", Recompute::none},
      {"sharding_degree=2,sharding_stage=2", Recompute::none},
      {"sharding_degree=2,sharding_stage=2,dp=2", Recompute::none},
      {"sharding_degree=2,sharding_stage=3", Recompute::full},
      {"sharding_degree=2,sharding_stage=3,mp=2,persistence_threshold=100", Recompute::none},
  };
  for (const char* name : {"gpt-nano", "llama-nano"}) {
    for (const bool tied : {true, false}) {
      const Job job = unclipped(name, tied);
      for (const auto& [fields, recompute] : cases) {
        if (job.family == Family::gpt && recompute == Recompute::none && tied) continue;
        expect_same_training(job, nano_strategy(fields, 1, recompute));
      }
    }
  }
}

TEST(ReleaseGradients, TrainTheSameBitsWithLeanStates) {
  constexpr const char* kTypes[] = {
      "gradient_type=computed,main_gradient_type=computed",
      "main_parameter_type=none,moment_type=bf16,stochastic_rounding=true",
      "main_parameter_type=none,moment_type=block8,stochastic_rounding=true,"
      "gradient_type=computed,main_gradient_type=computed",
  };
  Job job = unclipped("gpt-nano", false);
  job.precision = DType::bf16;
  job.optimizer.epsilon = 1e-6;
  for (const char* types : kTypes) {
    for (const char* split : {"dp=1", "dp=2", "sharding_degree=2,sharding_stage=3"})
      expect_same_training(job,
                           nano_strategy(std::string(split) + "," + types, 1, Recompute::none));
  }
}

TEST(ReleaseGradients, GoOnFromACheckpoint) {
  const Job job = unclipped("gpt-nano", false);
  const auto programs = nano_programs(
      nano_strategy("sharding_degree=2,sharding_stage=3,release_gradients=true", 1, {}), job);
  const auto [whole, resumed] = continue_training(programs, job);
  EXPECT_EQ(resumed.parameters, whole.parameters);
}

}  // namespace
}  // namespace plimsoll
