// Public models: facts of models that are known by name, where a row does not state them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace plimsoll {

/// Rows of the embedding of a public model, as its own configuration file has them; nothing where
/// the name is not known. In any case of letters, anywhere in `name`: "Llama 2 7b".
std::optional<std::int64_t> public_vocabulary(std::string_view name);

}  // namespace plimsoll
