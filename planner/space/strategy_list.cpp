// A list of strategies, each made when it is asked for, and what a search varies of them.
#include <algorithm>
#include <array>

#include "planner/space/space.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kGradientBytes = 4;  // f32
constexpr Bytes kLeastBucket{std::int64_t{1} << 20}, kUsualBucket{std::int64_t{64} << 20},
    kMostBucket{std::int64_t{1} << 30};

/// A field that searches set.
struct Searched {
  std::string_view key;
  void (*reset)(Strategy&);  ///< to the default
};
template <class Field>
constexpr Searched searched(Field, std::string_view key) {
  return {key, [](Strategy& strategy) {
            static const Strategy usual;
            Field{}(strategy) = Field{}(usual);
          }};
}
constexpr Searched kSearched[] = {
    searched(FIELD(mp), "mp"),
    searched(FIELD(pp), "pp"),
    searched(FIELD(dp), "dp"),
    searched(FIELD(cp), "cp"),
    searched(FIELD(ep), "ep"),
    searched(FIELD(etp), "etp"),
    searched(FIELD(expert_dispatch), "expert_dispatch"),
    searched(FIELD(overlap_shared_experts), "overlap_shared_experts"),
    searched(FIELD(sharding_degree), "sharding_degree"),
    searched(FIELD(sharding_stage), "sharding_stage"),
    searched(FIELD(micro_batch), "micro_batch"),
    searched(FIELD(schedule), "schedule"),
    searched(FIELD(recompute), "recompute"),
    searched(FIELD(grad_bucket_bytes), "grad_bucket_bytes"),
    searched(FIELD(virtual_stages), "virtual_stages"),
    searched(FIELD(embedding_as_layers), "embedding_as_layers"),
    searched(FIELD(loss_as_layers), "loss_as_layers"),
    searched(FIELD(recompute_layers), "recompute_layers"),
    searched(FIELD(recompute_modules), "recompute_modules"),
    searched(FIELD(sequence_parallel), "sequence_parallel"),
    searched(FIELD(split_boundary), "split_boundary"),
    searched(FIELD(context_exchange), "context_exchange"),
    searched(FIELD(rank_order), "rank_order"),
    searched(FIELD(prefetch_depth), "prefetch_depth"),
    searched(FIELD(keep_gathered), "keep_gathered"),
    searched(FIELD(layer_split), "layer_split"),
    searched(FIELD(recompute_list), "recompute_list"),
};
/// Searched fields that are chosen by stage (layer_choices.h).
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
    if (std::ranges::find(kSearched, key, &Searched::key) == std::end(kSearched))
      keys.push_back(key);
  }
  return keys;
}

Strategy beside_search(const Strategy& strategy) {
  Strategy left = strategy;
  for (const Searched& field : kSearched) field.reset(left);
  return left;
}

std::span<const std::string_view> chosen_by_stage() { return kByStage; }

}  // namespace plimsoll
