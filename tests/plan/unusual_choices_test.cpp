// Unusual choices: which strategies have them, and what they count.
#include "plan/unusual_choices.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

using Choices = std::vector<Unusual>;

Choices choices_of(const char* strategy, std::int64_t sequence, std::int64_t devices_per_node,
                   bool mixed = false) {
  Job job;
  job.layers = 36;
  job.sequence = sequence;
  return unusual_choices(job, parse_strategy(strategy), {devices_per_node, mixed});
}

TEST(UnusualChoices, OfAStrategy) {
  EXPECT_EQ(choices_of("mp=8,pp=3,virtual_stages=4,micro_batch=4", 2048, 8), Choices{});
  EXPECT_EQ(choices_of("cp=2", 8191, 8), Choices{UnusualChoice::context_split});
  EXPECT_EQ(choices_of("cp=2", 8192, 8), Choices{});
  EXPECT_EQ(choices_of("mp=16", 2048, 8), Choices{UnusualChoice::tensor_over_nodes});
  EXPECT_EQ(choices_of("mp=16", 2048, 72), Choices{});
  EXPECT_EQ(choices_of("micro_batch=3", 2048, 8), Choices{UnusualChoice::odd_micro_batch});
  EXPECT_EQ(choices_of("mp=2,pp=2,virtual_stages=6", 2048, 8),
            Choices{UnusualChoice::many_virtual_stages});
  EXPECT_EQ(choices_of("mp=16,cp=2,pp=2,virtual_stages=6,micro_batch=6", 2048, 8),
            (Choices{UnusualChoice::context_split, UnusualChoice::tensor_over_nodes,
                     UnusualChoice::odd_micro_batch, UnusualChoice::many_virtual_stages}));
}

TEST(UnusualChoices, LayersOfInnerStagesAreEven) {
  const Choices uneven{UnusualChoice::uneven_layers};
  EXPECT_EQ(choices_of("mp=2,pp=4", 2048, 8), Choices{});
  EXPECT_EQ(choices_of("mp=2,pp=5", 2048, 8), Choices{});  // 8 layers, and 7 on all others
  EXPECT_EQ(choices_of("mp=2,pp=13", 2048, 8), uneven);    // no divisor of 36
  EXPECT_EQ(choices_of("mp=2,pp=13,embedding_as_layers=1,loss_as_layers=2", 2048, 8), Choices{});
  EXPECT_EQ(choices_of("mp=2,pp=4,layer_split=9+10+10+7", 2048, 8), Choices{});
  EXPECT_EQ(choices_of("mp=2,pp=4,layer_split=9+10+9+8", 2048, 8), uneven);
  EXPECT_EQ(choices_of("mp=2,pp=4,layer_split=9+10+9+8", 2048, 8, true), Choices{});
  EXPECT_EQ(choices_of("mp=2,pp=2,layer_split=20+16", 2048, 8), Choices{});
}

TEST(UnusualChoices, APipelineOverAllDevices) {
  EXPECT_EQ(choices_of("pp=4", 2048, 8), Choices{UnusualChoice::pipeline_alone});
  EXPECT_EQ(choices_of("pp=2", 2048, 8), Choices{});
  for (const char* other : {"pp=4,mp=2", "pp=4,dp=2", "pp=4,sharding_degree=2"})
    EXPECT_EQ(choices_of(other, 2048, 8), Choices{}) << other;
}

TEST(UnusualChoices, EachDoublingOfVirtualStagesHasToGain) {
  const auto gain = [](const char* strategy) { return choices_of(strategy, 2048, 8).at(0).gain; };
  const double once = rule_of(UnusualChoice::many_virtual_stages).gain;
  EXPECT_DOUBLE_EQ(gain("mp=2,pp=2,virtual_stages=6"), once);
  EXPECT_DOUBLE_EQ(gain("mp=2,pp=3,virtual_stages=12"), 2 * once);
  EXPECT_DOUBLE_EQ(gain("mp=2,pp=2,virtual_stages=18"), 3 * once);
}

TEST(UnusualChoices, HaveToGainMoreTheMoreThereAre) {
  EXPECT_EQ(handicap({}), 1);
  EXPECT_EQ(merit(Seconds(2), {}), Seconds(2));
  double product = 1;
  Choices all;
  for (std::size_t i = 0; i < kUnusualChoices; ++i) {
    const UnusualChoice choice{std::uint8_t(i)};
    EXPECT_GT(rule_of(choice).gain, 0);
    EXPECT_FALSE(rule_of(choice).words.empty());
    product *= 1 + rule_of(choice).gain;
    all.push_back(choice);
  }
  EXPECT_DOUBLE_EQ(handicap(all), product);
  EXPECT_DOUBLE_EQ(merit(Seconds(2), all).value(), 2 * product);
}

}  // namespace
}  // namespace plimsoll
