// Tried values: their space is that of each value, and branch and bound finds its best plan.
#include "planner/space/tried.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "planner/cli/flags.h"
#include "planner/explore/explore.h"
#include "planner/explore/family_bounds.h"
#include "planner/search/search.h"
#include "tests/planner/explore_all.h"
#include "tests/planner/random_problems.h"
#include "tests/predict/fixtures.h"

namespace plimsoll {
namespace {

std::string refusal(const HeldOptions& options) {
  try {
    parse_held(options);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

HeldOptions tries(const std::vector<std::string>& tried) { return {{}, {}, {}, {}, tried}; }

TEST(Tried, ValuesThatCannotBeTriedAreRefusedByName) {
  EXPECT_EQ(refusal(tries({"fp9=delayed"})),
            "--try fp9=delayed: unknown strategy key \"fp9\"; did you mean \"fp8\"?");
  EXPECT_EQ(
      refusal(tries({"mp=2,4"})),
      "--try mp: every search varies this key; --fix, --max, --min and --exclude leave values "
      "out");
  EXPECT_EQ(refusal(tries({"layer_split=even"})),
            "--try layer_split: it is chosen by stage, after the search; --fix sets it");
  EXPECT_EQ(refusal(tries({"fp8=none"})), "--try fp8=none: every search takes this value");
  EXPECT_EQ(refusal(tries({"schedule=zb_h1"})),
            "--try schedule=zb_h1: every search takes this value");
  EXPECT_NE(refusal(tries({"fp8=delayed,dalayed"})).find("--try fp8=delayed,dalayed: fp8=dalayed"),
            std::string::npos);
  EXPECT_NE(refusal(tries({"send_slots="})), "");
  EXPECT_EQ(refusal(tries({"fp8"})), "--try fp8: expected KEY=VALUE");
  EXPECT_EQ(refusal(tries({"fp8=delayed", "fp8=current"})), "--try fp8 is given twice");
  EXPECT_EQ(refusal({{"fp8=none"}, {}, {}, {}, {"fp8=current"}}),
            "--fix fp8 and --try fp8=current exclude each other");
  EXPECT_EQ(refusal({{}, {}, {}, {"schedule=zb_h2"}, {"schedule=zb_h2"}}),
            "--try schedule=zb_h2 and --exclude schedule=zb_h2 exclude each other");
  EXPECT_EQ(refusal(tries({"send_slots=1,3,4,5,6,7,8,9,10", "expert_rows_percent=100,110,120,130",
                           "moment_type=bf16,f16,fp8", "fp8=delayed"})),
            "--try: more than 256 combinations of values");
  EXPECT_EQ(refusal({{"pp=2"}, {"mp=2"}, {}, {"schedule=1f1b"}, {"schedule=zb_h2", "fp8=delayed"}}),
            "");
}

TEST(Tried, UsualAndRepeatedValuesAreLeftOut) {
  const TriedKey tried = make_tried("fp8", "delayed,none,current,delayed");
  EXPECT_EQ(tried.values, (std::vector<std::string>{"delayed", "current"}));
  EXPECT_EQ(tried_text(tried), "--try fp8=delayed,current");
  const Tried both = {tried, make_tried("send_slots", "3")};
  const std::vector<Fixed> all = combinations({{"mp", "2"}}, both);
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(all[0], (Fixed{{"mp", "2"}}));
  EXPECT_EQ(all[5], (Fixed{{"mp", "2"}, {"fp8", "current"}, {"send_slots", "3"}}));
}

TEST(Tried, KeysThatSearchesVaryAreNoPartOfWhatIsBesideASearch) {
  // Other values than the usual ones, by key.
  const auto other = [](std::string_view key) -> std::string {
    const std::string usual = field_text(Strategy(), key);
    if (usual == "true" || usual == "false") return usual == "true" ? "false" : "true";
    if (key == "sharding_stage") return "2";
    for (const char* value : {"7",
                              "150",
                              "1+2",
                              "8 MiB",
                              "full",
                              "gpipe",
                              "all_gather",
                              "delayed",
                              "bf16",
                              "f16",
                              "computed",
                              "held",
                              "greedy",
                              "none",
                              "after_update",
                              "coalesced",
                              "norms",
                              "per_micro_batch",
                              "tensor",
                              "mp-cp-pp-dp-sharding"}) {
      Strategy strategy;
      try {
        set_field(strategy, key, value);
      } catch (const UsageError&) {
        continue;
      }
      if (field_text(strategy, key) != usual) return value;
    }
    return "";
  };
  const std::vector<std::string_view> beside = not_searched();
  for (const std::string_view key : strategy_keys()) {
    const std::string value = other(key);
    ASSERT_NE(value, "") << key;
    Strategy strategy;
    set_field(strategy, key, value);
    const bool stays = std::ranges::find(beside, key) != beside.end();
    EXPECT_EQ(beside_search(strategy) == strategy, stays) << key;
    EXPECT_EQ(beside_search(strategy) == Strategy(), !stays) << key;
  }
}

/// A job whose layers can be in 8 bits, and whose experts and pipelines have few strategies.
Job small_job(bool experts) {
  Job job = experts ? read_job(PLIMSOLL_SOURCE_DIR "/tests/expert-nano.json") : nano_job();
  job.precision = DType::bf16;
  job.hidden = 64;
  job.heads = job.kv_heads = 4;
  job.layers = 2;
  job.sequence = 32;
  job.global_batch = 2;
  if (!experts) return job;
  job.ffn_hidden = 128;
  job.experts->ffn_hidden = 32;
  job.experts->shared_ffn_hidden = 32;
  return job;
}

/// GPUs of megatron-lm. Steps are bound by their bytes and by the network.
Target target_of(const Job& job, std::int64_t devices, Bytes memory) {
  Cluster cluster = small_cluster();
  cluster.device.kind = DeviceKind::gpu;
  cluster.device.memory = memory;
  cluster.device.peak_bf16 = FlopsPerSecond(2e11);
  cluster.device.peak_fp8 = FlopsPerSecond(4e11);
  cluster.levels = {{"wires", 2, BytesPerSecond(5e9), Seconds(1e-6)},
                    {"network", 0, BytesPerSecond(1e9), Seconds(1e-5)}};
  cluster.devices_per_node = 2;
  cluster.nodes = 2;
  Framework framework = framework_by_name("megatron-lm");
  framework.host.dispatch.op = Seconds(8e-6);  // hosts do not bind them
  framework.can.offload.activations = bundled_framework().can.offload.activations;
  framework.memory.process.workspace = framework.memory.process.context = Bytes();
  framework.memory.process.communicator = framework.memory.process.pair_communicator = Bytes();
  return {job, CostModel(cluster, std::nullopt, framework), devices};
}

TEST(Tried, TheSpaceIsThatOfEachCombinationWhereValuesHaveAnEffect) {
  const Target target = target_of(small_job(true), 4, Bytes(std::int64_t{1} << 30));
  SearchRequest request{target};
  request.constraints.tried = {make_tried("send_slots", "1,3"),
                               make_tried("expert_rows_percent", "100")};
  std::vector<std::string> expected, found;
  for (const char* slots : {"2", "1", "3"}) {
    for (const char* rows : {"0", "100"}) {
      const Fixed fixed = {{"send_slots", slots}, {"expert_rows_percent", rows}};
      SearchRequest one{target, fixed};
      for (const Strategy& s : enumerate(one).legal) {
        const bool effect =
            (s.pp > 1 || s.pipeline.send_slots == 2) && (s.ep > 1 || s.experts.rows_percent == 0);
        if (effect) expected.push_back(strategy_summary(s));
      }
    }
  }
  const Space space = enumerate(request);
  std::int64_t rejected = 0;
  for (const Pruned& pruned : space.rejected) rejected += pruned.count;
  EXPECT_EQ(std::int64_t(space.legal.size()) + rejected, space.enumerated);
  for (const Strategy& s : space.legal) found.push_back(strategy_summary(s));
  EXPECT_EQ(found, expected);
  EXPECT_EQ(std::set(found.begin(), found.end()).size(), found.size());
}

TEST(Tried, ValuesThatAreNotLegalAreRejectedByTheirRule) {
  const Job job = nano_job();  // in fp32
  const Space space = enumerate(job, framework_by_name("megatron-lm"), 2, {}, {}, {},
                                {make_tried("fp8", "delayed"), make_tried("moment_type", "fp8")});
  EXPECT_FALSE(space.legal.empty());
  for (const Strategy& s : space.legal) EXPECT_EQ(s.precision.fp8, Fp8::none);
  EXPECT_TRUE(std::ranges::any_of(space.rejected, [](const Pruned& pruned) {
    return pruned.reason.find("fp8") != std::string::npos;
  }));
}

TEST(Tried, SchedulesBesideThoseOfEverySearch) {
  const Job job = nano_job();
  std::set<std::string> schedules;
  for (const Strategy& s :
       enumerate(job, bundled_framework(), 4, {}, {}, {}, {make_tried("schedule", "zb_h2,zb_v")})
           .legal) {
    schedules.insert(field_text(s, "schedule"));
    EXPECT_TRUE(s.pp > 1 || s.schedule == Schedule::one_f_one_b);
  }
  EXPECT_EQ(schedules, (std::set<std::string>{"1f1b", "zb_h1", "zb_h2", "zb_v"}));
}

/// The plan's text without its search, or that there is none.
std::string outcome(SearchRequest request, Explore& explore) {
  request.tolerance = 0;
  try {
    Plan plan = search(request, explore);
    EXPECT_TRUE(plan.search.proven);
    plan.search = {};
    return plan_text(plan);
  } catch (const InfeasibleError&) {
    return "no plan";
  }
}

Tried random_tried(std::mt19937_64& random, bool experts) {
  const std::pair<const char*, const char*> keys[] = {{"fp8", "delayed,current"},
                                                      {"moment_type", "bf16,fp8"},
                                                      {"send_slots", "1"},
                                                      {"main_parameter_type", "remainder,f16"},
                                                      {"gradient_type", "computed"},
                                                      {"overlap_grad_reduce", "false"},
                                                      {"overlap_param_gather", "false"},
                                                      {"main_gradient_type", "computed"},
                                                      {"offload_optimizer_percent", "50,100"},
                                                      {"offload_activations_percent", "100"},
                                                      {"expert_rows_percent", "100,150"},
                                                      {"fp8_parameters", "true"}};
  Tried tried;
  if (experts) tried.push_back(make_tried("expert_rows_percent", "100,150"));
  while (tried.size() < 2) {
    const auto& [key, values] = keys[random() % std::size(keys)];
    if (!is_tried(tried, key)) tried.push_back(make_tried(key, values));
  }
  return tried;
}

TEST(Tried, BranchAndBoundEqualsBruteForce) {
  std::mt19937_64 random(31);
  std::int64_t planned = 0;
  std::set<std::string> chosen;
  const int problems = problems_to_draw(7);
  for (int i = 0; i < problems; ++i) {
    const bool experts = i % 2 == 0;
    const Job job = small_job(experts);
    const std::int64_t devices = i == 1 ? 4 : 2;
    Target target = target_of(job, devices, Bytes(std::int64_t{1} << 30));
    SearchRequest request{target};
    request.constraints.tried = random_tried(random, experts);
    if (i == 0)
      request.constraints.tried = {make_tried("fp8", "delayed,current"),
                                   make_tried("send_slots", "1"),
                                   make_tried("expert_rows_percent", "100")};
    if (i % 3 != 0) {  // memory decides
      const Space space = enumerate(request);
      const Strategy strategy = space.legal[random() % space.legal.size()];
      const Footprint footprint = lay_out(target, strategy, Proof::structure);
      const Bytes segments(std::int64_t{4} << 20);  // that the allocator may not fill
      const Bytes peak = largest(footprint.stages, &StagePrediction::peak);
      request.target = target_of(job, devices, peak + segments + outside_program(target, strategy));
    }
    request.inputs.cluster_digest = std::string(64, '0');
    std::string tried;
    for (const TriedKey& one : request.constraints.tried) tried += tried_text(one) + " ";
    const std::string expected = outcome(request, explore_all);
    ASSERT_EQ(outcome(request, branch_and_bound), expected) << i << ": " << tried;
    if (expected[0] != '{') continue;
    ++planned;
    const Strategy best = parse_plan(expected, "FILE").strategy;
    for (const TriedKey& one : request.constraints.tried) {
      if (field_text(best, one.key) != field_text(Strategy(), one.key)) chosen.insert(one.key);
    }
  }
  EXPECT_GT(planned, problems / 2);
  EXPECT_GE(chosen.size(), std::size_t(problems / 3));
  fmt::print("{} planned; tried values of {} keys were chosen\n", planned, chosen.size());
}

/// Bounds of a family do not depend on families that were bounded before it.
TEST(Tried, BoundsAreThoseOfASearchWithTheValueAlone) {
  for (const bool experts : {false, true}) {
    Job job = small_job(experts);  // bounds of bytes are rounded down by more than it has
    job.hidden = job.ffn_hidden = 2048;
    if (experts) job.experts->ffn_hidden = job.experts->shared_ffn_hidden = 1024;
    const Target target = target_of(job, 4, Bytes(std::int64_t{80} << 30));
    SearchRequest request{target};
    request.constraints.tried = {make_tried("moment_type", "fp8"),
                                 make_tried("fp8", "current"),
                                 make_tried("main_parameter_type", "remainder"),
                                 make_tried("offload_optimizer_percent", "30"),
                                 make_tried("offload_activations_percent", "60"),
                                 make_tried("expert_rows_percent", "100"),
                                 make_tried("gradient_type", "computed")};
    const Space space = enumerate(request);
    const Bounds shared(target);
    const FamilyBounds families(target, shared);
    const Bytes room = largest_memory(target);
    std::mt19937_64 random(5);
    std::vector<std::size_t> drawn;
    for (int i = 0; i < problems_to_draw(30); ++i)
      drawn.push_back(random() % space.legal.families().size());
    for (const std::size_t f : drawn) families.of(space.legal.families()[f], room);
    for (std::size_t i = 0; i < drawn.size(); i += 3) {
      const StrategyFamily& family = space.legal.families()[drawn[i]];
      const Bounds alone(target);
      const FamilySummary mine = summary_of(FamilyBounds(target, alone).of(family, room)),
                          theirs = summary_of(families.of(family, room));
      EXPECT_EQ(mine.step, theirs.step) << strategy_summary(family.base);
      EXPECT_EQ(mine.peak, theirs.peak) << strategy_summary(family.base);
      EXPECT_EQ(alone.memory(family.base).reserved, shared.memory(family.base).reserved);
      EXPECT_EQ(alone.bottleneck(family.base), shared.bottleneck(family.base));
      EXPECT_EQ(alone.actions(family.base), shared.actions(family.base));
    }
  }
}

TEST(Tried, PlansThatDifferInATriedKeyAreListedBesideEachOther) {
  const Strategy usual;
  Strategy narrow = usual;
  narrow.precision.moments = MomentType::bf16;
  EXPECT_FALSE(same_but_switches(usual, narrow));
  EXPECT_FALSE(same_but_details(usual, narrow));
  Strategy switched = usual;
  switched.gradients.bucket_bytes = Bytes(1 << 20);
  EXPECT_TRUE(same_but_switches(usual, switched));
}

TEST(Tried, APlanFileHasTheConstraintsOfItsSearch) {
  const Constraints held = parse_held({{"cp=1", "DP=4"},
                                       {"mp=2"},
                                       {"micro_batch=2"},
                                       {"pp=2", "mp=4", "pp=4"},
                                       {"fp8=delayed,current", "send_slots=1"}});
  const Json json = constraints_json(held);
  EXPECT_EQ(json["try"]["fp8"], Json({"delayed", "current"}));
  EXPECT_EQ(json["exclude"]["pp"], Json({"2", "4"}));
  EXPECT_EQ(constraints_from(JsonObject(json, "a file")), held);
  Constraints freed = held;
  for (const char* key : {"pp", "fp8", "cp", "DP"}) free_key(freed, key);
  EXPECT_EQ(freed, parse_held({{}, {"mp=2"}, {"micro_batch=2"}, {"mp=4"}, {"send_slots=1"}}));
  for (const char* wrong :
       {R"({"fix": {"mq": "2"}})", R"({"max": {"mp": "x"}})", R"({"try": {"fp8": ["dalayed"]}})",
        R"({"tries": {}})", R"({"max": {"schedule": "zb_h1"}})", R"({"exclude": {"DP": ["4"]}})",
        R"({"try": {"fp8": []}})"})
    EXPECT_THROW(constraints_from(JsonObject(Json::parse(wrong), "a file")), InputError) << wrong;
}

}  // namespace
}  // namespace plimsoll
