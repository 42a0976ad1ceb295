// Compares the values of a strategy with bounds and excluded values.
#include "planner/space/limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "passes/strategy/strategy_fields.h"
#include "planner/space/space.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kAllLayers = std::numeric_limits<std::int64_t>::max();

bool has_key(std::span<const std::string_view> keys, std::string_view key) {
  return std::ranges::find(keys, key) != keys.end();
}

std::optional<std::int64_t> number_of(const Strategy& strategy, std::string_view key) {
  if (key == "recompute_layers") {
    if (strategy.recompute == Recompute::none) return 0;
    return strategy.recomputed.layers == 0 ? kAllLayers : strategy.recomputed.layers;
  }
  if (key == kAllReplicas) return strategy.dp * strategy.sharding_degree;
  if (key == "etp") return experts_tensor_parallel(strategy);
  return field_number(strategy, key);
}

bool keeps(const Limit& limit, const Strategy& strategy) {
  if (limit.kind == LimitKind::excluded) {
    if (limit.key == "recompute_layers" && strategy.recompute == Recompute::none) return true;
    return field_text(strategy, limit.key) != limit.value;
  }
  const std::int64_t number = number_of(strategy, limit.key).value_or(0);
  return limit.kind == LimitKind::most ? number <= *limit.number : number >= *limit.number;
}

/// Returns two limits of one key that exclude each other.
std::optional<std::string> contradiction(const Limit& a, const Limit& b) {
  if (a.key != b.key) return std::nullopt;
  if (a.kind == b.kind && a.kind != LimitKind::excluded)
    return fmt::format("{} {} is given twice", a.kind == LimitKind::most ? "--max" : "--min",
                       a.key);
  const Limit& least = a.kind == LimitKind::least ? a : b;
  const Limit& most = a.kind == LimitKind::most ? a : b;
  const bool bounds = least.kind == LimitKind::least && most.kind == LimitKind::most;
  if (!bounds || *least.number <= *most.number) return std::nullopt;
  return fmt::format("{} and {} leave no value", limit_text(least), limit_text(most));
}

}  // namespace

bool has_effect(const Strategy& strategy, std::string_view key) {
  const auto is_one_of = [&](std::initializer_list<std::string_view> keys) {
    return std::ranges::find(keys, key) != keys.end();
  };
  if (is_one_of(
          {"schedule", "embedding_as_layers", "loss_as_layers", "send_slots", "send_lifetime"}))
    return strategy.pp > 1;
  if (key == "sequence_parallel") return strategy.mp > 1;
  if (key == "split_boundary") return strategy.mp > 1 && strategy.pp > 1;
  if (key == "context_exchange") return strategy.cp > 1;
  if (is_one_of({"expert_dispatch", "expert_rows_percent"})) return strategy.ep > 1;
  if (is_one_of({"overlap_shared_experts", "overlap_expert_exchange"}))
    return experts_apart(strategy);
  if (key == "recompute_modules") return strategy.recompute == Recompute::modules;
  if (is_one_of({"prefetch_depth", "keep_gathered", "max_live_bytes", "reuse_distance_bytes",
                 "persistence_threshold"}))
    return strategy.sharding_stage == 3;
  if (is_one_of({"sharding_owner", "collective_fusion", "overlap_param_gather"}))
    return strategy.sharding_stage > 0;
  if (is_one_of({"overlap_grad_reduce", "grad_reduction"}))
    return strategy.cp * strategy.dp * strategy.sharding_degree > 1;
  return true;
}

Limit make_limit(LimitKind kind, std::string_view key, std::string_view value) {
  Limit limit = read_limit(kind, key, value);
  if (kind == LimitKind::excluded && key == kAllReplicas)
    throw UsageError(fmt::format("{}: --fix, --max and --min hold it", limit_text(limit)));
  if (has_key(not_searched(), key) || has_key(chosen_by_stage(), key)) {
    throw UsageError(fmt::format("{}: {}; --fix sets it", limit_text(limit),
                                 has_key(chosen_by_stage(), key)
                                     ? "it is chosen by stage, after the search"
                                     : "no search varies this key"));
  }
  if (kind != LimitKind::excluded && !limit.number) {
    throw UsageError(fmt::format("{}: values of {} have no order; --exclude takes one out",
                                 limit_text(limit), key));
  }
  return limit;
}

std::optional<std::string> contradiction(const Fixed& fixed, const Limits& limits) {
  Strategy strategy;
  for (const auto& [key, value] : fixed) set_field(strategy, key, value);
  for (std::size_t i = 0; i < limits.size(); ++i) {
    for (std::size_t j = i + 1; j < limits.size(); ++j) {
      if (auto found = contradiction(limits[i], limits[j])) return found;
    }
    const std::string& key = limits[i].key;
    // How many layers are recomputed follows from `recompute`, too, which may be free.
    if (!is_fixed(fixed, key) || (key == "recompute_layers" && !is_fixed(fixed, "recompute")))
      continue;
    if (keeps(limits[i], strategy)) continue;
    return fmt::format("--fix {}={} and {} exclude each other", key, field_text(strategy, key),
                       limit_text(limits[i]));
  }
  return std::nullopt;
}

bool is_within(const Limits& limits, const Strategy& strategy, std::string_view key) {
  return std::ranges::all_of(limits, [&](const Limit& limit) {
    return limit.key != key || !has_effect(strategy, key) || keeps(limit, strategy);
  });
}

}  // namespace plimsoll
