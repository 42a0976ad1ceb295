// Unusual choices: which strategies have them, and what they count.
#include "plan/unusual_choices.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

using Choices = std::vector<UnusualChoice>;

Choices choices_of(const char* strategy, std::int64_t sequence, std::int64_t devices_per_node) {
  Job job;
  job.sequence = sequence;
  return unusual_choices(job, parse_strategy(strategy), devices_per_node);
}

TEST(UnusualChoices, OfAStrategy) {
  EXPECT_EQ(choices_of("mp=8,pp=4,virtual_stages=4,micro_batch=4", 2048, 8), Choices{});
  EXPECT_EQ(choices_of("cp=2", 8191, 8), Choices{UnusualChoice::context_split});
  EXPECT_EQ(choices_of("cp=2", 8192, 8), Choices{});
  EXPECT_EQ(choices_of("mp=16", 2048, 8), Choices{UnusualChoice::tensor_over_nodes});
  EXPECT_EQ(choices_of("mp=16", 2048, 72), Choices{});
  EXPECT_EQ(choices_of("micro_batch=3", 2048, 8), Choices{UnusualChoice::odd_micro_batch});
  EXPECT_EQ(choices_of("pp=4,virtual_stages=5", 2048, 8),
            Choices{UnusualChoice::many_virtual_stages});
  EXPECT_EQ(choices_of("mp=16,cp=2,pp=4,virtual_stages=5,micro_batch=6", 2048, 8),
            (Choices{UnusualChoice::context_split, UnusualChoice::tensor_over_nodes,
                     UnusualChoice::odd_micro_batch, UnusualChoice::many_virtual_stages}));
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
