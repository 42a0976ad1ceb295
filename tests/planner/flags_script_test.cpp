// Plans as scripts of another framework: reading a script gives the plan again.
#include "planner/export/flags_script.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "imports/megatron_lm.h"
#include "passes/strategy/strategy_fields.h"
#include "tests/runtime/random_values.h"

namespace plimsoll {
namespace {

const FlagTable& table() { return *flag_table_for("megatron"); }

Job random_job(Random& random) {
  Job job;
  job.name = "drawn";
  job.family = one_of(random, {Family::gpt, Family::llama});
  job.layers = one_of<std::int64_t>(random, {2, 4, 6, 7, 8, 12, 16, 24, 31});
  job.heads = one_of<std::int64_t>(random, {4, 8, 12, 16});
  job.kv_heads = one_of<std::int64_t>(random, {1, 2, 4, job.heads, job.heads});
  job.hidden = job.heads * one_of<std::int64_t>(random, {16, 32, 64});
  job.ffn_hidden = 16 * one_of<std::int64_t>(random, {24, 48, 64, 172});
  job.vocab = one_of<std::int64_t>(random, {257, 1000, 50257, 51200, 128256});
  job.sequence = one_of<std::int64_t>(random, {64, 512, 2048, 4096});
  job.tied_embeddings = coin(random);
  if (job.family == Family::llama) {
    job.qkv_bias = coin(random);
    job.rotary_base = one_of(random, {10000.0, 500000.0, 1e6});
    job.activation = one_of(random, {Activation::swiglu, Activation::squared_relu});
    job.norm = one_of(random, {NormKind::rms_norm, NormKind::layer_norm});
  }
  job.global_batch = one_of<std::int64_t>(random, {8, 16, 24, 64, 96, 512});
  job.precision = one_of(random, {DType::f32, DType::bf16, DType::bf16, DType::f16});
  if (job.precision == DType::f16)
    job.loss_scale = LossScale{one_of(random, {65536.0, 4294967296.0}), 2, 0.5,
                               one_of<std::int64_t>(random, {1000, 2000})};
  job.optimizer.kind =
      one_of(random, {OptimizerKind::adamw, OptimizerKind::adamw, OptimizerKind::sgd});
  job.optimizer.learning_rate = spread(random, 1e-5, 3);
  job.optimizer.weight_decay = one_of(random, {0.0, 0.01, 0.1});
  job.clip_norm = one_of(random, {0.0, 0.5, 1.0});
  job.dropout = one_of(random, {0.0, 0.1, 0.25});
  job.seed = std::int64_t(random() % 100000);
  return job;
}

std::vector<std::int64_t> random_split(Random& random, std::int64_t layers, std::int64_t parts) {
  std::vector<std::int64_t> split(std::size_t(parts), 1);
  if (parts > 2 && coin(random)) split.front() = 0;
  if (parts > 2 && coin(random)) split.back() = 0;
  std::int64_t left = layers;
  for (const std::int64_t part : split) left -= part;
  for (; left > 0; --left) ++split[random() % split.size()];
  return split;
}

/// Draws choices of one kind after another, and takes back what is not legal.
struct DrawnPlan {
  Random& random;
  Plan plan;

