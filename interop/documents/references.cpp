// Puts settings in place of references to them.
#include <algorithm>
#include <map>

#include "interop/documents/settings.h"

namespace plimsoll {
namespace {

constexpr int kMostReferences = 16;  // one after another

/// Returns what "${...}" holds, where a whole text is one such reference to a key.
std::string reference_in(std::string_view text) {
  if (!text.starts_with("${") || !text.ends_with('}')) return "";
  const std::string_view inner = text.substr(2, text.size() - 3);
  const bool plain = std::ranges::all_of(inner, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '.' || c == '-';
  });
  return plain ? std::string(inner) : "";
}

/// Returns the key that a reference names. Each point in front of a reference is one table up from
/// the key that has it.
std::string referenced_key(const std::string& key, std::string reference) {
  std::string table = key;
  while (reference.starts_with('.')) {
    const std::size_t point = table.rfind('.');
    table = point == table.npos ? "" : table.substr(0, point);
    reference.erase(0, 1);
    if (!reference.starts_with('.')) return dotted(table, reference);
  }
  return reference;
}

}  // namespace

void resolve_references(std::vector<Setting>& settings) {
  std::map<std::string, const Setting*, std::less<>> by_key;
  const std::vector<Setting> given = settings;
  for (const Setting& setting : given) by_key[setting.key] = &setting;
  for (Setting& setting : settings) {
    // A list has no references that stand for lists.
    std::string at = setting.key;
    for (int steps = 0; !setting.list && setting.words.size() == 1; ++steps) {
      DocumentWord& word = setting.words[0];
      if (word.text.find("${") == word.text.npos || !word.unknown.empty()) break;
      const std::string reference = reference_in(word.text);
      if (reference.empty()) {
        word.unknown = "the expression is not evaluated; only ${key} is read";
        break;
      }
      at = referenced_key(at, reference);
      const auto found = by_key.find(at);
      if (found == by_key.end() || steps >= kMostReferences) {
        word.unknown = steps >= kMostReferences ? "the reference leads back to itself"
                                                : "the file does not have the key";
        break;
      }
      setting.words = found->second->words;
      setting.list = found->second->list;
    }
    for (DocumentWord& word : setting.words) {
      if (word.unknown.empty() && word.text.find("${") != word.text.npos)
        word.unknown = "the expression is not evaluated; only ${key} is read";
    }
  }
}

}  // namespace plimsoll
