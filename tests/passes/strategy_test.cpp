// Strategies: each rule at its border, text forms both ways, derived quantities.
#include "passes/strategy/strategy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/file.h"
#include "passes/pipeline.h"
#include "tests/states.h"

namespace plimsoll {
namespace {

Job gpt() { return read_job(std::filesystem::path(PLIMSOLL_SOURCE_DIR) / "tests/gpt-nano.json"); }

struct Rule {
  const char* strategy;
  std::int64_t devices;
  const char* reason;  ///< part of it; empty = legal
};

TEST(Strategy, Rules) {
  // gpt-nano: 4 layers, hidden 64, 4 heads, ffn 256, vocabulary 256, global batch 16.
  const Rule cases[] = {
      {"mp=1", 1, ""},
      {"mp=4,pp=4", 16, ""},
      {"mp=4,pp=4", 8, "mp 4 x pp 4 x dp 1 x sharding_degree 1 is not the number of devices, 8"},
      {"mp=8", 8, "mp 8 does not divide the 4 heads"},
      {"pp=4", 4, ""},
      {"pp=5", 5, "pp 5 is more than the 4 layers"},
      {"pp=2,layer_split=3+1", 2, ""},
      {"pp=2,layer_split=3+2", 2, "layer_split does not sum to the 4 layers"},
      {"pp=2,layer_split=2+1+1", 2, "layer_split has 3 stages, pp is 2"},
      {"pp=2,virtual_stages=2", 2, ""},
      {"pp=2,virtual_stages=2,layer_split=1+1+1+1", 2, ""},
      {"pp=2,virtual_stages=2,layer_split=2+2", 2,
       "layer_split has 2 chunks, pp x virtual_stages is 4"},
      {"pp=2,virtual_stages=3", 2,
       "pp 2 x virtual_stages 3 is more than the 4 layers; "
       "embedding_as_layers=1 and loss_as_layers=1 count the model's ends as layers"},
      {"virtual_stages=2", 1, "virtual_stages above 1 need pp above 1"},
      {"pp=2,virtual_stages=2,schedule=gpipe", 2,
       "schedule gpipe has 1 virtual stage; there are 2"},
      {"pp=2,schedule=zb_v,virtual_stages=1", 2, "schedule zb_v has 2 virtual_stages; there are 1"},
      {"schedule=v_half", 1, "schedule v_half needs pp above 1"},
      {"pp=2,schedule=zb_v,layer_split=2+0+0+2", 2,
       "layer_split gives stage 1 no layer; only stages that have an end"},
      {"pp=2,virtual_stages=2,micro_batch=16", 2,
       "virtual_stages 2 run groups of pp 2 micro-batches; there are 1"},
      {"dp=16", 16, ""},
      {"dp=32", 32, "global batch 16 is not divisible by micro_batch 1 x batch width 32"},
      {"dp=2,micro_batch=8", 2, ""},
      {"dp=2,micro_batch=3", 2, "global batch 16 is not divisible by micro_batch 3"},
      {"dp=2,sharding_degree=2,micro_batch=4", 4, ""},
      {"dp=2,sharding_degree=2,micro_batch=8", 4, "not divisible"},
      {"sharding_degree=2,sharding_stage=1", 2, ""},
      {"sharding_degree=2,sharding_stage=0", 2, "sharding_stage 0 with sharding_degree 2"},
      {"sharding_degree=1,sharding_stage=1", 1, "sharding_stage 1 with sharding_degree 1"},
      {"sharding_degree=2,sharding_stage=2", 2, ""},
      {"sharding_degree=2,sharding_stage=3,gather=tensor,prefetch_depth=0", 2, ""},
      {"sharding_stage=3", 1, "sharding_stage 3 with sharding_degree 1"},
      {"sharding_degree=2,gather=module", 2, "gather is for sharding_stage 3"},
      {"prefetch_depth=2", 1, "prefetch_depth is for sharding_stage 3"},
      {"sharding_degree=2,sharding_stage=2,max_live_bytes=1MiB", 2, "the stage is 2"},
      {"sharding_degree=2,reuse_distance_bytes=1MiB", 2, "reuse_distance_bytes is for"},
      {"dp=2,persistence_threshold=100", 2, "persistence_threshold is for sharding_stage 3"},
      {"dp=2,keep_gathered=true", 2, "keep_gathered is for sharding_stage 3"},
      {"sharding_degree=2,param_bucket_bytes=8KiB", 2, "would need copies"},
      {"dp=2,grad_reduction=per_micro_batch", 2, ""},
      {"sharding_degree=2,grad_reduction=per_micro_batch", 2, "that is stage 2"},
      {"sharding_degree=2,sharding_stage=3,gather=use", 2, "another sharding_owner than elements"},
      {"sharding_degree=2,sharding_stage=3,gather=segment,sharding_owner=prefix", 2, ""},
      {"sharding_degree=2,sharding_stage=2,sharding_owner=sorted_greedy", 2, ""},
      {"sharding_owner=greedy", 1, "sharding_owner other than elements goes with"},
      {"gradient_merge=fused", 1, ""},
      {"pp=2,virtual_stages=2,gradient_merge=fused", 2, "its buffers hold one micro-batch"},
      {"schedule=zb_h1,gradient_merge=fused", 1, "its buffers hold one micro-batch"},
      {"schedule=zb_h1,gradient_merge=tensor", 1, ""},
      {"sharding_degree=2,sharding_stage=2,gradient_merge=fused", 2, "before it is merged"},
      {"dp=2,grad_reduction=per_micro_batch,gradient_merge=fused", 2, "before it is merged"},
      {"gradient_type=computed", 1, "a job in bf16 or fp16, not fp32"},
      {"grad_bucket_bytes=4096", 1, ""},
      {"grad_bucket_bytes=4095", 1, "grad_bucket_bytes is 4095; it must be at least 4096"},
      {"send_slots=1", 1, ""},
      {"mp=2,sequence_parallel=true", 2, ""},
      {"mp=2,sequence_parallel=true,schedule=zb_h1", 2, ""},
      {"mp=2,sequence_parallel=true,schedule=zb_h1,recompute=full", 2, ""},
      {"pp=2,sequence_parallel=true", 2, "sequence_parallel splits tokens over mp, which is 1"},
      {"mp=2,pp=2,split_boundary=true", 4, ""},
      {"pp=2,split_boundary=true", 2, "split_boundary splits what mp ranks send; mp is 1"},
      {"mp=2,split_boundary=true", 2, "split_boundary splits what stages send; pp is 1"},
      {"mp=2,pp=2,split_boundary=true,sequence_parallel=true", 4, "are split already"},
      {"recompute=full,recompute_layers=4", 1, ""},
      {"recompute=full,recompute_layers=5", 1, "recompute_layers is 5; the model has 4 layers"},
      {"recompute_layers=1", 1, "recompute is none"},
      {"recompute=selective,recompute_list=0+3", 1, ""},
      {"recompute=full,recompute_list=3+0", 1, "recompute_list is not in ascending order"},
      {"recompute=full,recompute_list=1+1", 1, "recompute_list is not in ascending order"},
      {"recompute=full,recompute_list=4", 1, "recompute_list names layer 4; layers are 0 to 3"},
      {"recompute=full,recompute_list=1,recompute_layers=1", 1, "both choose the layers"},
  };
  for (const Rule& c : cases) {
    const Verdict verdict = legal(gpt(), parse_strategy(c.strategy), c.devices);
    if (*c.reason == 0) {
      EXPECT_TRUE(verdict) << c.strategy << ": " << verdict.reason();
    } else {
      EXPECT_NE(verdict.reason().find(c.reason), std::string::npos)
          << c.strategy << ": " << verdict.reason();
    }
  }
}

TEST(Strategy, MixedParameterTypesStayWholeWhereTheyAreUsed) {
  Job job = gpt();
  job.precision = DType::bf16;
  job.fp32_parameters = {"norm"};
  EXPECT_TRUE(legal(job, parse_strategy("sharding_degree=2"), 2));
  EXPECT_NE(legal(job, parse_strategy("sharding_degree=2,sharding_stage=2"), 2)
                .reason()
                .find("it must be 0 or 1"),
            std::string::npos);
  job.precision = DType::f32;
  EXPECT_TRUE(legal(job, parse_strategy("sharding_degree=2,sharding_stage=2"), 2));
}

TEST(Strategy, GradientsInTheJobsTypeAreOfWhatKernelsGive) {
  Job job = gpt();
  job.precision = DType::bf16;
  const auto reason = [&](const std::string& fields) {
    return legal(job, parse_strategy("gradient_type=computed," + fields), 2).reason();
  };
  for (const char* fields :
       {"dp=2", "sharding_degree=2", "dp=2,gradient_merge=fused",
        "sharding_degree=2,sharding_stage=3", "dp=2,grad_reduction=per_micro_batch"})
    EXPECT_EQ(reason(fields), "") << fields;
  job.fp32_parameters = {"norm"};
  EXPECT_NE(reason("dp=2").find("gradient_merge must be tensor or fused"), std::string::npos);
  EXPECT_EQ(reason("dp=2,gradient_merge=tensor"), "");
}

TEST(Strategy, ChoicesThatChangeNothingInAFormOfGatherAreRefused) {
  const auto reason = [](const std::string& gather) {
    const std::string owned = "sharding_degree=2,sharding_stage=3,sharding_owner=prefix,";
    return legal(gpt(), parse_strategy(owned + gather), 2).reason();
  };
  EXPECT_EQ(reason("gather=segment,segment_broadcast_bytes=1,prefetch_depth=2,max_live_bytes=1MiB"),
            "");
  EXPECT_TRUE(states(reason("gather=layer,segment_broadcast_bytes=1"),
                     {"segment_broadcast_bytes", "gather", "segment"}));
  for (const std::string key : {"keep_gathered=true", "reuse_distance_bytes=1MiB"}) {
    EXPECT_EQ(reason("gather=tensor," + key), "");
    const std::string name = key.substr(0, key.find('='));
    EXPECT_TRUE(states(reason("gather=segment," + key), {name, "gather", "segment"}));
    EXPECT_TRUE(states(reason("gather=use," + key), {name, "gather", "use"}));
  }
  EXPECT_TRUE(states(reason("gather=use,prefetch_depth=0"), {"prefetch_depth", "gather", "use"}));
  EXPECT_TRUE(
      states(reason("gather=use,max_live_bytes=1MiB"), {"max_live_bytes", "gather", "use"}));
  EXPECT_EQ(reason("gather=use,persistence_threshold=100"), "");
}

TEST(Strategy, RulesOfAFramework) {
  const Strategy sharded = parse_strategy("sharding_degree=2"), plain = parse_strategy("dp=2");
  const Framework without = framework_by_name("megatron-lm-2021");
  EXPECT_TRUE(legal(without, plain));
  EXPECT_TRUE(states(legal(without, sharded).reason(),
                     {"sharding_degree is 2", "megatron-lm-2021", "model/distributed.py"}));
  EXPECT_TRUE(legal(framework_by_name("megatron-lm"), sharded));
  EXPECT_TRUE(legal(bundled_framework(), sharded));
  const Strategy third = parse_strategy("sharding_degree=2,sharding_stage=3");
  EXPECT_TRUE(legal(bundled_framework(), third));
  EXPECT_TRUE(states(legal(framework_by_name("megatron-lm"), third).reason(),
                     {"sharding_stage is 3", "megatron-lm", "optimizer/distrib_optimizer.py"}));
}

TEST(Strategy, TokensAreSplitWhereTheyDivideAndTheFrameworkCan) {
  Job job = gpt();
  job.sequence = 34;
  EXPECT_TRUE(legal(job, parse_strategy("mp=2,sequence_parallel=true"), 2));
  const Strategy split = parse_strategy("mp=4,sequence_parallel=true");
  EXPECT_EQ(legal(job, split, 4).reason(),
            "sequence_parallel: mp 4 does not divide the sequence of 34");
  for (const char* name : {"bundled", "megatron-lm", "megatron-lm-2022"}) {
    EXPECT_TRUE(legal(framework_by_name(name), split)) << name;
  }
  EXPECT_EQ(legal(framework_by_name("megatron-lm-2021"), split).reason(),
            "sequence_parallel; megatron-lm-2021 does not split tokens");
}

TEST(Strategy, RanksShareKeyAndValueHeadsEvenly) {
  Job job = gpt();
  job.family = Family::llama;
  job.heads = 12, job.kv_heads = 4, job.hidden = 96, job.ffn_hidden = 96;
  for (const char* mp : {"mp=2", "mp=4", "mp=12"}) {
    const Strategy strategy = parse_strategy(mp);
    EXPECT_TRUE(legal(job, strategy, strategy.mp)) << mp;
  }
  EXPECT_EQ(legal(job, parse_strategy("mp=6"), 6).reason(),
            "mp 6 neither divides the 4 kv_heads nor is a multiple of them");
}

TEST(Strategy, SelectiveRecomputeNeedsScoresToDrop) {
  const Strategy selective = parse_strategy("recompute=selective");
  EXPECT_TRUE(legal(bundled_framework(), selective));
  EXPECT_TRUE(legal(framework_by_name("megatron-lm-2022"), selective));
  EXPECT_EQ(
      legal(framework_by_name("megatron-lm"), selective).reason(),
      "recompute is selective; megatron-lm has flash attention, which keeps no scores to drop");
  EXPECT_EQ(legal(framework_by_name("megatron-lm-2021"), selective).reason(),
            "recompute is selective; megatron-lm-2021 recomputes whole layers only (Megatron-LM "
            "megatron/arguments.py: --activations-checkpoint-method uniform and block, of whole "
            "layers)");
}

TEST(Strategy, MemoryOutsideTheProgramCountsCommunicators) {
  Job job = gpt();
  Framework framework;
  framework.memory.process.context = Bytes(1);
  framework.memory.process.pair_communicator = Bytes(10);
  framework.memory.process.communicator = Bytes(1000);
  const auto bytes = [&](const char* strategy) {
    return memory_outside_program(job, parse_strategy(strategy), framework).count();
  };
  job.tied_embeddings = false;
  EXPECT_EQ(bytes("mp=1"), 1);
  EXPECT_EQ(bytes("mp=2"), 11);
  EXPECT_EQ(bytes("dp=2"), 11);
  EXPECT_EQ(bytes("sharding_degree=2"), 11);
  EXPECT_EQ(bytes("dp=2,sharding_degree=2"), 1021);  // shards, replicas, and the four together
  EXPECT_EQ(bytes("mp=2,sharding_degree=2"), 1021);  // the norm is over all four
  EXPECT_EQ(bytes("mp=2,pp=2"), 1 + 10 + 10 + 1000);
  EXPECT_EQ(bytes("pp=4"), 1001);
  job.tied_embeddings = true;
  EXPECT_EQ(bytes("pp=4"), 1011);
  EXPECT_EQ(bytes("pp=2"), 11);  // the ends are the pipeline
  EXPECT_EQ(memory_outside_program(job, parse_strategy("mp=2,pp=2"), bundled_framework()),
            Bytes(0));
}

/// The sets of ranks over which one rank of these Programs communicates; transfers use one of all
/// stages.
std::set<std::vector<std::int64_t>> rank_sets(const std::vector<Program>& programs,
                                              std::int64_t rank) {
  const Grid& grid = programs.front().grid;
  const std::int64_t stage = grid.coordinates(rank)[std::size_t(Axis::pp)];
  std::set<std::vector<std::int64_t>> sets;
  for (const Routine& routine : programs[std::size_t(stage)].routines) {
    for (const Op& op : routine.ops) {
      if (const auto* collective = std::get_if<CollectiveParams>(&op.params)) {
        sets.insert(members(grid, collective->group, rank));
      } else if (std::holds_alternative<TransferParams>(op.params)) {
        sets.insert(members(grid, Group{{Axis::pp}}, rank));
      }
    }
  }
  return sets;
}

TEST(Strategy, CommunicatorsAreThoseOfTheProgram) {
  Job job = gpt();
  Framework framework = framework_by_name("megatron-lm");
  framework.memory.process.context = Bytes(0);
  framework.memory.process.pair_communicator = framework.memory.process.communicator = Bytes(1);
  for (const char* text :
       {"mp=2", "pp=2", "pp=4", "dp=2", "dp=4", "sharding_degree=2", "mp=2,pp=2", "mp=2,dp=2",
        "pp=2,dp=2", "dp=2,sharding_degree=2", "mp=2,sharding_degree=4", "pp=2,sharding_degree=2",
        "mp=2,pp=4,sharding_degree=2", "mp=2,pp=2,dp=2,sharding_degree=2"}) {
    const Strategy strategy = parse_strategy(text);
    for (bool tied : {false, true}) {
      job.tied_embeddings = tied;
      ASSERT_TRUE(legal(job, strategy, grid_of(strategy).world_size())) << text;
      const std::vector<Program> programs = lower({job, strategy, framework});
      // The last stage has the most: it reduces the loss too.
      const std::int64_t last = grid_of(strategy).world_size() - 1;
      EXPECT_EQ(memory_outside_program(job, strategy, framework),
                Bytes(std::int64_t(rank_sets(programs, last).size())))
          << text;
    }
  }
}

TEST(Strategy, CommunicatorsOfSharedHeadsCount) {
  Job job = gpt();
  job.family = Family::llama;
  Framework framework = framework_by_name("megatron-lm");
  framework.memory.process.context = Bytes(0);
  framework.memory.process.pair_communicator = framework.memory.process.communicator = Bytes(1);
  for (const auto& [heads, sets] : {std::pair{4, 1}, {2, 2}, {1, 1}}) {
    job.kv_heads = heads;
    const Strategy strategy = parse_strategy("mp=4");
    EXPECT_EQ(memory_outside_program(job, strategy, framework), Bytes(sets)) << heads;
    const std::vector<Program> programs = lower({job, strategy, framework});
    EXPECT_EQ(std::int64_t(rank_sets(programs, 3).size()), sets) << heads;
  }
}

TEST(Strategy, RulesForFieldsThatTextRefuses) {
  const auto reason = [](auto change) {
    Strategy strategy;
    change(strategy);
    return legal(gpt(), strategy, 1).reason();
  };
  EXPECT_EQ(reason([](Strategy& s) { s.mp = 0; }), "mp is 0; it must be from 1 to 4194304");
  EXPECT_EQ(reason([](Strategy& s) { s.dp = -1; }), "dp is -1; it must be from 1 to 4194304");
  EXPECT_EQ(reason([](Strategy& s) { s.micro_batch = 0; }),
            "micro_batch is 0; it must be at least 1");
  EXPECT_EQ(reason([](Strategy& s) { s.pipeline.send_slots = 0; }),
            "send_slots is 0; it must be at least 1");
  EXPECT_EQ(reason([](Strategy& s) { s.sharding_stage = 4; }),
            "sharding_stage is 4; it must be from 0 to 3");
  EXPECT_EQ(reason([](Strategy& s) { s.gathers.prefetch_depth = -1; }),
            "prefetch_depth and persistence_threshold must not be negative");
  EXPECT_EQ(reason([](Strategy& s) { s.pipeline.layer_split = {-1}; }),
            "layer_split gives a chunk fewer layers than none");
}

TEST(Strategy, DegreesDoNotOverflow) {
  Strategy strategy;
  strategy.mp = strategy.pp = strategy.dp = 1 << 22;  // the product is 2^66
  EXPECT_FALSE(legal(gpt(), strategy, 4));
}

TEST(Strategy, SevenHeadsAndOddFfn) {
  Job job = gpt();
  job.heads = job.kv_heads = 7;
  job.hidden = 56;
  EXPECT_EQ(legal(job, parse_strategy("mp=2"), 2).reason(), "mp 2 does not divide the 7 heads");
  job = gpt();
  job.ffn_hidden = 250;
  EXPECT_EQ(legal(job, parse_strategy("mp=4"), 4).reason(), "mp 4 does not divide ffn_hidden 250");
  job = gpt();
  job.vocab = 257;  // padded
  EXPECT_TRUE(legal(job, parse_strategy("mp=2"), 2));
}

TEST(Strategy, DerivedQuantities) {
  const Job job = gpt();
  const Strategy strategy = parse_strategy("mp=2,pp=3,dp=2,sharding_degree=2,micro_batch=2");
  EXPECT_EQ(micro_batches(job, strategy), 2);
  EXPECT_EQ(layers_per_stage(job, strategy), (std::vector<std::int64_t>{2, 1, 1}));
  EXPECT_EQ(layers_per_stage(job, parse_strategy("pp=2,layer_split=1+3")),
            (std::vector<std::int64_t>{1, 3}));
  const Grid grid = grid_of(strategy);
  EXPECT_EQ(grid.world_size(), 24);
  EXPECT_EQ(grid[Axis::mp], 2);
  EXPECT_EQ(grid[Axis::cp], 1);
  EXPECT_EQ(grid[Axis::sharding], 2);
  EXPECT_EQ(grid[Axis::dp], 2);
  EXPECT_EQ(grid[Axis::pp], 3);
}

TEST(Strategy, EndsOfTheModelCountAsLayers) {
  const Job job = gpt();  // 4 layers
  const auto split = [&](const char* text) { return layers_per_part(job, parse_strategy(text)); };
  EXPECT_EQ(split("pp=3,embedding_as_layers=1,loss_as_layers=1"),
            (std::vector<std::int64_t>{1, 2, 1}));
  EXPECT_EQ(split("pp=6,embedding_as_layers=1,loss_as_layers=1"),
            (std::vector<std::int64_t>{0, 1, 1, 1, 1, 0}));
  EXPECT_EQ(split("pp=2,virtual_stages=3,embedding_as_layers=1,loss_as_layers=1"),
            (std::vector<std::int64_t>{0, 1, 1, 1, 1, 0}));
  const auto why = [&](const char* text, std::int64_t devices) {
    return legal(job, parse_strategy(text), devices).reason();
  };
  EXPECT_TRUE(legal(job, parse_strategy("pp=6,embedding_as_layers=1,loss_as_layers=1"), 6));
  EXPECT_EQ(why("pp=6,loss_as_layers=1", 6),
            "pp 6 x virtual_stages 1 is more than the 4 layers and the 1 that embedding and loss "
            "count as");
  EXPECT_EQ(why("pp=4,loss_as_layers=4", 4),
            "embedding_as_layers 0 or loss_as_layers 4 is more than a chunk's share");
  EXPECT_EQ(
      why("mp=2,loss_as_layers=1", 2),
      "embedding_as_layers and loss_as_layers say how layers are spread over stages; pp is 1");
  EXPECT_EQ(
      why("pp=2,layer_split=1+3,loss_as_layers=1", 2),
      "embedding_as_layers and loss_as_layers spread layers evenly; layer_split says how many "
      "each chunk has");
}

TEST(Strategy, FieldsFromText) {
  Strategy strategy;
  set_field(strategy, "grad_bucket_bytes", "4 MiB");
  EXPECT_EQ(strategy.gradients.bucket_bytes, Bytes(4 << 20));
  set_field(strategy, "grad_bucket_bytes", "8192");
  EXPECT_EQ(strategy.gradients.bucket_bytes, Bytes(8192));
  set_field(strategy, "layer_split", "3+3+2");
  EXPECT_EQ(strategy.pipeline.layer_split, (std::vector<std::int64_t>{3, 3, 2}));
  set_field(strategy, "layer_split", "even");
  EXPECT_TRUE(strategy.pipeline.layer_split.empty());
  set_field(strategy, "recompute", "full");
  EXPECT_EQ(strategy.recompute, Recompute::full);
}

TEST(Strategy, RefusedListsShowOneThatIsAllowed) {
  for (const auto& [key, example] :
       {std::pair{"layer_split", "3+3+2"}, {"recompute_list", "0+3"}}) {
    Strategy strategy;
    set_field(strategy, key, example);
    try {
      set_field(strategy, key, "1,2");
      FAIL() << key;
    } catch (const UsageError& error) {
      const std::string allowed = std::string("such as ") + example + " is required";
      EXPECT_TRUE(std::string(error.what()).ends_with(allowed)) << error.what();
    }
  }
}

TEST(Strategy, BadTextIsAUsageError) {
  for (const char* text : {"mp=0",
                           "mp=-1",
                           "mp=2.5",
                           "mp=",
                           "mp=two",
                           "mp=2x",
                           "mp=99999999999999999999",
                           "mpp=2",
                           "mp=2,mp=2",
                           "mp=2,,pp=2",
                           "mp=2,",
                           "=2",
                           "recompute=some",
                           "schedule=pipedream",
                           "grad_bucket_bytes=-1",
                           "grad_bucket_bytes=4 mebi",
                           "layer_split=3+",
                           "layer_split=-1+3",
                           "layer_split=",
                           "send_slots=0",
                           "sharding_degree=2,sharding_stage=4",
                           ""}) {
    EXPECT_THROW(parse_strategy(text), UsageError) << text;
  }
  try {
    parse_strategy("micro_bach=2");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_TRUE(states(error.what(), {"\"micro_bach\"", "\"micro_batch\""}));
  }
}

TEST(Strategy, StageFollowsDegreeUnlessSaid) {
  EXPECT_EQ(parse_strategy("sharding_degree=2").sharding_stage, 1);
  EXPECT_EQ(parse_strategy("sharding_degree=1").sharding_stage, 0);
  EXPECT_EQ(strategy_from_json_text(R"({"sharding_degree": 2})", "f").sharding_stage, 1);
  EXPECT_EQ(
      strategy_from_json_text(R"({"sharding_degree": 2, "sharding_stage": 0})", "f").sharding_stage,
      0);
}

TEST(Strategy, JsonRoundTripsAndRefuses) {
  Strategy strategy = parse_strategy(
      "mp=2,pp=3,dp=4,sharding_degree=5,micro_batch=6,recompute=full,grad_bucket_bytes=12345,"
      "send_slots=3,layer_split=4+5+6");
  EXPECT_EQ(strategy_from_json_text(strategy_text(strategy), "f"), strategy);
  EXPECT_EQ(strategy_from_json_text(strategy_text(Strategy()), "f"), Strategy());
  EXPECT_EQ(strategy_from_json_text("{}", "f"), Strategy());
  for (const char* text : {R"({"mp": 0})", R"({"mp": 2.0})", R"({"mp": "2"})", R"({"mpp": 2})",
                           "[]", R"({"grad_bucket_bytes": "4 MiB"})", R"({"layer_split": [1, -1]})",
                           R"({"layer_split": "1+1"})", R"({"recompute": "ful"})"}) {
    EXPECT_THROW(strategy_from_json_text(text, "f"), InputError) << text;
  }
}

TEST(Strategy, SummaryReadsBack) {
  EXPECT_TRUE(states(strategy_summary(Strategy()), {"mp=1", "micro_batch=1", "layer_split=even"}));
  const Strategy strategy = parse_strategy("pp=2,layer_split=3+1,grad_bucket_bytes=5000");
  std::string pairs = strategy_summary(strategy);
  std::replace(pairs.begin(), pairs.end(), ' ', ',');
  EXPECT_EQ(parse_strategy(pairs), strategy);
}

TEST(Strategy, FilesAreStrategiesToo) {
  const auto path = std::filesystem::temp_directory_path() / "plimsoll-strategy-test,mp=2.json";
  write_file_atomically(path, R"({"pp": 2})");
  EXPECT_EQ(parse_strategy(path.string()).pp, 2);
  std::filesystem::remove(path);
  EXPECT_THROW(parse_strategy("no-such-strategy.json"), InputError);
}

TEST(Strategy, ReadsAndPrintsRunsOfALayerSplit) {
  const Strategy strategy = parse_strategy("layer_split=1+62x2+1+3+3");
  ASSERT_EQ(strategy.pipeline.layer_split.size(), 66u);
  EXPECT_EQ(strategy.pipeline.layer_split[62], 2);
  EXPECT_EQ(field_text(strategy, "layer_split"), "1+62x2+1+3+3");
  EXPECT_EQ(field_text(parse_strategy("layer_split=3+3+3"), "layer_split"), "3x3");
  for (const char* wrong : {"x2", "2x", "0x2", "-1x2", "9999999999x1", "2x3x4", "4194304x1+1"}) {
    EXPECT_THROW(parse_strategy(std::string("layer_split=") + wrong), UsageError) << wrong;
  }
}

}  // namespace
}  // namespace plimsoll
