// Writes flags by the rows of their table.
#include "interop/flags/framework_flags.h"

#include <algorithm>

#include "interop/flags/flag_values.h"
#include "interop/flags/flag_words.h"

namespace plimsoll {
namespace {

bool condition_holds(const FlagFields& fields, const FlagCondition& condition) {
  const auto value = value_of(fields, condition.key);
  const auto wanted = wanted_value(fields, condition.value);
  return value && wanted && same_value(*value, *wanted) != condition.differs;
}

/// Returns the words of a row with the values of fields; nothing where a value is not known.
std::optional<std::vector<std::string>> row_words(const FlagFields& fields, const FlagRow& row) {
  std::vector<std::string> words;
  for (const std::string& word : row.words) {
    if (stands_for_words(word)) {
      const auto values = words_of_field(fields, word);
      if (!values) return std::nullopt;
      words.insert(words.end(), values->begin(), values->end());
      continue;
    }
    std::optional<std::string> text = word;
    if (const auto placeholder = placeholder_of(word)) text = written_value(fields, *placeholder);
    if (!text) return std::nullopt;
    words.push_back(*std::move(text));
  }
  return words;
}

}  // namespace

bool all_hold(const FlagFields& fields, const std::vector<FlagCondition>& conditions) {
  return std::ranges::all_of(conditions, [&](const FlagCondition& condition) {
    return condition_holds(fields, condition);
  });
}

bool row_holds(const FlagFields& fields, const FlagRow& row) { return all_hold(fields, row.when); }

std::vector<WrittenRow> rows_of(const FlagTable& table, const FlagFields& fields) {
  std::vector<WrittenRow> rows;
  for (const FlagRow& row : table.rows) {
    if (row.kind != FlagRow::Kind::flag || !row_holds(fields, row)) continue;
    auto words = row_words(fields, row);
    if (!words) continue;
    // A document has each key once; an option may be given twice.
    const bool there = std::ranges::any_of(rows, [&](const WrittenRow& written) {
      return table.document ? written.words[0] == words->front() : written.words == *words;
    });
    if (!there) rows.push_back({&row, *std::move(words)});
  }
  return rows;
}

std::vector<std::vector<std::string>> flags_of(const FlagTable& table, const FlagFields& fields) {
  std::vector<std::vector<std::string>> flags;
  for (WrittenRow& written : rows_of(table, fields)) flags.push_back(std::move(written.words));
  return flags;
}

std::string framework_flags(const Framework& framework, const Job& job, const Strategy& strategy) {
  const FlagTable* table = flag_table_of(framework.name);
  if (table == nullptr) return "";
  std::string line;
  const FlagFields fields = fields_of(job, strategy, framework);
  const auto add = [&](const std::string& word) { line += (line.empty() ? "" : " ") + word; };
  for (const WrittenRow& written : rows_of(*table, fields)) {
    if (!written.row->shown) continue;
    if (table->document) {  // settings are options, too
      const std::vector<std::string> keys = split(written.words[0], '+');
      for (std::size_t i = 0; i < keys.size() && i + 1 < written.words.size(); ++i)
        add("--" + keys[i] + " " + shell_word(written.words[i + 1]));
    } else {
      for (const std::string& word : written.words) add(shell_word(word));
    }
  }
  return line;
}

}  // namespace plimsoll
