// A memo finds each result once, and takes strategies that differ in a field that counts apart.
#include "predict/memo.h"

#include <gtest/gtest.h>

#include <set>

#include "base/parallel.h"

namespace plimsoll {
namespace {

TEST(Memo, FindsEachResultOnceByAllFieldsAndAllElse) {
  Memo<std::int64_t, bool> memo;
  std::int64_t found = 0;
  const auto value = [&](const char* strategy, bool other) {
    return memo.of({parse_strategy(strategy), other}, [&] { return ++found; });
  };
  EXPECT_EQ(value("mp=2,micro_batch=4", false), 1);
  EXPECT_EQ(value("mp=2,micro_batch=4", true), 2);
  EXPECT_EQ(value("mp=2,micro_batch=8", false), 3);
  // No hash has these two fields.
  EXPECT_EQ(value("mp=2,micro_batch=4,send_slots=3", false), 4);
  EXPECT_EQ(value("mp=2,micro_batch=4,layer_split=3+1", false), 5);
  EXPECT_EQ(value("mp=2,micro_batch=4", false), 1);
  EXPECT_EQ(value("mp=2,micro_batch=4,layer_split=3+1", false), 5);
}

TEST(Memo, GivesAllThreadsTheSameResults) {
  Memo<std::vector<std::int64_t>> memo;
  std::vector<const std::vector<std::int64_t>*> given(400);
  for_each_index(given.size(), 4, [&](std::size_t i) {
    Strategy strategy;
    strategy.dp = std::int64_t(i % 40) + 1;
    given[i] = &memo.of({strategy}, [&] { return std::vector(3, strategy.dp); });
  });
  EXPECT_EQ(std::set(given.begin(), given.end()).size(), 40u);
  for (std::size_t i = 0; i < given.size(); ++i)
    EXPECT_EQ(given[i]->front(), std::int64_t(i % 40) + 1);
}

TEST(Memo, AFieldThatIsNotNamedCounts) {
  const Strategy strategy = parse_strategy("mp=2,dp=4,layer_split=3+1,send_slots=3");
  const Strategy left = without(strategy, FIELD(dp), FIELD(pipeline.layer_split));
  EXPECT_EQ(left, parse_strategy("mp=2,send_slots=3"));
  EXPECT_NE(left,
            without(strategy, FIELD(dp), FIELD(pipeline.layer_split), FIELD(pipeline.send_slots)));
}

}  // namespace
}  // namespace plimsoll
