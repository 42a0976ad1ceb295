// Settings are collected from a document under its limits. Internal to interop/documents.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "interop/documents/document.h"

namespace plimsoll {

/// Collects what a reader of one syntax finds, and holds the limits of documents.
struct SettingCollector {
  const std::string& file;
  std::vector<Setting> settings = {};
  std::set<std::string, std::less<>> keys = {};
  std::int64_t values = 0;

  /// Counts a value at a depth of nesting. Throws InputError where there are too many.
  void count(std::int64_t depth, std::int64_t line);
  /// Adds a setting. Throws InputError where the key is taken or too long.
  void add(const std::string& key, std::vector<DocumentWord> words, bool list, std::int64_t line);
};

/// Returns "line 12" or, where the line is not known, an empty text.
std::string line_place(std::int64_t line);
/// Returns `parent.key`, or `key` at the top.
std::string dotted(std::string_view parent, std::string_view key);
/// Returns a list of lists of scalars as one word, its JSON: [["a","b"],["c"]].
DocumentWord word_of_lists(const std::vector<std::vector<DocumentWord>>& lists);
/// Returns the text as a word. It is unknown where it is too long or has control characters.
DocumentWord text_word(std::string text);

/// Collects what a node of some syntax holds, which has the functions line(), members() (pairs of
/// keys and nodes), elements(), kind() and, for scalars, word().
enum class NodeKind : std::uint8_t { scalar, list, table };
template <class Node>
void collect(SettingCollector& collector, const std::string& key, const Node& node,
             std::int64_t depth = 0) {
  collector.count(depth, node.line());
  if (node.kind() == NodeKind::scalar) {
    collector.add(key, {node.word()}, false, node.line());
    return;
  }
  if (node.kind() == NodeKind::table) {
    for (const auto& [name, member] : node.members())
      collect(collector, dotted(key, name), member, depth + 1);
    return;
  }
  const auto holds_scalars = [](const std::vector<Node>& elements) {
    return std::ranges::all_of(
        elements, [](const Node& element) { return element.kind() == NodeKind::scalar; });
  };
  const auto words_of = [&](const std::vector<Node>& elements) {
    std::vector<DocumentWord> words;
    for (const Node& element : elements) {
      collector.count(depth, element.line());
      words.push_back(element.word());
    }
    return words;
  };
  const std::vector<Node> elements = node.elements();
  if (holds_scalars(elements)) {
    collector.add(key, words_of(elements), true, node.line());
    return;
  }
  const bool of_lists = std::ranges::all_of(elements, [&](const Node& element) {
    return element.kind() == NodeKind::list && holds_scalars(element.elements());
  });
  std::vector<std::vector<DocumentWord>> lists;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    if (of_lists) {
      lists.push_back(words_of(elements[i].elements()));
    } else {
      collect(collector, dotted(key, std::to_string(i)), elements[i], depth + 1);
    }
  }
  if (of_lists) collector.add(key, {word_of_lists(lists)}, false, node.line());
}

std::vector<Setting> read_toml(std::string_view text, const std::string& file);
std::vector<Setting> read_yaml(std::string_view text, const std::string& file);
/// Puts settings in place of references to them: "${a.b}" and "${.b}".
void resolve_references(std::vector<Setting>& settings);

}  // namespace plimsoll
