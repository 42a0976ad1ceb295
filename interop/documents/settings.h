// Settings are collected from a document under its limits. Internal to interop/documents.
#pragma once

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
  /// Adds a list of lists of scalars as one word, its JSON: [["a","b"],["c"]].
  void add_lists(const std::string& key, const std::vector<std::vector<DocumentWord>>& lists,
                 std::int64_t line);
  /// Adds a setting. Throws InputError where the key is taken or too long.
  void add(const std::string& key, std::vector<DocumentWord> words, bool list, std::int64_t line);
};

/// Returns "line 12" or, where the line is not known, an empty text.
std::string line_place(std::int64_t line);
/// Returns `parent.key`, or `key` at the top.
std::string dotted(std::string_view parent, std::string_view key);
/// Returns the text as a word. It is unknown where it is too long or has control characters.
DocumentWord text_word(std::string text);

std::vector<Setting> read_toml(std::string_view text, const std::string& file);
std::vector<Setting> read_yaml(std::string_view text, const std::string& file);
/// Puts settings in place of references to them: "${a.b}" and "${.b}".
void resolve_references(std::vector<Setting>& settings);

}  // namespace plimsoll
