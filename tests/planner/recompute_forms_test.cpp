// The search tries few sets of modules: those that the job has, from cheap to expensive.
#include "planner/space/recompute_forms.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "planner/space/space.h"

namespace plimsoll {
namespace {

using Texts = std::vector<std::string>;

Texts ladder_of(const Job& job, const char* framework, const Strategy& strategy = {}) {
  Texts texts;
  for (const auto& set : module_ladder(job, framework_by_name(framework), strategy)) {
    Strategy one;
    one.recomputed.modules = set;
    texts.push_back(field_text(one, "recompute_modules"));
  }
  return texts;
}

Job preset(const std::string& name) {
  return read_job(std::string(PLIMSOLL_SOURCE_DIR) + "/models/presets/jobs/" + name + ".json");
}

TEST(RecomputeForms, EachSetRepeatsMoreThanTheOneBefore) {
  EXPECT_EQ(ladder_of(preset("llama3-8b"), "megatron-lm"), (Texts{"norms", "norms+mlp"}));
  EXPECT_EQ(ladder_of(preset("mixtral-8x7b"), "megatron-lm"),
            (Texts{"norms+expert_activation", "norms+experts"}));
  EXPECT_EQ(ladder_of(preset("deepseek-v3"), "megatron-lm"),
            (Texts{"norms+latent_up_projection+expert_activation",
                   "norms+latent_up_projection+mlp+experts"}));
  EXPECT_EQ(ladder_of(preset("llama3-8b"), "torchtitan"), Texts{});
  Strategy delayed;
  delayed.precision.fp8 = Fp8::delayed;
  EXPECT_EQ(ladder_of(preset("llama3-8b"), "megatron-lm", delayed), Texts{"mlp"});
}

TEST(RecomputeForms, FixedChoicesLeaveTheOthers) {
  const Job job = preset("llama3-8b");
  const Framework framework = framework_by_name("megatron-lm");
  const auto count = [&](const Fixed& fixed) {
    Strategy base;
    for (const auto& [key, value] : fixed) set_field(base, key, value);
    return recompute_forms(job, framework, fixed, base).size();
  };
  EXPECT_EQ(count({}), 5u);
  EXPECT_EQ(count({{"recompute", "full"}}), 1u);
  EXPECT_EQ(count({{"recompute", "modules"}}), 2u);
  EXPECT_EQ(count({{"recompute_modules", "mlp"}}), 1u);
  EXPECT_EQ(count({{"recompute_modules", "none"}}), 3u);
  const Space space = enumerate(job, framework, 8, {{"recompute_modules", "mlp"}, {"mp", "8"}});
  ASSERT_FALSE(space.legal.empty());
  EXPECT_EQ(space.legal[0].recompute, Recompute::modules);
  const Space without = enumerate(job, framework, 8, {{"mp", "8"}}, {},
                                  {make_limit(LimitKind::excluded, "recompute", "modules")});
  for (const Strategy& strategy : without.legal) EXPECT_NE(strategy.recompute, Recompute::modules);
}

}  // namespace
}  // namespace plimsoll
