// A list of strategies, each made when it is asked for, and what a search varies of them.
#include <algorithm>
#include <array>

#include "planner/space/space.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kGradientBytes = 4;  // f32
constexpr Bytes kLeastBucket{std::int64_t{1} << 20}, kUsualBucket{std::int64_t{64} << 20},
    kMostBucket{std::int64_t{1} << 30};

/// The fields that each choice of the search sets. A field that no search varies is its own choice.
constexpr std::string_view kSearched[] = {"mp",
                                          "pp",
                                          "dp",
                                          "cp",
                                          "ep",
                                          "etp",
                                          "expert_dispatch",
                                          "overlap_shared_experts",
                                          "sharding_degree",
                                          "sharding_stage",
                                          "micro_batch",
                                          "schedule",
                                          "recompute",
                                          "grad_bucket_bytes",
                                          "virtual_stages",
                                          "embedding_as_layers",
                                          "loss_as_layers",
                                          "recompute_layers",
                                          "recompute_modules",
                                          "sequence_parallel",
                                          "split_boundary",
                                          "context_exchange",
                                          "rank_order"};
/// Fields that are searched in sharding stage 3 only.
constexpr std::array<std::string_view, 2> kGathers = {"prefetch_depth", "keep_gathered"};
/// Fields that are chosen by stage (layer_choices.h).
constexpr std::array<std::string_view, 2> kByStage = {"layer_split", "recompute_list"};

}  // namespace

std::vector<Bytes> grad_bucket_ladder(const Job& job) {
  const std::int64_t parameters = parameter_count(build_forward(job, 1));
  std::vector<Bytes> ladder;
  for (Bytes step = kLeastBucket; step <= kMostBucket; step = step * 4) {
    if (step > kUsualBucket && ladder.back().count() / kGradientBytes >= parameters) break;
    ladder.push_back(step);
  }
  return ladder;
}

void apply(const Arrangement& arrangement, Strategy& strategy) {
  strategy.schedule = arrangement.schedule;
  strategy.virtual_stages = arrangement.virtual_stages;
  strategy.embedding_as_layers = arrangement.embedding_as_layers;
  strategy.loss_as_layers = arrangement.loss_as_layers;
  strategy.recompute_layers = arrangement.recompute_layers;
  strategy.layer_split = arrangement.layer_split;
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
  if (family.buckets > 1) strategy.grad_bucket_bytes = ladder_[bucket];
  return strategy;
}

std::vector<std::string_view> not_searched() {
  std::vector<std::string_view> keys;
  for (const std::string_view key : strategy_keys()) {
    const auto has = [&](const auto& list) {
      return std::ranges::find(list, key) != std::ranges::end(list);
    };
    if (!has(kSearched) && !has(kGathers) && !has(kByStage)) keys.push_back(key);
  }
  return keys;
}

Strategy beside_search(const Strategy& strategy) {
  const Strategy usual;
  Strategy left = strategy;
  const auto reset = [&](auto... members) { ((left.*members = usual.*members), ...); };
  reset(&Strategy::mp, &Strategy::pp, &Strategy::dp, &Strategy::cp, &Strategy::ep, &Strategy::etp,
        &Strategy::expert_dispatch, &Strategy::overlap_shared_experts, &Strategy::sharding_degree,
        &Strategy::sharding_stage, &Strategy::micro_batch, &Strategy::schedule,
        &Strategy::recompute, &Strategy::recompute_modules, &Strategy::grad_bucket_bytes,
        &Strategy::virtual_stages, &Strategy::embedding_as_layers, &Strategy::loss_as_layers,
        &Strategy::recompute_layers, &Strategy::sequence_parallel, &Strategy::split_boundary,
        &Strategy::context_exchange, &Strategy::rank_order, &Strategy::prefetch_depth,
        &Strategy::keep_gathered, &Strategy::layer_split, &Strategy::recompute_list);
  return left;
}

std::span<const std::string_view> chosen_by_stage() { return kByStage; }

}  // namespace plimsoll
