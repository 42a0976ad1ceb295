// Draws plans, and compares them with what a framework's files say.
#include "tests/interop/random_plans.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <type_traits>

#include "base/error.h"
#include "passes/strategy/recompute_rules.h"
#include "passes/strategy/strategy_fields.h"
#include "tests/draws.h"
#include "tests/random_values.h"

namespace plimsoll {
namespace {

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
    job.rotary.base = one_of(random, {10000.0, 500000.0, 1e6});
    job.activation =
        one_of(random, {Activation::swiglu, Activation::squared_relu, Activation::gelu});
    job.norm = one_of(random, {NormKind::rms_norm, NormKind::layer_norm});
    job.qk_norm = job.norm == NormKind::rms_norm && coin(random);
    job.rotary.fraction = one_of(random, {1.0, 1.0, 0.5});
    if (coin(random)) job.head_size = one_of<std::int64_t>(random, {24, 128});
    if (coin(random)) job.qkv_bias = job.out_bias = job.mlp_bias = true;
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
  template <class Field>
  void attempt(
      Field field,
      std::initializer_list<std::remove_reference_t<std::invoke_result_t<Field, Strategy&>>>
          values) {
    attempt([&](Strategy& strategy) { field(strategy) = one_of(random, values); });
  }
};

/// A node has no ranks of another one.
void fit_nodes(Plan& plan) {
  const std::int64_t per_node = std::min(plan.devices, plan.devices_per_node);
  if (plan.devices % per_node != 0) plan.devices_per_node = 1;
}

void draw_degrees(DrawnPlan& drawn, std::initializer_list<std::int64_t> stages = {1}) {
  Random& random = drawn.random;
  Strategy& strategy = drawn.plan.strategy;
  do {
    strategy = {};
    strategy.mp = one_of<std::int64_t>(random, {1, 1, 2, 4, 8});
    strategy.pp = one_of<std::int64_t>(random, {1, 1, 2, 3, 4});
    if (drawn.plan.framework.kernels.attention.flash)
      strategy.cp = one_of<std::int64_t>(random, {1, 1, 2});
    strategy.dp = one_of<std::int64_t>(random, {1, 2, 3});
    strategy.sharding_degree = one_of<std::int64_t>(random, {1, 2, 4});
    // Where a framework has several stages, ranks that share a sequence share parameters, too.
    const bool sharded = strategy.sharding_degree > 1 || (stages.size() > 1 && strategy.cp > 1);
    strategy.sharding_stage = sharded ? one_of(random, stages) : 0;
    drawn.plan.devices =
        strategy.mp * strategy.pp * strategy.cp * strategy.dp * strategy.sharding_degree;
  } while (!drawn.is_legal());
}

/// A job of a model that torchtitan has, as its files can state it.
Job random_titan_job(Random& random) {
  Job job = read_job(one_of(random, {"llama3-8b", "llama3-70b", "llama3-405b"}));
  job.name = "drawn";
  job.sequence = one_of<std::int64_t>(random, {512, 4096, 8192});
  job.global_batch = one_of<std::int64_t>(random, {16, 96, 512});
  job.precision = one_of(random, {DType::bf16, DType::bf16, DType::f32});
  job.optimizer.learning_rate = spread(random, 1e-5, 3);
  job.optimizer.beta2 = one_of(random, {0.95, 0.999});
  job.optimizer.weight_decay = one_of(random, {0.0, 0.01, 0.1});
  job.clip_norm = one_of(random, {0.5, 1.0});
  job.dropout = 0;
  job.seed = std::int64_t(random() % 100000);
  return job;
}

}  // namespace

