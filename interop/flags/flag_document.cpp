// Converts settings of documents to flags, and back.
#include "interop/flags/flag_document.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "interop/documents/document.h"
#include "interop/flags/flag_values.h"
#include "interop/flags/flag_words.h"
#include "interop/flags/framework_flags.h"

namespace plimsoll {
namespace {

/// Returns whether a row has this value of a key.
bool has_value(const FlagTable& table, const std::string& option, const Json& value) {
  return std::ranges::any_of(table.rows, [&](const FlagRow& row) {
    return row.kind != FlagRow::Kind::implied && row.words[0] == option && row.value == value;
  });
}

/// Returns whether a setting is as if it were not given: it is null or the table's word for that,
/// and no row says otherwise.
bool is_unset(const FlagTable& table, const Setting& setting) {
  if (setting.list) return false;
  const std::string& text = setting.words[0].text;
  if (text == "null") return !has_value(table, setting.key, nullptr);
  return !table.unset.empty() && text == table.unset && !has_value(table, setting.key, table.unset);
}

/// Refuses a word that stands for all settings of a section: what it leaves out is not known.
void refuse_section(const FlagTable& table, const Setting& setting, const std::string& file) {
  const std::string& text = setting.words[0].text;
  const bool section = std::ranges::any_of(table.rows, [&](const FlagRow& row) {
    return !row.words.empty() && row.words[0].starts_with(setting.key + ".");
  });
  if (!section || text == "null") return;
  throw InputError(
      file, setting.line > 0 ? fmt::format("line {}", setting.line) : "",
      fmt::format("{} {}: a section with its settings is required", setting.key, printable(text)));
}

/// Puts the flags of several keys, where all are given, in place of the first.
void join_keys(std::vector<GivenFlag>& flags, const std::string& option) {
  GivenFlag joined{option, {}, 0};
  const std::vector<std::string> keys = split(option, '+');
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
  if (row.words.size() == 2 && stands_for_words(row.words[1]))
    return std::vector<std::string>(words.begin() + 1, words.end());
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

namespace {

const FlagTable* recognized_table(std::string_view text, bool of_options) {
  for (const FlagTable& table : flag_tables()) {
    if (!table.document || table.options.has_value() != of_options) continue;
    const auto has = [&](const std::string& mark) { return text.find(mark) != text.npos; };
    const bool found = std::ranges::any_of(table.recognized_by, [&](const FileMark& mark) {
      return std::ranges::all_of(mark.all_of, has) && std::ranges::none_of(mark.none_of, has);
    });
    if (found) return &table;
  }
  return nullptr;
}

/// Joins the keys that rows read together.
void join_all_keys(std::vector<GivenFlag>& flags, const FlagTable& table) {
  for (const FlagRow& row : table.rows) {
    if (!row.words.empty() && row.words[0].find('+') != std::string::npos)
      join_keys(flags, row.words[0]);
  }
}

}  // namespace

const FlagTable* document_table_of(std::string_view text) { return recognized_table(text, false); }

const FlagTable* command_line_table_of(std::string_view text) {
  return recognized_table(text, true);
}

std::vector<GivenFlag> flags_in_document(const FlagTable& table, std::string_view text,
                                         const std::string& file) {
  std::vector<GivenFlag> flags;
  for (Setting& setting : read_document(text, *table.document, file)) {
    if (is_unset(table, setting)) {
      refuse_section(table, setting, file);
      continue;
    }
    GivenFlag flag{std::move(setting.key), {}, setting.line};
    for (DocumentWord& word : setting.words)
      flag.words.push_back({std::move(word.text), std::move(word.unknown)});
    flags.push_back(std::move(flag));
  }
  join_all_keys(flags, table);
  return flags;
}

namespace {

/// Whether rows have a list as the value of a key.
bool is_list(const FlagTable& table, const std::string& key) {
  return std::ranges::any_of(table.rows, [&](const FlagRow& row) {
    return !row.words.empty() && row.words[0] == key && row.value.is_array();
  });
}

/// Returns the key of an option and, for a switch, its value.
std::pair<std::string, std::string> setting_of(const SettingOptions& options, std::string option) {
  if (option.starts_with("--")) option.erase(0, 2);
  std::ranges::replace(option, '-', '_');
  for (const std::string& key : options.switches) {
    if (option == key) return {key, "true"};
    const std::size_t name = key.rfind('.') + 1;
    if (option == key.substr(0, name) + "no_" + key.substr(name)) return {key, "false"};
  }
  return {std::move(option), ""};
}

/// Takes the options that name a configuration out of the flags, and returns the configuration.
const NamedConfiguration* take_named(const FlagTable& table, std::vector<GivenFlag>& given,
                                     const std::string& file) {
  std::vector<std::vector<std::string>> words;
  std::int64_t line = 0;
  for (const std::vector<std::string>& option : table.options->named.at(0).options) {
    const auto last = std::find_if(given.rbegin(), given.rend(),
                                   [&](const GivenFlag& flag) { return flag.option == option[0]; });
    if (last == given.rend()) continue;
    const GivenFlag& flag = *last;
    line = flag.line;
    words.push_back({flag.option});
    for (const GivenWord& word : flag.words) {
      if (!word.unknown.empty()) {
        throw InputError(file, line > 0 ? fmt::format("line {}", line) : "",
                         fmt::format("{} {}: {}", flag.option, printable(word.text), word.unknown));
      }
      words.back().push_back(word.text);
    }
    std::erase_if(given, [&](const GivenFlag& one) { return one.option == option[0]; });
  }
  if (words.empty()) return nullptr;
  const auto text_of = [](const std::vector<std::vector<std::string>>& options) {
    std::string text;
    for (const auto& option : options)
      text += fmt::format("{}{}", text.empty() ? "" : " ", fmt::join(option, " "));
    return text;
  };
  std::vector<std::string> known;
  for (const NamedConfiguration& named : table.options->named) {
    if (named.options == words) return &named;
    known.push_back(text_of(named.options));
  }
  throw InputError(file, line > 0 ? fmt::format("line {}", line) : "",
                   fmt::format("{}: no such configuration is known; known: {}",
                               printable(text_of(words), 240), fmt::join(known, ", ")));
}

/// Returns the words of an option as those of a setting.
std::vector<GivenWord> setting_words(const FlagTable& table, const std::string& key,
                                     std::vector<GivenWord> words) {
  if (words.size() != 1 || !is_list(table, key)) return words;
  std::vector<GivenWord> list;
  std::string text = words[0].text;
  for (std::size_t comma = text.find(','); comma != text.npos; comma = text.find(',')) {
    list.push_back({text.substr(0, comma), words[0].unknown});
    text.erase(0, comma + 1);
  }
  list.push_back({text, words[0].unknown});
  return list;
}

}  // namespace

std::vector<GivenFlag> flags_in_options(const FlagTable& table, std::vector<GivenFlag> given,
                                        const std::string& file) {
  std::vector<GivenFlag> flags;
  if (const NamedConfiguration* named = take_named(table, given, file)) {
    for (const auto& [key, words] : named->settings) {
      GivenFlag& flag = flags.emplace_back(GivenFlag{key, {}, 0});
      for (const std::string& word : words) flag.words.push_back({word});
    }
  }
  for (GivenFlag& option : given) {
    const auto setting = setting_of(*table.options, option.option);
    const std::string& key = setting.first;
    for (const std::string& pattern : table.options->only_by_name) {
      if (!matches(pattern, key)) continue;
      throw InputError(
          file, option.line > 0 ? fmt::format("line {}", option.line) : "",
          fmt::format("{}: no option is known to set it; named configurations state it",
                      printable(option.option)));
    }
    std::erase_if(flags, [&](const GivenFlag& flag) { return flag.option == key; });
    if (!setting.second.empty() && option.words.empty()) option.words = {{setting.second}};
    option.words = setting_words(table, key, std::move(option.words));
    option.option = key;
    flags.push_back(std::move(option));
  }
  join_all_keys(flags, table);
  return flags;
}

std::vector<std::vector<std::string>> options_of(const FlagTable& table, const FlagFields& fields) {
  const SettingOptions& options = *table.options;
  std::vector<std::vector<std::string>> written;
  std::map<std::string, std::vector<std::string>, std::less<>> settings;  // that a name states
  for (const auto& [row, words] : rows_of(table, fields)) {
    const std::vector<std::string> keys = split(words[0], '+');
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const std::string& key = keys[i];
      const std::vector<std::string> value =
          keys.size() > 1 ? std::vector{words[i + 1]}
                          : std::vector<std::string>(words.begin() + 1, words.end());
      const bool by_name = std::ranges::any_of(
          options.only_by_name, [&](const std::string& pattern) { return matches(pattern, key); });
      if (by_name) {
        settings[key] = value;
      } else if (std::ranges::find(options.switches, key) == options.switches.end()) {
        written.push_back({"--" + key, fmt::format("{}", fmt::join(value, ","))});
      } else {
        const std::size_t name = key.rfind('.') + 1;
        std::string off = "no-" + key.substr(name);
        std::ranges::replace(off, '_', '-');
        const bool on = value.at(0) == "true";
        written.push_back({"--" + key.substr(0, name) + (on ? key.substr(name) : off)});
      }
    }
  }
  const NamedConfiguration* best = nullptr;
  std::ptrdiff_t most = -1;
  for (const NamedConfiguration& named : options.named) {
    const auto agrees = [&](const std::string& key) {
      const auto of_plan = settings.find(key);
      const auto of_name =
          std::ranges::find(named.settings, key, [](const auto& setting) { return setting.first; });
      return of_plan != settings.end() && of_name != named.settings.end() &&
             of_plan->second == of_name->second;
    };
    if (!std::ranges::all_of(options.chosen_by, agrees)) continue;
    const auto same =
        std::ranges::count_if(settings, [&](const auto& setting) { return agrees(setting.first); });
    if (same > most) best = &named;
    most = std::max(most, same);
  }
  if (best) written.insert(written.begin(), best->options.begin(), best->options.end());
  return written;
}

std::string document_of(const FlagTable& table, const FlagFields& fields,
                        const std::vector<std::string>& comments,
                        const std::vector<std::pair<std::string, Json>>& settings) {
  Json values = Json::object();
  for (const auto& [row, words] : rows_of(table, fields)) {
    const std::vector<std::string> keys = split(words[0], '+');
    const Json value = row_value(*row, words);
    for (std::size_t i = 0; i < keys.size(); ++i)
      set_key(values, keys[i], keys.size() > 1 ? value[i] : value);
  }
  for (const auto& [key, value] : settings) set_key(values, key, value);
  return document_text(values, *table.document, comments);
}

}  // namespace plimsoll
