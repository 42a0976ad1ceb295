// Plans as configuration files of trainers: reading a file gives the plan's strategy again.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "interop/exports/flags_script.h"
#include "interop/imports/imported.h"
#include "tests/draws.h"
#include "tests/interop/changed_text.h"
#include "tests/random_values.h"

namespace plimsoll {
namespace {

Job drawn_model(Random& random) {
  Job job;
  job.name = "drawn";
  job.family = one_of(random, {Family::gpt, Family::llama});
  job.layers = one_of<std::int64_t>(random, {4, 6, 8});
  job.heads = one_of<std::int64_t>(random, {8, 16});
  job.kv_heads = one_of<std::int64_t>(random, {2, job.heads});
  job.hidden = job.heads * one_of<std::int64_t>(random, {16, 32, 64});
  job.ffn_hidden = 16 * one_of<std::int64_t>(random, {24, 48, 172});
  job.vocab = one_of<std::int64_t>(random, {1000, 50257, 128256});
  job.sequence = one_of<std::int64_t>(random, {512, 2048, 4096});
  job.tied_embeddings = coin(random);
  job.global_batch = one_of<std::int64_t>(random, {16, 48, 96, 512});
  job.precision = one_of(random, {DType::f32, DType::bf16, DType::bf16, DType::f16});
  if (job.precision == DType::f16)
    job.loss_scale = LossScale{one_of(random, {65536.0, 4294967296.0}), 2, 0.5,
                               one_of<std::int64_t>(random, {1000, 2000})};
  job.optimizer.learning_rate = spread(random, 1e-5, 3);
  job.optimizer.beta2 = one_of(random, {0.95, 0.999});
  job.optimizer.weight_decay = one_of(random, {0.0, 0.01, 0.1});
  job.clip_norm = one_of(random, {0.0, 0.5, 1.0});
  return job;
}

/// Draws choices one after another, and takes back what is not legal.
struct DrawnSettings {
  Random& random;
  std::vector<std::string_view> lost;
  Plan plan = {};