Plan random_megatron_plan(Random& random) {
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
  drawn.attempt(FIELD(micro_batch), {1, 1, 2, 4});
  drawn.attempt(FIELD(sharding_stage), {1, 2, 3});
  drawn.attempt(FIELD(pipeline.virtual_stages), {1, 2, 3});
  drawn.attempt([&](Strategy& strategy) {
    if (coin(random)) return;
    strategy.pipeline.layer_split =
        random_split(random, plan.job.layers, strategy.pp * strategy.pipeline.virtual_stages);
  });
  drawn.attempt(FIELD(pipeline.embedding_as_layers), {0, 1, 2});
  drawn.attempt(FIELD(pipeline.loss_as_layers), {0, 1});
  drawn.attempt(FIELD(rank_order), {RankOrder::sharding_dp_pp, RankOrder::pp_sharding_dp});
  drawn.attempt(FIELD(tokens.sequence_parallel), {true, false});
  drawn.attempt(FIELD(tokens.context_exchange),
                {ContextExchange::ring, ContextExchange::all_gather, ContextExchange::all_to_all});
  drawn.attempt(FIELD(recompute), {Recompute::none, Recompute::selective, Recompute::full});
  drawn.attempt([&](Strategy& s) {
    if (random() % 3 != 0) return;
    s.recompute = Recompute::modules;
    for (std::size_t i = 0; i < std::size(kRecomputedModules); ++i) {
      if (coin(random) && has_module(plan.job, RecomputedModule(i)))
        s.recomputed.modules.add(RecomputedModule(i));
    }
    s.recomputed.modules = without_parts(s.recomputed.modules);
  });
  drawn.attempt([&](Strategy& s) { s.recomputed.layers = std::int64_t(random() % 4); });
  drawn.attempt(FIELD(precision.fp8), {Fp8::none, Fp8::delayed, Fp8::current});
  drawn.attempt(FIELD(precision.fp8_parameters), {true, false});
  drawn.attempt(FIELD(precision.gradients), {GradientType::f32, GradientType::computed});
  drawn.attempt(FIELD(precision.main_gradients), {GradientType::f32, GradientType::computed});
  drawn.attempt(FIELD(precision.moments),
                {MomentType::f32, MomentType::bf16, MomentType::f16, MomentType::fp8});
  drawn.attempt(FIELD(precision.main_parameters),
                {MasterType::f32, MasterType::f16, MasterType::remainder});
  drawn.attempt([&](Strategy& s) {
    if (coin(random)) s.optimizer.offload_percent = one_of<std::int64_t>(random, {1, 35, 100});
  });
  drawn.attempt(FIELD(optimizer.overlap_offload), {true, false});
  drawn.attempt([&](Strategy& s) {
    if (!coin(random)) return;
    s.optimizer.offload_percent = 100;
    s.gathers.offload = true;
  });
  drawn.attempt([&](Strategy& s) {
    if (coin(random)) s.offloaded = {100, std::int64_t(1 + random() % 3)};
  });
  drawn.attempt([&](Strategy& s) {
    s.gradients.bucket_bytes = Bytes(4 * std::int64_t(1024 + random() % 100'000'000));
  });
  drawn.attempt(FIELD(gradients.overlap), {true, true, false});
  // Without shards there are no gathers; without overlapped reductions there are none either.
  if (plan.strategy.sharding_stage > 0)
    plan.strategy.gathers.overlap = plan.strategy.gradients.overlap && coin(random);
  fit_nodes(plan);
  return plan;
}

Plan random_titan_plan(Random& random) {
  DrawnPlan drawn{random, {}};
  Plan& plan = drawn.plan;
  plan.framework = framework_by_name(one_of<std::string_view>(
      random, {"torchtitan", "torchtitan-compiled", "torchtitan-async-tp"}));
  plan.job = random_titan_job(random);
  plan.stated_vocabulary = plan.job.vocab;
  draw_degrees(drawn, {1, 2, 3});
  plan.devices_per_node = one_of<std::int64_t>(random, {1, 4, 8});
  if (plan.strategy.mp > 1) plan.strategy.tokens.sequence_parallel = true;
  drawn.attempt(FIELD(micro_batch), {1, 1, 2, 4});
  drawn.attempt([&](Strategy& strategy) {
    if (coin(random)) return;
    strategy.pipeline.layer_split = random_split(random, plan.job.layers, strategy.pp);
  });
  drawn.attempt(FIELD(pipeline.embedding_as_layers), {0, 1, 2});
  drawn.attempt(FIELD(pipeline.loss_as_layers), {0, 1});
  if (plan.strategy.pp > 1)
    drawn.attempt(FIELD(schedule), {Schedule::one_f_one_b, Schedule::gpipe});
  drawn.attempt(FIELD(tokens.context_exchange),
                {ContextExchange::ring, ContextExchange::all_gather});
  drawn.attempt(FIELD(recompute), {Recompute::none, Recompute::full, Recompute::per_op});
  drawn.attempt([&](Strategy& strategy) {
    if (strategy.recompute != Recompute::full || strategy.pp > 1) return;
    const std::int64_t step = one_of<std::int64_t>(random, {1, 2, 3, plan.job.layers});
    for (std::int64_t layer = step - 1; step > 1 && layer < plan.job.layers; layer += step)
      strategy.recomputed.list.push_back(layer);
  });
  drawn.attempt(FIELD(precision.fp8), {Fp8::none, Fp8::tensorwise, Fp8::rowwise});
  drawn.attempt(FIELD(gradients.bucket_bytes),
                {Bytes(std::int64_t{1} << 20), Bytes(std::int64_t{1} << 26)});
  fit_nodes(plan);
  return plan;
}

