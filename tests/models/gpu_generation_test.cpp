// Generations of GPUs by name and by compute capability.
#include "models/cluster/gpu_generation.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(GpuGeneration, IsFoundByAWordOfTheDevicesName) {
  const GpuGeneration* found = generation_named("NVIDIA H100 SXM5 80GB");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->compute_capability, 90);
  EXPECT_EQ(found->nvlink->links, 18);
  EXPECT_EQ(generation_named("NVIDIA GH200 480GB")->compute_capability, 90);
  EXPECT_EQ(generation_named("NVIDIA GB200 186GB")->compute_capability, 100);
  EXPECT_EQ(generation_named("NVIDIA A100 SXM4 80GB")->compute_capability, 80);
  EXPECT_EQ(generation_named("NVIDIA A10")->compute_capability, 86) << "no part of A100";
  EXPECT_EQ(generation_named("some H100X"), nullptr);
}

TEST(GpuGeneration, IsFoundByComputeCapability) {
  EXPECT_EQ(generation_of_capability(103), generation_of_capability(100)) << "the same links";
  EXPECT_FALSE(generation_of_capability(75)->nvlink) << "a card without NVLink";
  EXPECT_EQ(generation_of_capability(61), nullptr);
  for (const GpuGeneration& generation : gpu_generations()) {
    EXPECT_EQ(generation_of_capability(generation.compute_capability), &generation);
    EXPECT_TRUE(!generation.nvlink || !generation.nvlink->document.empty());
    EXPECT_TRUE(!generation.peaks || !generation.peaks->document.empty());
  }
  EXPECT_EQ(generation_of_capability(80)->peaks->bf16, FlopsPerSecond(312e12));
  EXPECT_FALSE(generation_of_capability(86)->peaks.has_value());
}

TEST(GpuGeneration, SaysWhichKernelsExist) {
  for (const char* old : {"NVIDIA V100 SXM2 32GB", "NVIDIA T4 16GB"}) {
    EXPECT_TRUE(generation_named(old)->without_flash_attention) << old;
    EXPECT_FALSE(generation_named(old)->tf32_of_16_bits) << old;
  }
  for (const char* newer : {"NVIDIA A800 SXM4 80GB", "NVIDIA H20 SXM5 96GB"}) {
    EXPECT_FALSE(generation_named(newer)->without_flash_attention) << newer;
    EXPECT_EQ(generation_named(newer)->tf32_of_16_bits, 0.5) << newer;
  }
  EXPECT_EQ(generation_named("NVIDIA A800 SXM4 80GB")->flash_2.forward, 1);
  EXPECT_LT(generation_named("NVIDIA H200 SXM5 141GB")->flash_2.forward, 1);
  for (const char* blackwell : {"NVIDIA B200 SXM 180GB", "NVIDIA GB300 SXM 288GB"})
    EXPECT_TRUE(generation_named(blackwell)->untransposed_fp8) << blackwell;
  EXPECT_FALSE(generation_named("NVIDIA H200 SXM5 141GB")->untransposed_fp8);
}

}  // namespace
}  // namespace plimsoll
