// A Memo keeps results of a slow function of a strategy, so that each is found once.
#pragma once

#include <mutex>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "passes/strategy/strategy.h"

namespace plimsoll {

/// Returns the strategy with the default of these fields: without(strategy, FIELD(dp)). A result
/// that does not depend on them is that of all strategies that are then equal. A field that is not
/// named counts.
template <class... Fields>
Strategy without(Strategy strategy, Fields... fields) {
  static const Strategy usual;
  ((fields(strategy) = fields(usual)), ...);
  return strategy;
}

/// Keeps results by a strategy, and by what else they depend on. It is safe to share between
/// threads.
template <class Value, class... Others>
class Memo {
 public:
  using Key = std::tuple<Strategy, Others...>;

  /// Returns the value of a key, which lives as long as the memo. `find()` finds it the first time.
  /// Threads that ask for a key at once may each find it, and the first result is kept.
  template <class Find>
  const Value& of(const Key& key, const Find& find) {
    {
      const std::lock_guard lock(mutex_);
      if (const auto known = known_.find(key); known != known_.end()) return known->second;
    }
    Value found = find();
    const std::lock_guard lock(mutex_);
    return known_.try_emplace(key, std::move(found)).first->second;
  }

 private:
  /// By the fields in which strategies of a search differ most. Equality compares all fields.
  struct Hash {
    std::size_t operator()(const Key& key) const {
      const Strategy& s = std::get<0>(key);
      std::size_t hash = 0;
      for (const std::int64_t field : {s.mp, s.pp, s.dp, s.cp, s.ep, s.sharding_degree,
                                       s.sharding_stage, s.micro_batch, std::int64_t(s.recompute)})
        hash = 31 * hash + std::size_t(field);
      return hash;
    }
  };
  std::mutex mutex_;
  std::unordered_map<Key, Value, Hash> known_;
};

}  // namespace plimsoll
