// Strategy fields: what a text or a table shows of a strategy.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "passes/strategy/strategy.h"

namespace plimsoll {

struct StrategyField {
  std::string_view key;
  std::string value;  ///< as `--fix` takes it
};

/// The keys down to layer_split, of the others those that differ from their default, in the order
/// of files.
std::vector<StrategyField> shown_fields(const Strategy& strategy);
/// The fields in which `strategy` differs from `chosen`.
std::vector<StrategyField> differing_fields(const Strategy& strategy, const Strategy& chosen);
/// "mp=4 pp=2"; nothing where there are none.
std::string fields_text(const std::vector<StrategyField>& fields);

}  // namespace plimsoll
