// Attention sinks are trained over ranks that share sequences.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "passes/pipeline.h"
#include "tests/runtime/nano.h"

namespace plimsoll {
namespace {

// Sinks that stay f32 beside bf16 are added between casts, and backward reads what is behind them.
TEST(Sinks, InAWiderTypeTrainTheModelOfOneRank) {
  Job job = read_job(tests_folder() / "llama-nano.json");
  job.dropout = 0;
  job.sinks = true;
  job.precision = DType::bf16;
  job.fp32_parameters = {"weight"};
  TrainOptions options;
  options.steps = 1;
  options.warm_up_steps = 0;
  options.keep_gradients = true;
  const auto one = nano_programs(nano_strategy("", 1, {}), job);
  const TrainResult expected = train_nano(one, options, job);
  const WholeTensors serial = put_together(one, expected.gradients, true, 0);
  for (const char* exchange : {"ring", "all_gather"}) {
    const std::string fields = std::string("cp=2,context_exchange=") + exchange;
    const auto two = nano_programs(nano_strategy(fields, 1, {}), job);
    const TrainResult found = train_nano(two, options, job);
    const WholeTensors gradients = put_together(two, found.gradients, true, 0x1p-4);
    for (const auto& [name, gradient] : serial)
      EXPECT_LE(relative_distance(gradients.at(name), gradient), 0x1p-4) << fields << name.first;
  }
}

}  // namespace
}  // namespace plimsoll
