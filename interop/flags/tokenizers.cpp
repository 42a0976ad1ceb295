// Looks names of tokenizers up.
#include "interop/flags/tokenizers.h"

#include <map>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "models/presets/known_json.h"

namespace plimsoll {
namespace {

/// A name without the organisation in front: "meta-llama/Meta-Llama-3-8B" has two parts.
std::string_view last_part(std::string_view name) { return name.substr(name.rfind('/') + 1); }

std::map<std::string, std::int64_t, std::less<>> known_tokenizers() {
  std::map<std::string, std::int64_t, std::less<>> known;
  const Json json = known_json(reader_presets(), "tokenizers");
  for (const Json& one : json.at("tokenizers")) {
    for (const std::string name : one.at("names"))
      known.emplace(last_part(name), one.at("tokens").get<std::int64_t>());
  }
  return known;
}

}  // namespace

std::optional<std::int64_t> tokens_of(std::string_view name) {
  static const auto known = known_tokenizers();
  while (name.ends_with('/')) name.remove_suffix(1);
  if (last_part(name).starts_with("tokenizer.")) {  // a file in the model's folder
    name = name.substr(0, name.size() - last_part(name).size());
    while (name.ends_with('/')) name.remove_suffix(1);
  }
  const auto found = known.find(last_part(name));
  return found == known.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace plimsoll
