// Limits of frameworks are checked by preset with their sources, and all accepted strategies lower.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <map>
#include <random>
#include <set>

#include "passes/pipeline.h"
#include "passes/strategy/pipeline_order.h"

namespace plimsoll {
namespace {

Job nano(const char* family = "gpt") {
  Job job = read_job(std::filesystem::path(PLIMSOLL_SOURCE_DIR) / "tests" /
                     fmt::format("{}-nano.json", family));
  job.precision = DType::bf16;
  return job;
}

std::string refusal(const std::string& framework, const std::string& fields) {
  return legal(framework_by_name(framework), nano(), parse_strategy(fields)).reason();
}

struct Case {
  const char* framework;
  const char* strategy;
  const char* asked;        ///< what the reason names; empty: legal
  const char* source = "";  ///< how the source that it names begins
};

TEST(FrameworkRules, ForwardsAndBackwardsInTurnsGoWithWhatTheFrameworkStates) {
  Job job = nano("expert");
  const auto refused = [&](const std::string& framework, const std::string& more) {
    const Strategy strategy =
        parse_strategy("dp=2,ep=2,expert_rows_percent=200,overlap_expert_exchange=true" + more);
    return legal(framework_by_name(framework), job, strategy).reason();
  };
  for (const char* more : {"", ",recompute=full", ",expert_dispatch=all_gather", ",pp=2"})
    EXPECT_EQ(refused("bundled", more), "") << more;
  EXPECT_EQ(refused("megatron-lm", ""), "");
  EXPECT_NE(refused("megatron-lm", ",pp=2").find("needs several virtual_stages"),
            std::string::npos);
  EXPECT_NE(refused("megatron-lm", ",recompute=full").find("no whole layers"), std::string::npos);
  EXPECT_NE(refused("megatron-lm", ",expert_dispatch=all_gather").find("all_to_all with it"),
            std::string::npos);
  EXPECT_NE(refused("torchtitan", "").find("computes nothing while tokens travel"),
            std::string::npos);
}

TEST(FrameworkRules, OwnersOfMatricesAreThoseOfMuon) {
  Job job = nano();
  job.optimizer.kind = OptimizerKind::muon;
  const auto reason = [&](const char* framework, const std::string& stage) {
    const Strategy strategy = parse_strategy(
        "sharding_degree=2,sharding_owner=greedy,flatten=none,sharding_stage=" + stage);
    return legal(framework_by_name(framework), job, strategy).reason();
  };
  EXPECT_EQ(reason("megatron-lm", "1"), "");
  EXPECT_EQ(reason("torchtitan", "2"), "");
  EXPECT_NE(reason("pytorch-fsdp", "2").find("has no owners of matrices"), std::string::npos);
  job.optimizer.kind = OptimizerKind::adafactor;
  EXPECT_NE(reason("megatron-lm", "1").find("owners"), std::string::npos);
  for (const char* framework : {"torchtitan", "pytorch-fsdp"})
    EXPECT_NE(reason(framework, "2").find("owners"), std::string::npos) << framework;
}

TEST(FrameworkRules, AFrameworkIsWhatItCanDo) {
  const Case cases[] = {
      {"pytorch-fsdp", "pp=2", "pp is 2", "torch.distributed"},
      {"pytorch-fsdp", "mp=2", "mp is 2", "torch.distributed"},
      {"pytorch-fsdp", "sharding_degree=2", "sharding_stage is 1",
       "torch.distributed.fsdp, Sharding"},
      {"pytorch-fsdp", "sharding_degree=2,sharding_stage=2", ""},
      {"pytorch-fsdp", "dp=2,sharding_degree=2,sharding_stage=3", ""},
      {"pytorch-fsdp", "dp=2", ""},
      {"pytorch-fsdp", "sharding_degree=2,sharding_stage=3,prefetch_depth=1", ""},
      {"pytorch-fsdp", "sharding_degree=2,sharding_stage=3,prefetch_depth=2", "prefetch_depth is 2",
       "torch.distributed.fsdp"},
      {"pytorch-fsdp", "sharding_degree=2,sharding_stage=3,persistence_threshold=9",
       "persistence_threshold is 9"},
      {"pytorch-fsdp", "recompute=full,recompute_list=1+2", ""},
      {"torchtitan", "mp=2,pp=2,sharding_degree=2", ""},
      {"torchtitan", "sharding_degree=2", "sharding_stage is 1"},
      {"torchtitan", "pp=2,sharding_degree=2,sharding_stage=3", "sharding_stage is 3",
       "torch/distributed"},
      {"torchtitan", "sharding_degree=2,sharding_stage=3,prefetch_depth=2", "prefetch_depth is 2"},
      {"torchtitan", "sharding_degree=2,sharding_stage=3,keep_gathered=true", "keep_gathered"},
      {"torchtitan", "dp=2", ""},
      {"torchtitan", "dp=2,mp=2", "dp is 2"},
      {"torchtitan", "recompute=full,recompute_list=0+2", ""},
      {"torchtitan", "recompute=full,recompute_list=0+1+3",
       "recompute_list is 0+1+3 with recompute full"},
      {"torchtitan", "recompute=per_op", ""},
      {"torchtitan", "gradient_type=computed", "gradient_type is computed"},
      {"torchtitan", "fp8=delayed", "fp8 is delayed"},
      {"torchtitan", "cp=2,context_exchange=all_to_all", "context_exchange is all_to_all"},
      {"torchtitan", "dp=2,ep=2", ""},
      {"torchtitan", "dp=2,ep=2,expert_dispatch=all_gather", "expert_dispatch is all_gather"},
      {"torchtitan", "dp=2,ep=2,etp=2", "etp is 2"},
      {"torchtitan", "mp=2,etp=1", "etp is 1"},
      {"megatron-lm", "mp=2,etp=1", ""},
      {"megatron-lm", "dp=2,ep=2,expert_dispatch=all_gather", ""},
      {"megatron-lm", "dp=2,ep=2,overlap_shared_experts=true", ""},
      {"megatron-lm", "dp=2,ep=2,expert_dispatch=all_gather,overlap_shared_experts=true",
       "overlap_shared_experts"},
      {"torchtitan", "dp=2,ep=2,overlap_shared_experts=true", "overlap_shared_experts"},
      {"megatron-lm-2021", "dp=2,ep=2", "ep is 2"},
      {"deepspeed-zero3-1188", "pp=2", "pp is 2"},
      {"deepspeed-zero3-1188", "mp=2", "mp is 2"},
      {"deepspeed-zero3-1188", "dp=2,sharding_degree=2", "dp is 2 with sharding_degree 2"},
      {"deepspeed-zero3-1188", "sharding_degree=2,sharding_stage=3,persistence_threshold=9", ""},
      {"megatron-deepspeed", "pp=2,sharding_degree=2", ""},
      {"megatron-deepspeed", "pp=2,sharding_degree=2,sharding_stage=2", "sharding_stage is 2",
       "DeepSpeed"},
      {"megatron-deepspeed", "sharding_degree=2,sharding_stage=2", ""},
      {"megatron-deepspeed-2020", "sharding_degree=2,sharding_stage=2", ""},
      {"megatron-deepspeed-2020", "pp=2,sharding_degree=2,sharding_stage=2", "sharding_stage is 2",
       "DeepSpeed"},
      {"megatron-deepspeed-2020", "sharding_degree=2,sharding_stage=3", "sharding_stage is 3",
       "DeepSpeed 0.3"},
      {"megatron-deepspeed", "pp=2,virtual_stages=2", "virtual_stages is 2", "DeepSpeed"},
      {"megatron-deepspeed", "pp=2,layer_split=3+1", ""},
      {"pytorch-autocast", "pp=2", "pp is 2"},
      {"megatron-deepspeed", "pp=2,dp=2,rank_order=mp-cp-pp-sharding-dp",
       "rank_order is mp-cp-pp-sharding-dp", "DeepSpeed runtime/pipe/topology.py"},
      {"megatron-lm", "pp=2,dp=2,rank_order=mp-cp-pp-sharding-dp", ""},
      {"megatron-lm", "pp=2,dp=2,rank_order=mp-cp-pp-dp-sharding",
       "rank_order is mp-cp-pp-dp-sharding", "Megatron-LM megatron/training/initialize.py"},
      {"megatron-lm-2022", "pp=2,dp=2,rank_order=mp-cp-pp-sharding-dp",
       "rank_order is mp-cp-pp-sharding-dp"},
      {"torchtitan", "pp=2,sharding_degree=2,rank_order=mp-cp-pp-sharding-dp",
       "rank_order is mp-cp-pp-sharding-dp"},
      {"paddle-2.1", "pp=2,dp=2", "rank_order is mp-cp-sharding-dp-pp", "Paddle"},
      {"paddle-2.1", "pp=2,dp=2,rank_order=mp-cp-sharding-pp-dp", ""},
      {"paddle-2.1", "pp=2,sharding_degree=2", ""},
      {"bundled", "pp=2,dp=2,sharding_degree=2,rank_order=mp-cp-dp-pp-sharding", ""},
      {"pytorch-autocast", "dp=2", ""},
      {"pytorch-autocast", "sharding_degree=2", "sharding_degree is 2"},
      {"pytorch-autocast", "gradient_type=computed", "gradient_type is computed"},
      {"megatron-lm-2021", "pp=2,virtual_stages=2", ""},
      {"megatron-lm-2021", "pp=3", "pp 3 x virtual_stages 1 do not divide the 4 layers"},
      {"megatron-lm-2022", "pp=2,layer_split=3+1", "layer_split is 3+1", "Megatron-LM"},
      {"megatron-lm-2022", "pp=2,schedule=gpipe", "schedule is gpipe", "Megatron-LM"},
      {"megatron-lm-2022", "dp=2,sharding_degree=2", "dp is 2 with sharding_degree 2"},
      {"megatron-lm-2022", "recompute=selective", ""},
      {"megatron-lm-2022", "recompute=selective,recompute_layers=1",
       "recompute_layers is 1 with recompute selective"},
      {"megatron-lm-2022", "recompute=full,recompute_layers=1", ""},
      {"megatron-lm-2022", "sharding_degree=2,moment_type=bf16", "moment_type is bf16"},
      {"megatron-lm", "pp=3", ""},
      {"megatron-lm", "pp=3,embedding_as_layers=1,loss_as_layers=1", ""},
      {"megatron-lm-2022", "pp=3,embedding_as_layers=1,loss_as_layers=1",
       "embedding_as_layers is 1", "Megatron-LM"},
      {"megatron-lm", "pp=2,layer_split=3+1", ""},
      {"megatron-lm", "dp=2,sharding_degree=2", ""},
      {"megatron-lm", "pp=2,schedule=zb_h1", "schedule is zb_h1"},
      {"megatron-lm", "mp=2,pp=2,split_boundary=true", "split_boundary", "Megatron-LM"},
      {"megatron-lm", "sharding_degree=2,sharding_owner=prefix", "sharding_owner is prefix",
       "Megatron-LM optimizer/distrib_optimizer.py"},
      {"megatron-lm", "sharding_degree=2,sharding_owner=prefix,flatten=none",
       "sharding_owner is prefix", "Megatron-LM core/optimizer/layer_wise"},
      {"megatron-fsdp", "sharding_degree=2,sharding_owner=prefix", "sharding_owner is prefix"},
      {"megatron-lm", "cp=2,context_exchange=all_to_all", ""},
      {"megatron-lm", "sharding_degree=2,gradient_type=computed,main_gradient_type=computed", ""},
      {"megatron-lm", "sharding_degree=2,main_parameter_type=remainder,moment_type=fp8", ""},
      {"megatron-lm", "dp=2,moment_type=bf16", "moment_type is bf16 with sharding_stage 0",
       "Megatron-LM core/optimizer/optimizer_config.py"},
      {"megatron-lm", "sharding_degree=2,fp8=delayed,fp8_parameters=true", ""},
      {"deepspeed", "sharding_degree=2,sharding_stage=3,cp=2,context_exchange=all_to_all", ""},
      {"deepspeed", "sharding_degree=2,sharding_stage=3,cp=2", "context_exchange is ring",
       "DeepSpeed runtime/sequence"},
      {"deepspeed", "sharding_degree=4,sharding_stage=3,ep=4", ""},
      {"deepspeed", "sharding_degree=2,ep=4,cp=2,context_exchange=all_to_all", ""},
      {"deepspeed", "sharding_degree=2,sharding_stage=3,ep=4,cp=2,context_exchange=all_to_all",
       "ep is 4 with cp 2 and sharding_stage 3", "DeepSpeed documentation, AutoEP"},
      {"deepspeed", "sharding_degree=4,ep=2,etp=2", "etp is 2"},
      {"deepspeed", "sharding_degree=2,ep=2,expert_dispatch=all_gather",
       "expert_dispatch is all_gather", "DeepSpeed module_inject"},
      {"deepspeed-zero3-1188", "sharding_degree=2,ep=2", "ep is 2"},
      {"megatron-fsdp", "pp=2", "pp is 2"},
      {"megatron-fsdp", "mp=2,sharding_degree=2,sharding_stage=3", ""},
      {"pytorch-fsdp", "sharding_degree=2,sharding_stage=3,schedule=zb_h1", "schedule is zb_h1",
       "torch.distributed"},
      {"pytorch-autocast", "dp=2,schedule=gpipe", "schedule is gpipe", "torch.nn"},
      {"paddle-2.1", "sharding_degree=2,sharding_owner=prefix", ""},
      {"bundled", "mp=2,pp=2,split_boundary=true", ""},
      {"bundled", "pp=2,schedule=zb_h1", ""},
      {"megatron-lm", "sharding_degree=2,offload_optimizer_percent=50,overlap_offload=true", ""},
      {"deepspeed", "sharding_degree=2,sharding_stage=3,offload_optimizer_percent=100", ""},
      {"deepspeed", "sharding_degree=2,offload_optimizer_percent=100,overlap_offload=true",
       "overlap_offload", "DeepSpeed"},
      {"bundled", "offload_optimizer_percent=100", ""},
      {"bundled", "offload_optimizer_percent=40,overlap_offload=true", ""},
      {"bundled", "paged_states=true", ""},
      {"huggingface-fsdp", "paged_states=true", ""},
      {"pytorch-fsdp", "paged_states=true", "paged_states"},
      {"pytorch-fsdp", "sharding_degree=2,sharding_stage=3,offload_optimizer_percent=100",
       "offload_optimizer_percent is 100", "torch.distributed.fsdp, CPUOffloadPolicy"},
      {"pytorch-fsdp",
       "sharding_degree=2,sharding_stage=3,offload_optimizer_percent=100,offload_parameters=true",
       ""},
      {"pytorch-fsdp", "sharding_degree=2,sharding_stage=3,offload_parameters=true",
       "offload_parameters", "torch.distributed.fsdp, CPUOffloadPolicy"},
      {"galvatron",
       "sharding_degree=2,sharding_stage=3,offload_optimizer_percent=100,offload_parameters=true",
       "offload_parameters", "Galvatron"},
      {"bundled", "sharding_degree=2,moment_type=fp8", "moment_type is fp8"},
      {"bundled", "pp=2,offload_activations_percent=40,offload_activations_layers=1", ""},
      {"bundled", "recompute=full,offload_activations_percent=100", ""},
      {"megatron-lm", "offload_activations_percent=100,offload_activations_layers=3", ""},
      {"megatron-lm", "offload_activations_percent=100", "offload_activations_layers is 0",
       "Megatron-LM core/transformer"},
      {"megatron-lm", "offload_activations_percent=50,offload_activations_layers=3",
       "offload_activations_percent is 50", "Megatron-LM core/transformer"},
      {"megatron-lm", "pp=2,offload_activations_percent=100,offload_activations_layers=1",
       "offload_activations_percent is 100", "Megatron-LM core/transformer"},
      {"megatron-lm", "recompute=full,offload_activations_percent=100,offload_activations_layers=1",
       "offload_activations_percent is 100", "Megatron-LM core/transformer"},
      {"pytorch-fsdp", "sharding_degree=2,sharding_stage=3,offload_activations_percent=100", ""},
      {"deepspeed", "recompute=full,offload_activations_percent=100", ""},
      {"pytorch-fsdp", "offload_activations_percent=100,offload_activations_layers=1",
       "offload_activations_layers is 1", "hooks on all saved tensors"},
      {"torchtitan", "offload_activations_percent=100", "offload_activations_percent is 100"},
  };
  for (const Case& c : cases) {
    const std::string found = refusal(c.framework, c.strategy);
    const std::string who = fmt::format("{}: {}: {}", c.framework, c.strategy, found);
    const std::string_view asked = c.asked;
    EXPECT_EQ(found.empty(), asked.empty()) << who;
    if (asked.empty()) continue;
    EXPECT_TRUE(found.starts_with(fmt::format("{}; {} ", asked, c.framework))) << who;
    EXPECT_TRUE(*c.source == 0 || found.find(fmt::format(" ({}", c.source)) != std::string::npos)
        << who;
  }
}

// ---- whatever is accepted lowers ----

using Random = std::mt19937_64;

template <class T>
T one_of(Random& random, std::initializer_list<T> values) {
  return values.begin()[random() % values.size()];
}

/// Pairs of KEY=VALUE, each taken where it leaves the strategy legal.
constexpr const char* kFields[] = {
    "micro_batch=2",
    "recompute=full",
    "recompute=selective",
    "recompute=per_op",
    "recompute_layers=1",
    "recompute_list=0+2",
    "recompute_list=0+1+3",
    "schedule=gpipe",
    "schedule=zb_h1",
    "schedule=zb_h2",
    "schedule=zb_v",
    "schedule=v_half",
    "schedule=v_min",
    "schedule=dualpipe_v",
    "schedule=dualpipe",
    "virtual_stages=2",
    "layer_split=3+1",
    "embedding_as_layers=1",
    "sequence_parallel=true",
    "split_boundary=true",
    "prefetch_depth=2",
    "prefetch_depth=0",
    "keep_gathered=true",
    "max_live_bytes=1MiB",
    "persistence_threshold=100",
    "sharding_owner=prefix",
    "gradient_type=computed",
    "main_gradient_type=computed",
    "main_parameter_type=f16",
    "main_parameter_type=remainder",
    "main_parameter_type=none",
    "moment_type=bf16",
    "moment_type=block8",
    "moment_type=f16",
    "moment_type=fp8",
    "stochastic_rounding=true",
    "release_gradients=true",
    "offload_optimizer_percent=40",
    "offload_parameters=true",
    "offload_activations_percent=100",
    "offload_activations_percent=30",
    "offload_activations_layers=1",
    "overlap_offload=true",
    "paged_states=true",
    "fp8=delayed",
    "fp8=current",
    "fp8_parameters=true",
    "fp8=tensorwise",
    "fp8=rowwise",
    "fp8=mxfp8",
    "fp8=blockwise",
    "context_exchange=all_gather",
    "context_exchange=all_to_all",
    "overlap_grad_reduce=false",
    "overlap_param_gather=false",
};

struct Drawn {
  Job job;
  Strategy strategy;
  std::int64_t devices = 1;
};

bool accepts(const Framework& framework, const Drawn& drawn) {
  return bool(legal(drawn.job, drawn.strategy, drawn.devices)) &&
         bool(legal(framework, drawn.job, drawn.strategy));
}

/// Degrees that the framework accepts, then fields in any order.
Drawn draw(Random& random, const Framework& framework) {
  Drawn drawn;
  drawn.job = nano(one_of<const char*>(random, {"gpt", "llama"}));
  do {
    Strategy& s = drawn.strategy = Strategy();
    for (auto* degree : {&s.mp, &s.pp, &s.dp, &s.sharding_degree, &s.cp})
      *degree = one_of<std::int64_t>(random, {1, 1, 1, 2});
    const auto& exchanges = framework.can.exchanges.context.value;
    if (s.cp > 1 && !exchanges.has(s.tokens.context_exchange))
      s.tokens.context_exchange = ContextExchange::all_to_all;
    drawn.devices = s.mp * s.pp * s.dp * s.sharding_degree * s.cp;
    const auto stage = one_of<std::int64_t>(random, {1, 2, 3});
    s.sharding_stage = s.sharding_degree > 1 ? stage : 0;
  } while (!accepts(framework, drawn));
  for (std::size_t tries = 0; tries < std::size(kFields); ++tries) {
    const std::string field = kFields[random() % std::size(kFields)];
    const std::size_t equals = field.find('=');
    Drawn changed = drawn;
    set_field(changed.strategy, field.substr(0, equals), field.substr(equals + 1));
    const Schedule schedule = changed.strategy.schedule;  // with what goes with it
    if (schedule != drawn.strategy.schedule)
      changed.strategy.pipeline.virtual_stages = is_placed_as_v(schedule) ? 2 : 1;
    if (field == "virtual_stages=2" && !is_placed_as_v(schedule))
      changed.strategy.schedule = Schedule::one_f_one_b;
    if (changed.strategy.gathers.offload) changed.strategy.optimizer.offload_percent = 100;
    if (accepts(framework, changed)) drawn = changed;
  }
  return drawn;
}

/// Checks that draws may show all that a set of capabilities promises.
template <class Enum>
void expect_seen(const SetOf<Enum>& promised, const std::set<int>& seen, const std::string& what) {
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(promised.has(Enum(i)), seen.contains(i)) << what << " " << i;
  }
}

/// A limit of pipelines is no limit of what has none.
TEST(FrameworkRules, NoStageWithoutAPipelineIsRefusedForPipelines) {
  for (const Framework& framework : all_frameworks()) {
    const auto& stages = framework.can.ranks.sharding_stages;
    const bool all = stages.value.has(1) && stages.value.has(2) && stages.value.has(3);
    if (all) continue;
    EXPECT_EQ(stages.source.find("pipeline"), std::string::npos) << framework.name;
  }
}

TEST(FrameworkRules, WhatIsAcceptedLowersAndWhatIsPromisedIsAccepted) {
  for (const Framework& framework : all_frameworks()) {
    const Capabilities& can = framework.can;
    Random random(7);
    std::set<int> schedules, recomputes, exchanges, eights, gradients, masters, moments, stages;
    std::set<int> pipeline_stages;
    bool offloads = false, overlaps = false, on_host = false, pipelines = false, splits = false,
         interleaves = false, uneven = false;
    for (int i = 0; i < 300; ++i) {
      const auto [job, s, devices] = draw(random, framework);
      SCOPED_TRACE(framework.name + ": " + strategy_summary(s));
      ASSERT_FALSE(lower({job, s, framework}, {}, Proof::structure).empty());
      if (s.pp > 1) schedules.insert(int(s.schedule));
      if (s.cp > 1) exchanges.insert(int(s.tokens.context_exchange));
      if (s.sharding_stage > 0) (s.pp > 1 ? pipeline_stages : stages).insert(int(s.sharding_stage));
      recomputes.insert(int(s.recompute));
      eights.insert(int(s.precision.fp8));
      gradients.insert(int(s.precision.gradients));
      masters.insert(int(s.precision.main_parameters));
      moments.insert(int(s.precision.moments));
      offloads |= s.optimizer.offload_percent > 0 && !s.gathers.offload;
      on_host |= s.gathers.offload;
      overlaps |= s.optimizer.overlap_offload;
      pipelines |= s.pp > 1;
      splits |= s.mp > 1;
      interleaves |= s.pipeline.virtual_stages > 1 && !is_placed_as_v(s.schedule);
      uneven |= !s.pipeline.layer_split.empty();
    }
    const std::string& name = framework.name;
    EXPECT_EQ(pipelines, can.ranks.pipeline.value) << name;
    EXPECT_EQ(splits, can.ranks.tensor_parallel.value) << name;
    if (pipelines) {
      EXPECT_EQ(interleaves, can.pipelines.virtual_stages.value) << name;
      EXPECT_EQ(uneven, can.pipelines.uneven_split.value) << name;
      expect_seen(can.pipelines.schedules.value, schedules, name + ": schedule");
      expect_seen(can.ranks.pipeline_sharding_stages.value, pipeline_stages,
                  name + ": stage beside pp");
    }
    SetOf<Recompute> repeats;
    for (const Recompute one :
         {Recompute::none, Recompute::selective, Recompute::full, Recompute::per_op}) {
      const bool drops = one != Recompute::selective || !framework.kernels.attention.flash;
      if (can.repeats.recompute.value.has(one) && drops) repeats.add(one);
    }
    expect_seen(repeats, recomputes, name + ": recompute");
    if (framework.kernels.attention.flash)
      expect_seen(can.exchanges.context.value, exchanges, name + ": context_exchange");
    expect_seen(can.ranks.sharding_stages.value, stages, name + ": sharding_stage");
    expect_seen(can.precision.fp8.value, eights, name + ": fp8");
    expect_seen(can.precision.gradient_types.value, gradients, name + ": gradient_type");
    expect_seen(can.precision.master_types.value, masters, name + ": main_parameter_type");
    expect_seen(can.precision.moment_types.value, moments, name + ": moment_type");
    EXPECT_EQ(offloads, can.offload.optimizer.value) << name;
    EXPECT_EQ(overlaps, can.offload.overlap.value) << name;
    EXPECT_EQ(on_host, can.offload.parameters.value) << name;
  }
}

}  // namespace
}  // namespace plimsoll
