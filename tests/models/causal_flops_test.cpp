// The FLOPs that causal attention masks, by hand.
#include "models/job/causal_flops.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace plimsoll {
namespace {

const std::filesystem::path kJobs =
    std::filesystem::path(PLIMSOLL_SOURCE_DIR) / "models/presets/jobs";

// The conventions of MFU differ by half of causal attention, 4 s^2 h in each layer.
TEST(CausalFlops, AreHalfOfTheScoresOfCausalAttention) {
  const double s = 8192, h = 4096;
  Job job = read_job(kJobs / "llama3-8b.json");
  EXPECT_EQ(masked_flops_per_sequence(job).value(), 32 * 2 * s * s * h);
  EXPECT_EQ(masked_flops_per_sequence(read_job(kJobs / "bert-base.json")).value(), 0);
  job.window = 4096;  // the window leaves out a quarter of the scores before
  const double share = (4096 * s - 4096 * 4095 / 2.0) / (s * (s + 1) / 2);
  EXPECT_NEAR(masked_flops_per_sequence(job).value(), 32 * 2 * s * s * h * share, 1);
}

}  // namespace
}  // namespace plimsoll