  bool is_legal() const {
    return bool(legal(plan.job, plan.strategy, plan.devices)) &&
           bool(legal(plan.framework, plan.job, plan.strategy));
  }
  template <class Change>
  void attempt(Change change) {
    const Strategy before = plan.strategy;
    change(plan.strategy);
    if (!is_legal()) plan.strategy = before;
  }
  template <class Value>
  void attempt(Value Strategy::*member, std::initializer_list<std::type_identity_t<Value>> values) {
    attempt([&](Strategy& strategy) { strategy.*member = one_of(random, values); });
  }
};

void draw_degrees(DrawnPlan& drawn) {
  Random& random = drawn.random;
  Strategy& strategy = drawn.plan.strategy;
  do {
    strategy = {};
    strategy.mp = one_of<std::int64_t>(random, {1, 1, 2, 4, 8});
    strategy.pp = one_of<std::int64_t>(random, {1, 1, 2, 3, 4});
    if (drawn.plan.framework.flash_attention) strategy.cp = one_of<std::int64_t>(random, {1, 1, 2});
    strategy.dp = one_of<std::int64_t>(random, {1, 2, 3});
    strategy.sharding_degree = one_of<std::int64_t>(random, {1, 2, 4});
    strategy.sharding_stage = strategy.sharding_degree > 1 ? 1 : 0;
    drawn.plan.devices =
        strategy.mp * strategy.pp * strategy.cp * strategy.dp * strategy.sharding_degree;
  } while (!drawn.is_legal());
}

Plan random_plan(Random& random) {
  DrawnPlan drawn{random, {}};
  Plan& plan = drawn.plan;
  plan.framework = framework_by_name(one_of<std::string_view>(
      random, {"megatron-lm", "megatron-lm", "megatron-fsdp", "megatron-core-deterministic"}));
  plan.job = random_job(random);
  while (true) {
    try {
      check_job(plan.job, "drawn");
      break;
    } catch (const InputError&) {
      plan.job = random_job(random);
    }
  }
  plan.stated_vocabulary = plan.job.vocab;
  plan.job.vocab = padded_vocabulary(plan.job.vocab, plan.framework, 1);
  draw_degrees(drawn);
  plan.devices_per_node = one_of<std::int64_t>(random, {1, 4, 8});
  drawn.attempt(&Strategy::micro_batch, {1, 1, 2, 4});
  drawn.attempt(&Strategy::sharding_stage, {1, 2, 3});
  drawn.attempt(&Strategy::virtual_stages, {1, 2, 3});
  drawn.attempt([&](Strategy& strategy) {
    if (coin(random)) return;
    strategy.layer_split =
        random_split(random, plan.job.layers, strategy.pp * strategy.virtual_stages);
  });
  drawn.attempt(&Strategy::embedding_as_layers, {0, 1, 2});
  drawn.attempt(&Strategy::loss_as_layers, {0, 1});
  drawn.attempt(&Strategy::rank_order, {RankOrder::sharding_dp_pp, RankOrder::pp_sharding_dp});
  drawn.attempt(&Strategy::sequence_parallel, {true, false});
  drawn.attempt(&Strategy::context_exchange,
                {ContextExchange::ring, ContextExchange::all_gather, ContextExchange::all_to_all});
  drawn.attempt(&Strategy::recompute, {Recompute::none, Recompute::selective, Recompute::full});
  drawn.attempt([&](Strategy& s) { s.recompute_layers = std::int64_t(random() % 4); });
  drawn.attempt(&Strategy::fp8, {Fp8::none, Fp8::delayed, Fp8::current});
  drawn.attempt(&Strategy::fp8_parameters, {true, false});
  drawn.attempt(&Strategy::gradient_type, {GradientType::f32, GradientType::computed});
  drawn.attempt(&Strategy::main_gradient_type, {GradientType::f32, GradientType::computed});
  drawn.attempt(&Strategy::moment_type,
                {MomentType::f32, MomentType::bf16, MomentType::f16, MomentType::fp8});
  drawn.attempt(&Strategy::main_parameter_type,
                {MasterType::f32, MasterType::f16, MasterType::remainder});
  drawn.attempt([&](Strategy& s) {
    s.grad_bucket_bytes = Bytes(4 * std::int64_t(1024 + random() % 100'000'000));
  });
  drawn.attempt(&Strategy::overlap_grad_reduce, {true, true, false});
  // Without shards there are no gathers; without overlapped reductions there are none either.
  if (plan.strategy.sharding_stage > 0)
    plan.strategy.overlap_param_gather = plan.strategy.overlap_grad_reduce && coin(random);
  return plan;
}

/// Expects that a script says what its plan says. How layers are split has several forms.
void expect_same(const Plan& plan, const PlanFlags& flags, const Imported& read,
                 const std::string& script) {
  Job job = plan.job;
  job.vocab = plan.stated_vocabulary;
  ASSERT_EQ(job_text(*read.job), job_text(job)) << script;
  Strategy planned = plan.strategy, found = *read.strategy;
  ASSERT_EQ(layers_per_part(*read.job, found), layers_per_part(plan.job, planned)) << script;
  for (Strategy* strategy : {&planned, &found}) {
    strategy->layer_split.clear();
    strategy->embedding_as_layers = strategy->loss_as_layers = 0;
  }
  // Narrow moments beside fp32 masters are the one choice here that these flags cannot state.
  for (const LostChoice& lost : flags.lost) {
    ASSERT_EQ(lost.key, "main_parameter_type") << script;
    ASSERT_EQ(lost.nearest, "remainder") << script;
    set_field(planned, lost.key, lost.nearest);
  }
  ASSERT_EQ(strategy_text(found), strategy_text(planned)) << script;
  ASSERT_EQ(read.devices, plan.devices);
  ASSERT_EQ(read.framework->name, plan.framework.name);
  const std::int64_t mp = plan.strategy.mp;
  ASSERT_EQ(padded_vocabulary(read.job->vocab, *read.framework, mp),
            (plan.job.vocab + mp - 1) / mp * mp)
      << script;
}

TEST(FlagsScript, GivesThePlanAgain) {
  Random random(20261124);
  std::map<std::string, int> seen;
  for (int i = 0; i < 10'000; ++i) {
    Plan plan = random_plan(random);
    const std::int64_t per_node = std::min(plan.devices, plan.devices_per_node);
    if (plan.devices % per_node != 0) plan.devices_per_node = 1;
    const PlanFlags flags = flags_of(plan, table(), "plan.json");
    const std::string script = flags_script(plan, table(), flags);
    ASSERT_NO_FATAL_FAILURE(expect_same(plan, flags, read_megatron_lm(script, "drawn.sh"), script))
        << i;
    ++seen[plan.framework.name];
    ++seen[flags.lost.empty() ? "all stated" : "lost"];
    for (const StrategyField& field : shown_fields(plan.strategy)) {
      if (!always_shown(field.key)) ++seen[fmt::format("{}={}", field.key, field.value)];
    }
    if (!plan.strategy.layer_split.empty()) ++seen["layer_split"];
    if (plan.strategy.sharding_stage == 3) ++seen["sharding_stage=3"];
  }
  for (const char* choice : {"megatron-lm",
                             "megatron-fsdp",
                             "megatron-core-deterministic",
                             "all stated",
                             "lost",
                             "layer_split",
                             "sharding_stage=3",
                             "cp=2",
                             "context_exchange=all_to_all",
                             "virtual_stages=3",
                             "embedding_as_layers=2",
                             "rank_order=mp-cp-pp-sharding-dp",
                             "sequence_parallel=true",
                             "recompute_layers=2",
                             "fp8=current",
                             "fp8_parameters=true",
                             "gradient_type=computed",
                             "main_gradient_type=computed",
                             "main_parameter_type=f16",
                             "main_parameter_type=remainder",
                             "moment_type=fp8",
                             "overlap_grad_reduce=false",
                             "overlap_param_gather=false"}) {
    EXPECT_GT(seen[choice], 20) << choice;
  }
}

Plan small_plan() {
  Plan plan;
  plan.job = read_job("gpt-mini");
  plan.stated_vocabulary = plan.job.vocab;
  plan.framework = framework_by_name("megatron-lm");
  plan.job.vocab = padded_vocabulary(plan.job.vocab, plan.framework, 1);
  plan.strategy = parse_strategy("mp=2,dp=2");
  plan.devices = 4;
  plan.devices_per_node = 8;
  return plan;
}

TEST(FlagsScript, NamesWhatFlagsCannotState) {
  Plan plan = small_plan();
  EXPECT_TRUE(flags_of(plan, table(), "plan.json").lost.empty());
  plan.strategy.overlap_param_gather = false;  // nothing is gathered
  EXPECT_TRUE(flags_of(plan, table(), "plan.json").lost.empty());
  plan.strategy.flatten = Flatten::none;
  const PlanFlags flags = flags_of(plan, table(), "plan.json");
  ASSERT_EQ(flags.lost.size(), 1u);
  EXPECT_EQ(flags.lost[0].key, "flatten");
  EXPECT_EQ(flags.lost[0].nearest, "fused");
  EXPECT_EQ(flags.strategy.flatten, Flatten::fused);
}

TEST(FlagsScript, NamesCannotBecomeCommands) {
  Plan plan = small_plan();
  plan.job.name = "a'b\"$(touch x)`id`; rm -rf y";
  const std::string script = flags_script(plan, table(), flags_of(plan, table(), "plan.json"));
  EXPECT_EQ(script.find("touch x"), std::string::npos);
  EXPECT_EQ(script.find("rm -rf"), std::string::npos);
  EXPECT_NE(script.find("\n# a_b___touch_x__id___rm_-rf_y: mp=2"), std::string::npos) << script;
}

TEST(FlagsScript, JobsThatFlagsCannotStateAreRefused) {
  Plan plan = small_plan();
  plan.job = read_job("bert-large");
  plan.stated_vocabulary = plan.job.vocab;
  try {
    flags_of(plan, table(), "plan.json");
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_STREQ(
        error.what(),
        "plan.json: at /job/family: found \"bert\"; the flags of megatron state no such job");
  }
}

}  // namespace
}  // namespace plimsoll
