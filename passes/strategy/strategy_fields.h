// Strategy fields are what a text or a table shows of a strategy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "passes/strategy/strategy.h"

namespace plimsoll {

struct StrategyField {
  std::string_view key;
  std::string value;  ///< as `--fix` takes it
};

/// Returns the key that a word of the field stands for: mp of TP or tp, sharding_stage of ZeRO.
/// Other words are returned as they are.
std::string_view strategy_key(std::string_view word);

/// Returns the keys down to layer_split, and those other keys that differ from their default, in
/// the order of files.
std::vector<StrategyField> shown_fields(const Strategy& strategy);
/// Returns the fields in which `strategy` differs from `chosen`.
std::vector<StrategyField> differing_fields(const Strategy& strategy, const Strategy& chosen);
/// Returns the number of an integer or a byte count, and nothing for other fields.
std::optional<std::int64_t> field_number(const Strategy& strategy, std::string_view key);
/// Sets a field to its default.
void reset_field(Strategy& strategy, std::string_view key);
/// Returns "mp=4 pp=2", and an empty text where there are no fields.
std::string fields_text(const std::vector<StrategyField>& fields);

/// Returns values of a key that `--fix` takes: every word of a choice, the powers of two among
/// small integers. The result is empty for an unknown key. Other values may be allowed, too.
std::vector<std::string> usual_values(std::string_view key);

}  // namespace plimsoll