  bool is_legal() const {
    return bool(legal(plan.job, plan.strategy, plan.devices)) &&
           bool(legal(plan.framework, plan.job, plan.strategy));
  }
  /// Choices that the target loses are drawn seldom: for a loss the plan is lowered twice.
  template <class Field>
  void attempt(
      std::string_view key, Field field,
      std::initializer_list<std::remove_reference_t<std::invoke_result_t<Field, Strategy&>>>
          values) {
    if (std::ranges::find(lost, key) != lost.end() && random() % 16 != 0) return;
    const Strategy before = plan.strategy;
    field(plan.strategy) = one_of(random, values);
    if (!is_legal()) plan.strategy = before;
  }
};

void draw_ranks(DrawnSettings& drawn) {
  Random& random = drawn.random;
  Strategy& strategy = drawn.plan.strategy;
  const bool loses_stages = std::ranges::find(drawn.lost, "sharding_stage") != drawn.lost.end();
  do {
    strategy = {};
    strategy.mp = one_of<std::int64_t>(random, {1, 1, 2, 4});
    strategy.pp = one_of<std::int64_t>(random, {1, 1, 2, 4});
    strategy.cp = one_of<std::int64_t>(random, {1, 1, 2});
    strategy.dp = one_of<std::int64_t>(random, {1, 2, 3});
    strategy.sharding_degree = one_of<std::int64_t>(random, {1, 2, 4, 8});
    const std::int64_t stage =
        loses_stages && random() % 16 != 0 ? 3 : one_of<std::int64_t>(random, {1, 2, 3});
    strategy.sharding_stage = strategy.sharding_degree > 1 ? stage : 0;
    strategy.rank_order = one_of(
        random, {RankOrder::sharding_dp_pp, RankOrder::sharding_pp_dp, RankOrder::pp_sharding_dp});
    strategy.tokens.context_exchange = one_of(
        random, {ContextExchange::ring, ContextExchange::all_gather, ContextExchange::all_to_all});
    if (strategy.cp == 1) strategy.tokens.context_exchange = ContextExchange::ring;
    drawn.plan.devices =
        strategy.mp * strategy.pp * strategy.cp * strategy.dp * strategy.sharding_degree;
  } while (!drawn.is_legal() ||
           (loses_stages && strategy.sharding_stage == 0 && strategy.cp > 1 && random() % 16 != 0));
}

void draw_choices(DrawnSettings& drawn) {
  Random& random = drawn.random;
  drawn.attempt("micro_batch", FIELD(micro_batch), {1, 2, 4});
  drawn.attempt("sequence_parallel", FIELD(tokens.sequence_parallel), {true, false});
  drawn.attempt("virtual_stages", FIELD(pipeline.virtual_stages), {1, 2});
  drawn.attempt("recompute", FIELD(recompute), {Recompute::none, Recompute::full});
  drawn.attempt("gradient_type", FIELD(precision.gradients),
                {GradientType::f32, GradientType::computed});
  drawn.attempt("fp8", FIELD(precision.fp8), {Fp8::none, Fp8::none, Fp8::tensorwise, Fp8::rowwise});
  drawn.attempt("overlap_grad_reduce", FIELD(gradients.overlap), {true, true, false});
  drawn.attempt("keep_gathered", FIELD(gathers.keep), {true, false});
  drawn.attempt("gather", FIELD(gathers.unit), {ParameterGather::layer, ParameterGather::module});
  // Where the other value is lost, modules are drawn mostly.
  const bool loses = std::ranges::find(drawn.lost, "gather") != drawn.lost.end();
  if (loses && drawn.plan.strategy.sharding_stage == 3 && random() % 16 != 0) {
    drawn.plan.strategy.gathers.unit = ParameterGather::module;
  }
  drawn.attempt("prefetch_depth", FIELD(gathers.prefetch_depth), {0, 1, 2});
  drawn.attempt("persistence_threshold", FIELD(gathers.persistence_threshold), {0, 100'000});
  drawn.attempt("max_live_bytes", FIELD(gathers.max_live_bytes), {Bytes(0), Bytes(2'000'000'000)});
  drawn.attempt("reuse_distance_bytes", FIELD(gathers.reuse_distance_bytes),
                {Bytes(0), Bytes(400'000'000)});
  drawn.attempt("grad_bucket_bytes", FIELD(gradients.bucket_bytes),
                {Bytes(std::int64_t{1} << 20), Bytes(std::int64_t{1} << 28)});
  if (drawn.plan.strategy.gradients.bucket_bytes == Bytes(std::int64_t{1} << 28) && coin(random))
    drawn.plan.strategy.gradients.bucket_bytes = Bytes(std::int64_t(1 + random() % 900) << 20);
}

Plan drawn_plan(Random& random, const FlagTable& table, const std::vector<std::string_view>& lost) {
  DrawnSettings drawn{random, lost};
  Plan& plan = drawn.plan;
  plan.framework = framework_by_name(table.frameworks[random() % table.frameworks.size()]);
  plan.job = drawn_model(random);
  plan.stated_vocabulary = plan.job.vocab;
  draw_ranks(drawn);
  draw_choices(drawn);
  plan.job.vocab = padded_vocabulary(plan.job.vocab, plan.framework, plan.strategy.mp);
  plan.devices_per_node = plan.devices % 8 == 0 ? 8 : 1;
  return plan;
}

/// Keys that have no effect where they differ, beside those that PlanFlags::lost has.
bool is_stated(const PlanFlags& flags, std::string_view key, const Plan& plan) {
  Strategy strategy = plan.strategy;
  set_field(strategy, key, field_text(flags.strategy, key));
  return field_text(plan.strategy, key) == field_text(flags.strategy, key);
}

struct Seen {
  std::map<std::string, int> choices = {};
  std::map<std::string, std::string> example = {};  ///< of a choice that is lost
  int whole = 0;                                    ///< plans that are stated in full
};

/// Exports a plan and imports the file for its job.
void expect_again(const Plan& plan, const FlagTable& table, Seen& seen) {
  const PlanFlags flags = flags_of(plan, table, "plan.json");
  const std::string text = flags_document(plan, table, flags);
  ImportGiven given;
  given.job = plan.job;
  given.job->vocab = plan.stated_vocabulary;
  given.job->global_batch = 1;  // what the file states counts
  if (!table.beside.empty()) given.job->global_batch = plan.job.global_batch;
  given.devices = plan.devices;
  const Imported read = import_text(text, "drawn", given);
  ASSERT_TRUE(read.strategy && read.job && read.framework) << text;
  Strategy found = *read.strategy;
  for (const ChoiceBeside& choice : flags.beside) set_field(found, choice.key, choice.planned);
  ASSERT_EQ(strategy_text(found), strategy_text(flags.strategy)) << text;
  Job job = flags.job;
  job.vocab = plan.stated_vocabulary;
  ASSERT_EQ(job_text(*read.job), job_text(job)) << text;
  ASSERT_EQ(read.framework->name, plan.framework.name);
  if (flags.lost.empty()) ++seen.whole;
  for (const LostChoice& lost : flags.lost) {
    ++seen.choices[lost.key + " lost"];
    seen.example[lost.key + " lost"] = lost.planned + " is read as " + lost.nearest + "\n" + text;
  }
  for (const std::string_view key : strategy_keys()) {
    const std::string planned = field_text(plan.strategy, key);
    if (planned != field_text(Strategy{}, key) && is_stated(flags, key, plan))
      ++seen.choices[key.ends_with("_bytes") ? std::string(key)
                                             : fmt::format("{}={}", key, planned)];
  }
}

struct Target {
  const char* name;
  std::vector<const char*> stated;     ///< choices that files of the target state
  std::vector<std::string_view> lost;  ///< keys that are lost for some of their values
};

class SettingsExport : public testing::TestWithParam<Target> {};

TEST_P(SettingsExport, GivesTheStrategyAgain) {
  const FlagTable& table = *flag_table_for(GetParam().name);
  Random random(20261125);
  Seen seen;
  const auto plans = int(wanted_draws({.count = 1'000}).count);
  for (int i = 0; i < plans; ++i) {
    const Plan plan = drawn_plan(random, table, GetParam().lost);
    ASSERT_NO_FATAL_FAILURE(expect_again(plan, table, seen)) << i;
  }
  EXPECT_GT(seen.whole, plans / 10);
  for (const char* choice : GetParam().stated)
    EXPECT_GT(seen.choices[choice], plans / 500) << choice;
  for (const auto& [choice, times] : seen.choices) {
    if (!choice.ends_with(" lost")) continue;
    const std::string key = choice.substr(0, choice.size() - 5);
    const bool expected = std::ranges::find(GetParam().lost, key) != GetParam().lost.end();
    EXPECT_TRUE(expected) << key << " is lost " << times << " times: " << seen.example[choice];
  }
}

INSTANTIATE_TEST_SUITE_P(
    Trainers, SettingsExport,
    testing::Values(
        Target{"deepspeed",
               {"sharding_stage=1", "sharding_stage=3", "micro_batch=4", "recompute=full",
                "gradient_type=computed", "overlap_grad_reduce=false", "prefetch_depth=2",
                "gather=module", "persistence_threshold=100000", "max_live_bytes",
                "reuse_distance_bytes", "dp=3", "cp=2", "context_exchange=all_to_all"},
               {"gather", "prefetch_depth"}},
        Target{"fsdp",
               {"sharding_stage=2", "sharding_stage=3", "cp=2", "context_exchange=all_gather",
                "keep_gathered=true", "gather=module", "prefetch_depth=0", "recompute=full",
                "gradient_type=computed", "fp8=rowwise", "dp=2"},
               {"overlap_grad_reduce"}},
        Target{"accelerate",
               {"sharding_stage=3", "cp=2", "keep_gathered=true", "recompute=full", "dp=2"},
               {"gather", "prefetch_depth", "overlap_grad_reduce", "fp8", "sharding_stage",
                "keep_gathered"}},
        Target{"paddle",
               {"mp=4", "pp=2", "virtual_stages=2", "sharding_stage=1", "sharding_stage=3",
                "rank_order=mp-cp-pp-sharding-dp", "sequence_parallel=true", "recompute=full",
                "context_exchange=all_to_all", "gradient_type=computed", "dp=3"},
               {"grad_bucket_bytes", "overlap_grad_reduce", "gather", "prefetch_depth"}}),
    [](const testing::TestParamInfo<Target>& info) { return std::string(info.param.name); });

Plan plan_of_experts(const std::string& fields) {
  Plan plan;
  plan.framework = framework_by_name("deepspeed");
  plan.job = read_job("mixtral-8x7b");
  plan.stated_vocabulary = plan.job.vocab;
  plan.strategy = parse_strategy(fields);
  plan.devices = plan.devices_per_node = 8;
  return plan;
}

TEST(DeepSpeedSettings, StateRanksOfExpertsAndOfSequences) {
  const FlagTable& table = *flag_table_for("deepspeed");
  for (const char* fields : {"sharding_degree=8,sharding_stage=2,ep=8,micro_batch=1",
                             "sharding_degree=8,sharding_stage=3,gather=module",
                             "sharding_degree=2,cp=4,ep=8,context_exchange=all_to_all",
                             "sharding_degree=8,ep=2,expert_rows_percent=150"}) {
    SCOPED_TRACE(fields);
    Seen seen;
    const Plan plan = plan_of_experts(fields);
    ASSERT_TRUE(legal(plan.framework, plan.job, plan.strategy));
    ASSERT_NO_FATAL_FAILURE(expect_again(plan, table, seen));
    EXPECT_EQ(seen.whole, 1);
  }
  Plan plan = plan_of_experts("sharding_degree=2,cp=4,ep=8,context_exchange=all_to_all");
  const std::string text = flags_document(plan, table, flags_of(plan, table, "plan.json"));
  for (const char* line : {"\"sequence_parallel_size\": 4", "\"enabled\": true",
                           "\"autoep_size\": 8", "\"load_balance_coeff\": null"})
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
}

TEST(DeepSpeedSettings, OfExpertsAreReadWithoutDefaults) {
  ImportGiven given;
  given.job = read_job("mixtral-8x7b");
  given.devices = 8;
  const auto read = [&](const std::string& experts) {
    return import_text(
        "{\"train_micro_batch_size_per_gpu\": 1, \"zero_optimization\": {\"stage\": 1}, "
        "\"expert_parallel\": {" +
            experts + "}}",
        "ds.json", given);
  };
  const Imported imported =
      read("\"enabled\": true, \"autoep_size\": 4, \"preset_model\": \"mixtral\"");
  EXPECT_EQ(imported.strategy->ep, 4);
  EXPECT_TRUE(std::ranges::any_of(imported.notes, [](const std::string& note) {
    return note.find("load_balance_coeff is null") != std::string::npos;
  }));
  for (const auto& [experts, reason] :
       {std::pair("\"enabled\": true, \"autoep_size\": 4, \"expert_tensor_parallel_size\": 2",
                  "experts are whole"),
        std::pair("\"enabled\": true, \"autoep_size\": 4, \"top_k\": 1",
                  "the job states the router")}) {
    try {
      read(experts);
      ADD_FAILURE() << experts;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
    }
  }
}

constexpr const char* kPieces[] = {"null", "true", "-1",      "1e300", "[]",   "{",  "\"",
                                   ":",    "=",    "4194304", "\n",    "auto", "[[", "\xff"};

TEST(DamagedSettings, AreReadOrRefused) {
  Random random(5);
  int read_anyway = 0;
  for (const char* name : {"deepspeed", "fsdp", "accelerate", "paddle"}) {
    const FlagTable& table = *flag_table_for(name);
    for (int i = 0; i < 250; ++i) {
      const Plan plan = drawn_plan(random, table, {"gather", "prefetch_depth"});
      const std::string whole = flags_document(plan, table, flags_of(plan, table, "plan.json"));
      ImportGiven given;
      if (coin(random)) given.job = plan.job;
      if (coin(random)) given.devices = plan.devices;
      try {
        import_text(damaged(random, whole, kPieces), "drawn", given);
        ++read_anyway;
      } catch (const InputError&) {
        continue;
      }
    }
  }
  EXPECT_GT(read_anyway, 100);
}

}  // namespace
}  // namespace plimsoll
