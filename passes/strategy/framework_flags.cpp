// Writes flags by the rows of their table.
#include "passes/strategy/framework_flags.h"

#include <algorithm>

#include "passes/strategy/flag_quantities.h"

namespace plimsoll {
namespace {

/// Returns the key of "{KEY}" or "{KEY:UNIT}", and nothing for other words.
std::optional<std::string_view> placeholder_of(std::string_view word) {
  if (!word.starts_with('{') || !word.ends_with('}')) return std::nullopt;
  return word.substr(1, word.size() - 2);
}

bool condition_holds(const FlagFields& fields, const FlagCondition& condition) {
  const auto value = value_of(fields, condition.key);
  std::optional<std::string> wanted = condition.value;
  if (const auto key = placeholder_of(condition.value)) wanted = value_of(fields, *key);
  return value && wanted && same_value(*value, *wanted) != condition.differs;
}

/// Returns the words of a row with the values of fields; nothing where a value is not known.
std::optional<std::vector<std::string>> row_words(const FlagFields& fields, const FlagRow& row) {
  std::vector<std::string> words;
  for (const std::string& word : row.words) {
    std::optional<std::string> text = word;
    if (const auto placeholder = placeholder_of(word)) text = written_value(fields, *placeholder);
    if (!text) return std::nullopt;
    words.push_back(*std::move(text));
  }
  return words;
}

std::vector<std::vector<std::string>> flags_where(const FlagTable& table, const FlagFields& fields,
                                                  bool (*wanted)(const FlagRow&)) {
  std::vector<std::vector<std::string>> flags;
  for (const FlagRow& row : table.rows) {
    if (row.kind != FlagRow::Kind::flag || !wanted(row) || !row_holds(fields, row)) continue;
    auto words = row_words(fields, row);
    if (words && std::ranges::find(flags, *words) == flags.end())
      flags.push_back(*std::move(words));
  }
  return flags;
}

}  // namespace

bool row_holds(const FlagFields& fields, const FlagRow& row) {
  return std::ranges::all_of(
      row.when, [&](const FlagCondition& condition) { return condition_holds(fields, condition); });
}

std::vector<std::vector<std::string>> flags_of(const FlagTable& table, const FlagFields& fields) {
  return flags_where(table, fields, [](const FlagRow&) { return true; });
}

std::string framework_flags(const Framework& framework, const Job& job, const Strategy& strategy) {
  const FlagTable* table = flag_table_of(framework.name);
  if (table == nullptr) return "";
  std::string line;
  const FlagFields fields = fields_of(job, strategy, framework);
  for (const auto& words :
       flags_where(*table, fields, [](const FlagRow& row) { return row.shown; })) {
    for (const std::string& word : words) line += (line.empty() ? "" : " ") + shell_word(word);
  }
  return line;
}

}  // namespace plimsoll
