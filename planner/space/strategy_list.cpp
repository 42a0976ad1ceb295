// A list of strategies, each made when it is asked for, and what a search varies of them.
#include <algorithm>
#include <array>

#include "passes/strategy/strategy_fields.h"
#include "planner/space/space.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kGradientBytes = 4;  // f32
constexpr Bytes kLeastTried{std::int64_t{1} << 20}, kUsualBucket{std::int64_t{64} << 20},
    kMostBucket{std::int64_t{1} << 30};

/// The fields that searches set.
constexpr std::string_view kSearched[] = {
    // degrees
    "mp", "pp", "dp", "cp", "ep", "etp", "expert_dispatch", "overlap_shared_experts",
    "sharding_degree", "sharding_stage",
    // others
    "micro_batch", "schedule", "recompute", "grad_bucket_bytes", "virtual_stages",
    "embedding_as_layers", "loss_as_layers", "recompute_layers", "recompute_modules",
    "sequence_parallel", "split_boundary", "context_exchange", "rank_order", "prefetch_depth",
    "keep_gathered", "layer_split", "recompute_list"};
/// Searched fields that are chosen by stage (layer_choices.h).
constexpr std::array<std::string_view, 2> kByStage = {"layer_split", "recompute_list"};

}  // namespace

std::vector<Bytes> grad_bucket_ladder(const Job& job) {
  const std::int64_t parameters = parameter_count(build_forward(job, 1));
  std::vector<Bytes> ladder;
  for (Bytes step = kLeastTried; step <= kMostBucket; step = step * 4) {
    if (step > kUsualBucket && ladder.back().count() / kGradientBytes >= parameters) break;
    ladder.push_back(step);
  }
  return ladder;
}

void apply(const Arrangement& arrangement, Strategy& strategy) {
  strategy.schedule = arrangement.schedule;
  strategy.pipeline.virtual_stages = arrangement.virtual_stages;
  strategy.pipeline.embedding_as_layers = arrangement.embedding_as_layers;
  strategy.pipeline.loss_as_layers = arrangement.loss_as_layers;
  strategy.recomputed.layers = arrangement.recompute_layers;
  strategy.pipeline.layer_split = arrangement.layer_split;
}

void StrategyList::add(StrategyFamily family) {
  family.first = size_;
  size_ += family.count();
  families_.push_back(std::move(family));
}

Strategy StrategyList::operator[](std::size_t index) const {
  const auto after = std::upper_bound(
      families_.begin(), families_.end(), index,
      [](std::size_t i, const StrategyFamily& family) { return i < family.first; });
  const StrategyFamily& family = *(after - 1);
  const std::size_t within = index - family.first;
  return of(family, within / family.buckets, within % family.buckets);
}

Strategy StrategyList::of(const StrategyFamily& family, std::size_t arrangement,
                          std::size_t bucket) const {
  Strategy strategy = family.base;
  apply(family.arrangements->all[arrangement], strategy);
  if (family.buckets > 1) strategy.gradients.bucket_bytes = ladder_[bucket];
  return strategy;
}

std::vector<std::string_view> not_searched() {
  std::vector<std::string_view> keys;
  for (const std::string_view key : strategy_keys()) {
    if (std::ranges::find(kSearched, key) == std::end(kSearched)) keys.push_back(key);
  }
  return keys;
}

Strategy beside_search(const Strategy& strategy) {
  Strategy left = strategy;
  for (const std::string_view key : kSearched) reset_field(left, key);
  return left;
}

std::span<const std::string_view> chosen_by_stage() { return kByStage; }

}  // namespace plimsoll
