// Runs with activations in the host's memory are, bit by bit, those without.
#include <gtest/gtest.h>

#include "tests/runtime/nano.h"

namespace plimsoll {
namespace {

TrainResult run(const Strategy& strategy, bool checking) {
  const std::vector<Program> programs = nano_programs(strategy);
  TrainOptions options = steps_of(3);
  options.keep_gradients = options.keep_parameters = true;
  options.checking = checking;
  TrainResult result = train_nano(programs, options);
  expect_predicted_bytes(programs, result.measured, checking);
  return result;
}

TEST(OffloadedActivations, TrainTheSameBits) {
  const auto [none, selective, full] =
      std::tuple(Recompute::none, Recompute::selective, Recompute::full);
  const std::pair<const char*, Recompute> cases[] = {
      {"dp=1", none},
      {"dp=1", selective},
      {"dp=1", full},
      {"mp=2,sequence_parallel=true", none},
      {"cp=2", none},
      {"sharding_degree=2,sharding_stage=3", full},
      {"pp=2", none},
      {"pp=2", full},
      {"pp=2,virtual_stages=2", none},
      {"pp=2,schedule=zb_h1", none},
      {"pp=2,schedule=zb_v,virtual_stages=2", selective},
      {"pp=2,schedule=gpipe,mp=2", none},
  };
  for (const auto& [fields, recompute] : cases) {
    const Strategy plain = nano_strategy(fields, 4, recompute);
    const TrainResult expected = run(plain, false);
    for (const std::int64_t percent : {100, 60}) {
      if (percent < 100 && recompute == full) continue;
      for (const bool checking : {false, true}) {
        SCOPED_TRACE(testing::Message()
                     << fields << " " << to_text(recompute) << " " << percent << " " << checking);
        Strategy offloaded = plain;
        offloaded.offloaded.percent = percent;
        const TrainResult found = run(offloaded, checking);
        EXPECT_EQ(found.gradients, expected.gradients);
        EXPECT_EQ(found.parameters, expected.parameters);
        EXPECT_LT(found.measured.timeline.memory[0].peak,
                  expected.measured.timeline.memory[0].peak);
      }
    }
  }
}

}  // namespace
}  // namespace plimsoll
