// Converts settings of documents to flags, and back.
#include "passes/strategy/flag_document.h"

#include <algorithm>

#include "documents/document.h"
#include "passes/strategy/flag_quantities.h"
#include "passes/strategy/framework_flags.h"

namespace plimsoll {
namespace {

bool states_null(const FlagTable& table, const std::string& option) {
  return std::ranges::any_of(table.rows, [&](const FlagRow& row) {
    const bool stated = row.kind == FlagRow::Kind::flag || row.kind == FlagRow::Kind::alias;
    return stated && row.words[0] == option && row.value.is_null();
  });
}

/// Puts the flags of several keys, where all are given, in place of the first.
void join_keys(std::vector<GivenFlag>& flags, const std::string& option) {
  GivenFlag joined{option, {}, 0};
  const std::vector<std::string> keys = keys_of(option);
  for (const std::string& key : keys) {
    const auto flag = std::ranges::find(flags, key, &GivenFlag::option);
    if (flag == flags.end()) return;
    joined.words.insert(joined.words.end(), flag->words.begin(), flag->words.end());
    joined.line = flag->line;
  }
  std::erase_if(flags, [&](const GivenFlag& flag) {
    return std::ranges::find(keys, flag.option) != keys.end();
  });
  flags.push_back(std::move(joined));
}

/// Returns a text of a field as a value with a type.
Json typed(const std::string& text) {
  if (text == "true" || text == "false") return text == "true";
  if (text == "null") return nullptr;
  if (text.starts_with('[')) return Json::parse(text);
  const auto number = number_from(text);
  if (!number) return text;
  Json value = Json::parse(text, nullptr, false);
  return value.is_number() ? value : Json(*number);
}

/// Returns the value of a row; its words are known already.
Json row_value(const FlagRow& row, const std::vector<std::string>& words) {
  const auto one = [&](const Json& pattern, const std::string& word) -> Json {
    if (!pattern.is_string() || pattern.get<std::string>() == word) return pattern;
    return pattern.get<std::string>().ends_with(":text}") ? Json(word) : typed(word);
  };
  if (!row.value.is_array()) return one(row.value, words[1]);
  Json list = Json::array();
  for (std::size_t i = 0; i < row.value.size(); ++i)
    list.push_back(one(row.value[i], words[i + 1]));
  return list;
}

/// Sets the value of a key, with a table for each point in it.
void set_key(Json& values, const std::string& key, Json value) {
  const std::size_t point = key.find('.');
  if (point == key.npos) {
    values[key] = std::move(value);
  } else {
    set_key(values[key.substr(0, point)], key.substr(point + 1), std::move(value));
  }
}

}  // namespace

const FlagTable* document_table_of(std::string_view text) {
  for (const FlagTable& table : flag_tables()) {
    if (!table.document) continue;
    const auto has = [&](const std::string& mark) { return text.find(mark) != text.npos; };
    const bool found = std::ranges::any_of(table.recognized_by, [&](const FileMark& mark) {
      return std::ranges::all_of(mark.all_of, has) && std::ranges::none_of(mark.none_of, has);
    });
    if (found) return &table;
  }
  return nullptr;
}

std::vector<GivenFlag> flags_in_document(const FlagTable& table, std::string_view text,
                                         const std::string& file) {
  std::vector<GivenFlag> flags;
  for (Setting& setting : read_document(text, *table.document, file)) {
    const bool null = !setting.list && setting.words[0].text == "null";
    if (null && !states_null(table, setting.key)) continue;
    if (!table.unset.empty() && !setting.list && setting.words[0].text == table.unset) continue;
    GivenFlag flag{std::move(setting.key), {}, setting.line};
    for (DocumentWord& word : setting.words)
      flag.words.push_back({std::move(word.text), std::move(word.unknown)});
    flags.push_back(std::move(flag));
  }
  for (const FlagRow& row : table.rows) {
    if (!row.words.empty() && row.words[0].find('+') != std::string::npos)
      join_keys(flags, row.words[0]);
  }
  return flags;
}

std::string document_of(const FlagTable& table, const FlagFields& fields,
                        const std::vector<std::string>& comments) {
  Json values = Json::object();
  for (const auto& [row, words] : rows_of(table, fields)) {
    const std::vector<std::string> keys = keys_of(words[0]);
    const Json value = row_value(*row, words);
    for (std::size_t i = 0; i < keys.size(); ++i)
      set_key(values, keys[i], keys.size() > 1 ? value[i] : value);
  }
  return document_text(values, *table.document, comments);
}

}  // namespace plimsoll
