// Framework presets: found by name, sourced, consistent.
#include "models/framework.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace plimsoll {
namespace {

TEST(Framework, PresetsAreFoundByNameAndSourced) {
  for (const Framework& framework : framework_presets()) {
    EXPECT_EQ(framework_by_name(framework.name), framework);
    EXPECT_GT(framework.dispatch_op, Seconds(0)) << framework.name;
    EXPECT_GT(framework.workspace, Bytes(0)) << framework.name;
    EXPECT_GE(framework.communicator_memory, framework.pair_communicator_memory);
    for (const std::string* source : {&framework.sources.kernels, &framework.sources.parallelism,
                                      &framework.sources.dispatch, &framework.sources.memory}) {
      EXPECT_FALSE(source->empty()) << framework.name;
    }
    // The gathers that overlap are those of the distributed optimizer.
    EXPECT_TRUE(framework.most_sharding_stage > 0 || !framework.overlap_param_gather)
        << framework.name;
  }
}

TEST(Framework, UnknownNameListsTheKnownOnes) {
  try {
    framework_by_name("megatron");
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "no framework is called \"megatron\"; known: bundled, bundled-cuda, "
                 "megatron-lm, megatron-lm-2022, megatron-lm-2021, pytorch-fsdp");
  }
}

}  // namespace
}  // namespace plimsoll
