// Queries that grow with their positions, in forward graphs.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "models/job/job.h"
#include "tests/states.h"

namespace plimsoll {
namespace {

/// Returns the growth of each op that turns or grows queries or keys.
std::vector<QueryGrowth> growths(const Job& job) {
  std::vector<QueryGrowth> found;
  for (const Op& op : build_forward(job, 1).ops)
    if (op.kind == OpKind::rotary) found.push_back(std::get<RotaryParams>(op.params).growth);
  return found;
}

TEST(GrowingQueries, GrowInLayersWithoutRotaryEmbeddings) {
  Job job = read_job("llama4-scout");
  const QueryGrowth none, growth = {0.1, job.sequence, 1};
  job.rotary.growth = growth;
  EXPECT_EQ(parse_job(job_text(job), "job").rotary.growth, growth);
  EXPECT_EQ(growths(job), (std::vector{none, none, growth}));
  job.rotary.pattern.clear();  // all have them: queries and keys of one form of layers
  EXPECT_EQ(growths(job), (std::vector{growth, none}));
  job.rotary.growth.ahead = 0;  // no position reaches the span
  EXPECT_EQ(growths(job), std::vector(2, none));
  job.latent = Latent{.kv_rank = 8, .nope = 4, .rope = 4, .value = 4};
  job.rotary.growth.span = 2;
  job.kv_heads = job.heads;
  job.qk_l2_norm = false;
  EXPECT_EQ(growths(job), (std::vector{job.rotary.growth, none}));
}

TEST(GrowingQueries, HaveAFactorAndSpans) {
  const auto refusal = [](const char* preset, QueryGrowth growth) {
    Job job = read_job(preset);
    job.rotary.growth = growth;
    try {
      check_job(job, "f");
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_TRUE(states(refusal("bloom-176b", {0.1, 8, 1}), {"/query_growth", "alibi"}));
  EXPECT_TRUE(states(refusal("qwen3-8b", {0.1, 0, 0}), {"/query_growth/span", "found 0"}));
  EXPECT_EQ(refusal("qwen3-8b", {0.1, 8, 0}), "");
}

}  // namespace
}  // namespace plimsoll
