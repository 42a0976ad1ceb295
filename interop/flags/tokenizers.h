// Tokenizers have known vocabularies.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace plimsoll {

/// Returns the tokens of the tokenizer of that name, by models/presets/readers/tokenizers.json:
/// pieces and added ones, as the library counts them. A path counts by its last folder that has a
/// model's name. The result is empty for a name that is not known.
std::optional<std::int64_t> tokens_of(std::string_view name);

}  // namespace plimsoll