namespace {

/// Returns in what a file that was read differs from its plan, and an empty text where both say the
/// same.
std::string difference(const Plan& plan, const PlanFlags& flags, const Imported& read,
                       const std::vector<std::string>& losable) {
  Job job = plan.job;
  job.vocab = plan.stated_vocabulary;
  Strategy planned = plan.strategy, found = *read.strategy;
  if (layers_per_part(*read.job, found) != layers_per_part(plan.job, planned))
    return "layers per part";
  // How layers are split has several forms.
  for (Strategy* strategy : {&planned, &found}) {
    strategy->pipeline.layer_split.clear();
    strategy->pipeline.embedding_as_layers = strategy->pipeline.loss_as_layers = 0;
  }
  const auto keys = strategy_keys();
  Job read_job = *read.job;
  for (const ChoiceBeside& choice : flags.beside) {
    if (choice.key.starts_with("rotary_scaling")) read_job.rotary.scale = job.rotary.scale;
    if (choice.key.starts_with("gate_")) read_job.activation_params = job.activation_params;
    if (choice.key == "norm_epsilon") read_job.norm_epsilon = job.norm_epsilon;
    if (std::ranges::find(keys, choice.key) != keys.end())
      set_field(found, choice.key, choice.planned);
  }
  for (const LostChoice& lost : flags.lost) {
    if (std::ranges::find(losable, lost.key) == losable.end()) return "lost: " + lost.key;
    if (lost.key == "precision") {
      job.precision = read_job.precision;
    } else if (std::ranges::find(keys, lost.key) != keys.end()) {
      set_field(planned, lost.key, lost.nearest);
    }
  }
  if (job_text(read_job) != job_text(job)) return job_text(read_job) + job_text(job);
  if (strategy_text(found) != strategy_text(planned))
    return strategy_text(found) + strategy_text(planned);
  if (read.devices != plan.devices) return "devices";
  if (read.framework->name != plan.framework.name) return read.framework->name;
  const std::int64_t mp = plan.strategy.mp;
  const std::int64_t rows = padded_vocabulary(read.job->vocab, *read.framework, mp);
  return rows == (plan.job.vocab + mp - 1) / mp * mp ? "" : "padded vocabulary";
}

using Counts = std::map<std::string, int>;

void count(Counts& seen, const Plan& plan, const PlanFlags& flags) {
  ++seen[plan.framework.name];
  ++seen[flags.lost.empty() ? "all stated" : "lost"];
  for (const StrategyField& field : shown_fields(plan.strategy)) {
    if (!always_shown(field.key)) ++seen[fmt::format("{}={}", field.key, field.value)];
  }
  if (!plan.strategy.pipeline.layer_split.empty()) ++seen["layer_split"];
  for (const char* key : {"sharding_stage", "schedule", "recompute"})
    ++seen[fmt::format("{}={}", key, field_text(plan.strategy, key))];
}

}  // namespace

void expect_plans_again(const char* target, Plan (*draw)(Random&), const char* file,
                        const std::vector<std::string>& losable,
                        const std::vector<const char*>& choices, const char* version) {
  const FlagTable& table = *flag_table_for(target, version);
  const auto plans = int(wanted_draws({.count = 2'000}).count);
  Random random(20261124);
  Counts seen;
  for (int i = 0; i < plans; ++i) {
    const Plan plan = draw(random);
    const PlanFlags flags = flags_of(plan, table, "plan.json");
    const std::string text = table.document && !table.options ? flags_document(plan, table, flags)
                                                              : flags_script(plan, table, flags);
    ImportGiven given;
    given.name = "drawn";
    given.devices = plan.devices;
    std::optional<Imported> read;
    try {
      read = import_text(text, file, given);
    } catch (const InputError& refused) {
      // The nearest values of what flags cannot state may not go with the other choices.
      ASSERT_FALSE(flags.lost.empty()) << refused.what();
      ++seen["refused"];
      continue;
    }
    ASSERT_EQ(difference(plan, flags, *read, losable), "") << i << "\n" << text;
    count(seen, plan, flags);
  }
  EXPECT_LT(seen["refused"], plans / 4);
  for (const char* choice : choices) EXPECT_GT(seen[choice], plans / 500) << choice;
}

std::vector<const char*> megatron_choices() {
  return {"megatron-lm",
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
          "recompute=modules",
          "fp8=current",
          "fp8_parameters=true",
          "gradient_type=computed",
          "main_gradient_type=computed",
          "main_parameter_type=f16",
          "main_parameter_type=remainder",
          "moment_type=fp8",
          "offload_optimizer_percent=100",
          "overlap_offload=true",
          "offload_activations_layers=2",
          "overlap_grad_reduce=false",
          "overlap_param_gather=false"};
}

}  // namespace plimsoll
