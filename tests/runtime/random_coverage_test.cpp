// The draws that the test suite runs leave out no value of any switch, where it changes something.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "tests/passes/random_strategies.h"
#include "tests/runtime/random_clusters.h"

namespace plimsoll {
namespace {

/// The words of a field that has some, from what it says to a word that is none of them.
std::set<std::string> words_of(const std::string& key) {
  const std::string begin = "one of ", end = " is required";
  std::set<std::string> words;
  Strategy strategy;
  try {
    set_field(strategy, key, "?");
  } catch (const UsageError& error) {
    const std::string text = error.what();
    std::size_t at = text.find(begin), last = text.rfind(end);
    if (at == std::string::npos || last == std::string::npos) return words;
    for (at += begin.size(); at < last;) {
      const std::size_t comma = std::min(text.find(", ", at), last);
      words.insert(text.substr(at, comma - at));
      at = comma + 2;
    }
  }
  return words;
}

/// Where a switch changes nothing, its value does not count as drawn.
bool matters(const std::string& key, const Draw& draw) {
  const Strategy& s = draw.strategy;
  static const std::set<std::string> of_pipeline = {
      "schedule", "send_slots", "layer_split", "virtual_stages", "send_lifetime", "split_boundary"};
  static const std::set<std::string> of_sharding = {"sharding_owner", "collective_fusion",
                                                    "param_bucket_bytes"};
  static const std::set<std::string> of_gathers = {
      "gather",        "prefetch_depth",       "max_live_bytes",
      "keep_gathered", "reuse_distance_bytes", "persistence_threshold"};
  static const std::set<std::string> of_recompute = {"recompute_layers", "recompute_list"};
  static const std::set<std::string> of_data = {"grad_bucket_bytes", "grad_reduction",
                                                "overlap_grad_reduce"};
  if (of_pipeline.contains(key)) return s.pp > 1;
  if (of_sharding.contains(key)) return s.sharding_degree > 1;
  if (of_gathers.contains(key)) return s.sharding_stage == 3;
  if (key == "segment_broadcast_bytes") return s.gathers.unit == ParameterGather::segment;
  if (of_recompute.contains(key)) return s.recompute != Recompute::none;
  if (of_data.contains(key)) return s.dp * s.sharding_degree > 1;
  if (key == "ep" || key == "etp" || key.starts_with("expert_") ||
      key == "overlap_shared_experts" || key == "overlap_expert_exchange")
    return draw.job.experts.has_value();
  if (key == "sequence_parallel") return s.mp > 1;
  if (key == "overlap_param_gather") return s.sharding_degree > 1;
  if (key == "cast_placement") return draw.job.precision != DType::f32;
  return true;
}

/// Values of a switch as its file says them.
using DrawnValues = std::map<std::string, std::set<std::string>>;

DrawnValues drawn_values() {
  DrawnValues values;
  for (std::uint64_t seed = 1; seed <= kFixedDraws; ++seed) {
    const Draw drawn = draw(seed);
    EXPECT_EQ(grid_of(drawn.strategy).world_size(), drawn.devices);
    const Json strategy = parse_json(strategy_text(drawn.strategy), "strategy");
    for (const auto& [key, value] : strategy.items()) {
      if (matters(key, drawn)) values[key].insert(value.dump());
    }
  }
  return values;
}

/// The bundled runtime refuses these ops (docs/adr/0020-context-parallelism.md), so no draw can run
/// them.
const std::set<std::string> kSimulatedOnly = {"fp8", "fp8_parameters"};
const std::map<std::string, std::set<std::string>> kSimulatedWords = {
    {"recompute", {"per_op"}},
    {"main_parameter_type", {"f16", "remainder"}},
    {"moment_type", {"f16", "fp8"}}};

std::string quoted(const std::string& word) { return '"' + word + '"'; }

TEST(RandomCoverage, EveryValueOfEverySwitchIsDrawn) {
  const DrawnValues drawn = drawn_values();
  const Json usual = parse_json(strategy_text(Strategy{}), "strategy");
  for (const auto& [key, value] : usual.items()) {
    SCOPED_TRACE(key);
    ASSERT_TRUE(drawn.contains(key));
    const std::set<std::string>& found = drawn.at(key);
    if (kSimulatedOnly.contains(key)) {
      EXPECT_EQ(found, std::set<std::string>{value.dump()});
      continue;
    }
    if (value.is_boolean()) {
      EXPECT_EQ(found, (std::set<std::string>{"false", "true"}));
    } else if (value.is_string()) {
      const std::set<std::string> words = words_of(key);
      EXPECT_GE(words.size(), 2u);
      const auto simulated = kSimulatedWords.find(key);
      for (const std::string& word : words) {
        const bool runs = simulated == kSimulatedWords.end() || !simulated->second.contains(word);
        EXPECT_EQ(found.contains(quoted(word)), runs) << word;
      }
    } else {  // a number, or a list of some
      EXPECT_GE(found.size(), 3u);
    }
  }
}

TEST(RandomCoverage, DegreesAndLayoutsAreOfManyKinds) {
  const DrawnValues drawn = drawn_values();
  for (const char* key : {"mp", "pp", "dp", "sharding_degree"}) {
    EXPECT_GE(drawn.at(key).size(), 4u) << key;
  }
  EXPECT_GE(drawn.at("cp").size(), 3u);
  EXPECT_EQ(drawn.at("sharding_stage"), (std::set<std::string>{"0", "1", "2", "3"}));
  EXPECT_GE(drawn.at("grad_bucket_bytes").size(), 8u);
  EXPECT_GE(drawn.at("layer_split").size(), 8u);
  EXPECT_GE(drawn.at("recompute_list").size(), 8u);
  int interleaved = 0;
  for (std::uint64_t seed = 1; seed <= kFixedDraws; ++seed) {
    interleaved += draw(seed).strategy.pipeline.virtual_stages > 1 ? 1 : 0;
  }
  EXPECT_GE(interleaved, int(kFixedDraws) / 20);
}

TEST(RandomCoverage, EveryKindOfJobIsDrawn) {
  std::set<Family> families;
  std::set<DType> precisions;
  std::set<OptimizerKind> optimizers;
  std::map<std::string, std::set<bool>> flags;
  for (std::uint64_t seed = 1; seed <= kFixedDraws; ++seed) {
    const Draw drawn = draw(seed);
    const Job& job = drawn.job;
    families.insert(job.family);
    precisions.insert(job.precision);
    optimizers.insert(job.optimizer.kind);
    flags["tied embeddings"].insert(job.tied_embeddings);
    flags["dropout"].insert(job.dropout > 0);
    flags["clipping"].insert(job.clip_norm > 0);
    flags["parameter groups"].insert(!job.optimizer.groups.empty());
    flags["loss scaling without fp16"].insert(job.precision != DType::f16 && job.loss_scale);
    flags["pooler"].insert(job.pooler);
    flags["token types"].insert(job.token_types > 0);
    flags["grouped queries"].insert(job.kv_heads < job.heads);
    flags["queries that grow"].insert(job.rotary.growth.span > 0);
    flags["a loss over layers"].insert(job.experts && job.experts->balance_layers);
    flags["more mp than key and value heads"].insert(job.kv_heads < drawn.strategy.mp);
    flags["padded vocabulary"].insert(job.vocab % drawn.strategy.mp != 0);
  }
  EXPECT_EQ(families.size(), 4u);
  EXPECT_EQ(precisions, (std::set<DType>{DType::f32, DType::bf16, DType::f16}));
  EXPECT_EQ(optimizers.size(), 5u);
  for (const auto& [name, found] : flags) EXPECT_EQ(found.size(), 2u) << name;
}

TEST(RandomCoverage, EveryKindOfAttentionIsSharedInAllForms) {
  std::map<std::string, std::set<ContextExchange>> forms;
  for (std::uint64_t seed = 1; seed <= kFixedDraws; ++seed) {
    const Draw drawn = draw(seed);
    if (drawn.strategy.cp == 1) continue;
    const ContextExchange exchange = drawn.strategy.tokens.context_exchange;
    forms["all"].insert(exchange);
    if (drawn.job.latent) forms["latent attention"].insert(exchange);
    if (drawn.job.alibi) forms["ALiBi"].insert(exchange);
  }
  EXPECT_EQ(forms.size(), 3u);
  for (const auto& [name, found] : forms) EXPECT_EQ(found.size(), 3u) << name;
}

TEST(RandomCoverage, EveryKindOfClusterIsDrawn) {
  std::map<std::string, std::set<bool>> flags;
  std::set<std::int64_t> devices_per_node;
  int mixed = 0;
  for (std::uint64_t seed = 4; seed < 4 * (kFixedDraws + 1); ++seed) {
    const Cluster cluster = draw_cluster(seed);
    const std::int64_t devices = draw(seed / 4).devices;
    mixed += devices_by_kind(cluster, devices).size() > 1 ? 1 : 0;
    devices_per_node.insert(cluster.devices_per_node);
    flags["GPUs"].insert(cluster.device.kind == DeviceKind::gpu);
    flags["reduced in the switch"].insert(cluster.levels.front().reduces_in_switch);
    flags["wired peers"].insert(cluster.levels.front().peer_bandwidth.has_value());
    for (std::size_t l = 1; l < cluster.levels.size(); ++l) {
      flags["oversubscribed"].insert(cluster.levels[l].bandwidth < cluster.levels[l - 1].bandwidth);
    }
  }
  EXPECT_EQ(devices_per_node.size(), 8u);
  for (const auto& [name, found] : flags) EXPECT_EQ(found.size(), 2u) << name;
  EXPECT_GE(mixed, int(kFixedDraws) / 2) << "of " << 4 * kFixedDraws;
}

}  // namespace
}  // namespace plimsoll
