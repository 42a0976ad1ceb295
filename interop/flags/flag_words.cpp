// Words of flags for the parts of a field.
#include "interop/flags/flag_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "base/error.h"
#include "interop/flags/flag_values.h"

namespace plimsoll {
namespace {

struct Word {
  std::string word, part;
};

struct WordPattern {
  std::string key;
  std::vector<Word> words;
};

WordPattern parsed(std::string_view pattern) {
  const auto placeholder = placeholder_of(pattern);
  INVARIANT(placeholder, "patterns of words are placeholders");
  WordPattern result{std::string(placeholder->key), {}};
  for (const std::string& pair : split(placeholder->unit, ',')) {
    const std::size_t equals = pair.find('=');
    result.words.push_back({pair.substr(0, equals), pair.substr(equals + 1)});
  }
  return result;
}

}  // namespace

bool stands_for_words(std::string_view pattern) {
  const auto placeholder = placeholder_of(pattern);
  return placeholder && placeholder->unit.find('=') != pattern.npos;
}

std::optional<std::vector<std::string>> words_of_field(const FlagFields& fields,
                                                       std::string_view pattern) {
  const WordPattern known = parsed(pattern);
  const auto field = fields.find(known.key);
  if (field == fields.end()) return std::nullopt;
  std::vector<std::string> left = split(field->second, '+'), words;
  for (const Word& one : known.words) {
    if (std::erase(left, one.part) > 0) words.push_back(one.word);
  }
  return left.empty() ? std::optional(std::move(words)) : std::nullopt;
}

StatedFields field_of_words(std::string_view pattern, std::span<const std::string> words) {
  const WordPattern known = parsed(pattern);
  std::vector<std::string> parts, names;
  for (const Word& one : known.words) {
    names.push_back(one.word);
    const bool given = std::ranges::find(words, one.word) != words.end();
    if (given && !one.part.empty() && std::ranges::find(parts, one.part) == parts.end())
      parts.push_back(one.part);
  }
  for (const std::string& word : words) {
    if (std::ranges::find(names, word) == names.end()) {
      throw std::invalid_argument(
          fmt::format("{} is not known; known: {}", word, fmt::join(names, ", ")));
    }
  }
  if (parts.empty()) throw std::invalid_argument("its words state nothing");
  return {{known.key, fmt::format("{}", fmt::join(parts, "+"))}};
}

}  // namespace plimsoll
