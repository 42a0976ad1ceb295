// Reads flags row by row, in the order of their table.
#include "interop/flags/flag_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "base/json.h"
#include "interop/flags/flag_quantities.h"
#include "interop/flags/flag_words.h"
#include "interop/flags/framework_flags.h"

namespace plimsoll {
namespace {

struct Reader {
  const FlagTable& table;
  const std::string& file;
  FlagReading reading;
  std::map<std::string, const GivenFlag*, std::less<>> given;
  /// Values that fields do not have, by key, with the flag that says so.
  std::multimap<std::string, std::pair<std::string, std::string>, std::less<>> excluded;
  std::set<std::string, std::less<>> done;  ///< options that were read
  /// Why rows do not apply, by option, and why its aliases do not: because of a value, or else.
  std::map<std::string, std::string, std::less<>> why_not, why_no_value, why_no_alias;
  std::map<std::string, std::vector<std::string>, std::less<>> allowed;  ///< option -> its values
};

std::string text_of(const GivenFlag& flag) {
  std::string text = printable(flag.option);
  for (const GivenWord& word : flag.words) text += " " + printable(word.text);
  return text;
}

std::string place_of(const GivenFlag& flag) {
  return flag.line > 0 ? fmt::format("line {}", flag.line) : "";
}

[[noreturn]] void refuse(const Reader& reader, const GivenFlag& flag, const std::string& why) {
  throw InputError(reader.file, place_of(flag), fmt::format("{}: {}", text_of(flag), why));
}

/// The fields that a row states, or why it does not apply.
struct Match {
  StatedFields states = {}, excludes = {};
  std::string why_not = {};
  bool other_word = false;  ///< the flag has another word than the row; why_not has the row's
};

Match no_match(std::string why_not) { return {.why_not = std::move(why_not)}; }

std::string contradiction(const Reader& reader, const std::string& key, const std::string& value) {
  const auto by = reader.reading.stated_by.find(key);
  return fmt::format("it states {} {}; {} states {}", key, value,
                     by == reader.reading.stated_by.end() ? "what is known" : by->second,
                     *value_of(reader.reading.fields, key));
}

/// Returns why a field cannot have a value, and nothing where it can.
std::string contradiction_of(const Reader& reader, const std::string& key,
                             const std::string& value) {
  const auto known = reader.reading.fields.find(key);
  if (known != reader.reading.fields.end())
    return same_value(known->second, value) ? "" : contradiction(reader, key, value);
  const auto [begin, end] = reader.excluded.equal_range(key);
  for (auto at = begin; at != end; ++at) {
    if (same_value(at->second.first, value))
      return fmt::format("it states {} {}; {} states another", key, value, at->second.second);
  }
  return "";
}

Match match_conditions(const Reader& reader, const FlagRow& row) {
  Match match;
  for (const FlagCondition& condition : row.when) {
    const FlagFields& fields = reader.reading.fields;
    const auto wanted = wanted_value(fields, condition.value);
    if (!wanted) return no_match(fmt::format("{} is not known", condition.value));
    const std::string& value = *wanted;
    const auto known = fields.find(condition.key);
    const bool same = known != fields.end() && same_value(known->second, value);
    if (condition.differs) {
      if (same) return no_match(contradiction(reader, condition.key, "other than " + value));
      match.excludes.emplace_back(condition.key, value);
      continue;
    }
    std::optional<StatedFields> states;
    try {
      states = stated_fields(fields, condition.key, value);
    } catch (const std::invalid_argument& error) {
      return no_match(error.what());
    }
    if (!states) states = {{condition.key, value}};
    for (auto& [key, stated] : *states) {
      if (std::string why = contradiction_of(reader, key, stated); !why.empty())
        return no_match(std::move(why));
      match.states.emplace_back(std::move(key), std::move(stated));
    }
  }
  return match;
}

std::string values_of(const FlagRow& row) {
  const std::string values =
      fmt::format("{}", fmt::join(row.words.begin() + 1, row.words.end(), " "));
  return values.empty() ? "an empty text" : values;
}

/// Matches words that may be several, in any order.
Match match_list(const Reader& reader, const std::string& pattern, const GivenFlag& flag) {
  std::vector<std::string> given;
  for (const GivenWord& word : flag.words) {
    if (!word.unknown.empty()) refuse(reader, flag, word.unknown);
    given.push_back(word.text);
  }
  Match match;
  try {
    match.states = field_of_words(pattern, given);
  } catch (const std::invalid_argument& error) {
    return no_match(error.what());
  }
  for (const auto& [key, value] : match.states) {
    if (std::string why = contradiction_of(reader, key, value); !why.empty())
      return no_match(std::move(why));
  }
  return match;
}

/// Says what to write in place of a value that is not known.
std::string required_for(const FlagFields& fields, std::string_view pattern) {
  const auto placeholder = placeholder_of(pattern);
  if (!placeholder) return "";
  try {
    read_value(fields, *placeholder, "");
  } catch (const std::invalid_argument& error) {
    return fmt::format("; {}", error.what());
  }
  return "";
}

/// Returns the flag with its words between commas, where a row takes names of modules.
std::optional<GivenFlag> with_names(const FlagRow& row, const GivenFlag& flag) {
  if (flag.words.size() < 2 || row.words.size() != 2 || !row.words[1].ends_with("_modules}"))
    return std::nullopt;
  GivenFlag joined{flag.option, {flag.words[0]}, flag.line};
  for (std::size_t i = 1; i < flag.words.size(); ++i) {
    joined.words[0].text += "," + flag.words[i].text;
    if (joined.words[0].unknown.empty()) joined.words[0].unknown = flag.words[i].unknown;
  }
  return joined;
}

/// Matches the words of an option. Placeholders state fields.
Match match_words(const Reader& reader, const FlagRow& row, const GivenFlag& flag) {
  if (const auto names = with_names(row, flag)) return match_words(reader, row, *names);
  if (reader.table.document && row.words.size() == 2 && row.words[1] == "{}") return {};
  if (row.words.size() == 2 && stands_for_words(row.words[1]))
    return match_list(reader, row.words[1], flag);
  if (flag.words.size() + 1 != row.words.size()) {
    return no_match(row.words.size() == 1 ? "it takes no value"
                                          : fmt::format("it takes {} value{}", row.words.size() - 1,
                                                        row.words.size() == 2 ? "" : "s"));
  }
  Match match;
  for (std::size_t i = 0; i < flag.words.size(); ++i) {
    const std::string& pattern = row.words[i + 1];
    const GivenWord& word = flag.words[i];
    if (pattern == "{}") continue;
    if (!word.unknown.empty())
      return no_match(word.unknown + required_for(reader.reading.fields, pattern));
    const auto placeholder = placeholder_of(pattern);
    if (!placeholder) {
      if (!same_value(pattern, word.text)) return {.why_not = values_of(row), .other_word = true};
      continue;
    }
    try {
      for (auto& [key, value] : read_value(reader.reading.fields, *placeholder, word.text)) {
        if (std::string why = contradiction_of(reader, key, value); !why.empty())
          return no_match(std::move(why));
        match.states.emplace_back(std::move(key), std::move(value));
      }
    } catch (const std::invalid_argument& error) {
      return no_match(error.what());
    }
  }
  return match;
}

/// Whether all words of a row are texts, and the flag has others.
bool has_other_word(const FlagRow& row, const GivenFlag& flag) {
  if (flag.words.size() + 1 != row.words.size()) return false;
  bool other = false;
  for (std::size_t i = 0; i < flag.words.size(); ++i) {
    const std::string& pattern = row.words[i + 1];
    if (placeholder_of(pattern) || !flag.words[i].unknown.empty()) return false;
    other = other || !same_value(pattern, flag.words[i].text);
  }
  return other;
}

void state(Reader& reader, const Match& match, const std::string& by) {
  for (const auto& [key, value] : match.states) {
    if (reader.reading.fields.emplace(key, value).second) reader.reading.stated_by[key] = by;
  }
  for (const auto& [key, value] : match.excludes)
    reader.excluded.emplace(key, std::pair(value, by));
}

void read_given(Reader& reader, const FlagRow& row, const GivenFlag& flag) {
  const std::string& option = flag.option;
  if (reader.done.contains(option)) return;
  // Another word says more than what a row of another word would state.
  Match conditions =
      has_other_word(row, flag) ? match_words(reader, row, flag) : match_conditions(reader, row);
  const bool hold = conditions.why_not.empty();
  if (hold) {
    // Values are read with what the conditions state, such as a type that a unit depends on.
    Match words = match_words(reader, row, flag);
    if (words.why_not.empty()) {
      const std::string by =
          flag.line > 0 ? fmt::format("{} (line {})", text_of(flag), flag.line) : text_of(flag);
      state(reader, conditions, by);
      state(reader, words, by);
      if (!row.note.empty()) reader.reading.notes.push_back(text_of(flag) + ": " + row.note);
      reader.done.insert(option);
      reader.reading.read[option] = row.kind == FlagRow::Kind::flag ? &flag : nullptr;
      return;
    }
    conditions = std::move(words);
  }
  if (conditions.other_word) {
    std::vector<std::string>& values = reader.allowed[option];
    if (std::ranges::find(values, conditions.why_not) == values.end())
      values.push_back(conditions.why_not);
  } else {
    const bool alias = row.kind == FlagRow::Kind::alias;
    if (alias && hold) {
      reader.why_no_value[option] = conditions.why_not;  // the last alias takes most values
    } else {
      (alias ? reader.why_no_alias : reader.why_not).emplace(option, conditions.why_not);
    }
  }
}

void read_implied(Reader& reader, const FlagRow& row) {
  for (const std::string& option : row.words) {
    if (reader.given.contains(option)) return;
  }
  const std::string group = fmt::format("{}", fmt::join(row.words, " "));
  if (reader.done.contains(group)) return;
  const Match match = match_conditions(reader, row);
  if (!match.why_not.empty()) return;
  state(reader, match,
        row.words.empty() ? std::string(kByFramework)
                          : fmt::format("no {}", fmt::join(row.words, " or ")));
  if (!row.note.empty()) reader.reading.notes.push_back(row.note);
  if (row.words.empty()) return;
  reader.done.insert(group);
  for (const std::string& option : row.words) reader.reading.read.emplace(option, nullptr);
}

/// Whether one letter that is added, missing or another one makes `a` of `b`.
bool one_letter_apart(std::string_view a, std::string_view b) {
  if (a.size() > b.size()) std::swap(a, b);
  if (b.size() - a.size() > 1) return false;
  const std::size_t same = std::size_t(std::ranges::mismatch(a, b).in1 - a.begin());
  if (same == a.size()) return a.size() != b.size();
  return a.substr(same + (a.size() == b.size() ? 1 : 0)) == b.substr(same + 1);
}

/// Refuses an option that is most likely a misspelt one of the table.
void refuse_misspelt(const Reader& reader, const GivenFlag& flag) {
  constexpr std::size_t kLongEnough = 8;  // short options are often near each other
  if (flag.option.size() < kLongEnough) return;
  const bool document = reader.table.document.has_value();
  for (const FlagRow& row : reader.table.rows) {
    for (const std::string& known : row.words) {
      const bool option = document ? &known == &row.words[0] : known.starts_with("--");
      if (option && one_letter_apart(flag.option, known))
        refuse(
            reader, flag,
            fmt::format("no such {} is known; did you mean {}?", document ? "key" : "flag", known));
    }
  }
}

/// Handles options that no row has read.
void end_option(Reader& reader, const GivenFlag& flag) {
  const std::string& option = flag.option;
  for (const FlagException& refused : reader.table.refused) {
    if (!all_hold(reader.reading.fields, refused.when)) continue;
    for (const std::string& pattern : refused.names) {
      if (matches(pattern, option)) refuse(reader, flag, refused.because);
    }
  }
  if (const auto why = reader.why_not.find(option); why != reader.why_not.end())
    refuse(reader, flag, why->second);
  if (const auto why = reader.why_no_value.find(option); why != reader.why_no_value.end())
    refuse(reader, flag, why->second);
  if (const auto allowed = reader.allowed.find(option); allowed != reader.allowed.end()) {
    const std::vector<std::string>& values = allowed->second;
    refuse(reader, flag,
           fmt::format("{}{} is required", values.size() > 1 ? "one of " : "",
                       fmt::join(values, ", ")));
  }
  if (const auto why = reader.why_no_alias.find(option); why != reader.why_no_alias.end())
    refuse(reader, flag, why->second);
  const bool harmless = std::ranges::any_of(
      reader.table.harmless, [&](const std::string& pattern) { return matches(pattern, option); });
  if (harmless) {
    reader.reading.unread.push_back(printable(option));
    return;
  }
  refuse_misspelt(reader, flag);
  reader.reading.unknown.push_back({printable(option), flag.line});
}

/// Returns the keys whose values a flag has, where its row holds.
std::vector<std::string> keys_in(const FlagTable& table, const FlagFields& fields,
                                 const std::string& option) {
  std::vector<std::string> keys;
  for (const FlagRow& row : table.rows) {
    if (row.kind != FlagRow::Kind::flag || row.words[0] != option || !row_holds(fields, row))
      continue;
    for (const std::string& word : row.words) {
      if (const auto placeholder = placeholder_of(word)) keys.emplace_back(placeholder->key);
    }
  }
  return keys;
}

}  // namespace

FlagReading read_flags(const FlagTable& table, std::span<const GivenFlag> given, FlagFields known,
                       const std::string& file, const std::string& batch) {
  Reader reader{table, file, {}, {}, {}, {}, {}, {}, {}, {}};
  reader.reading.fields = std::move(known);
  for (const GivenFlag& flag : given) reader.given[flag.option] = &flag;
  for (const FlagRow& row : table.rows) {
    if (row.kind == FlagRow::Kind::implied) {
      read_implied(reader, row);
    } else if (const auto flag = reader.given.find(row.words[0]); flag != reader.given.end()) {
      read_given(reader, row, *flag->second);
    }
  }
  for (const auto& [option, flag] : reader.given) {
    if (!reader.done.contains(option)) end_option(reader, *flag);
  }
  if (table.next) return std::move(reader.reading);  // the next table states the rest
  FlagFields& fields = reader.reading.fields;
  const bool batch_follows = fields.contains("micro_batch") && fields.contains("micro_batches");
  if (!batch.empty() && !batch_follows) fields.emplace("global_batch", batch);
  const auto stage = value_of(fields, "sharding_stage");
  try {
    complete_fields(fields);
    if (stage > "1" && value_of(fields, "sharding_stage") == "0")
      reader.reading.notes.push_back(
          fmt::format("stage {} over one rank shards nothing: it is stage 0", *stage));
  } catch (const std::invalid_argument& error) {
    throw InputError(file, "", error.what());
  }
  return std::move(reader.reading);
}

void check_flags(const FlagTable& table, const FlagReading& reading, const FlagFields& fields,
                 const FlagFields& known, const std::string& file) {
  const auto was_read = [&](const std::string& key) { return reading.fields.contains(key); };
  for (const auto& [row, words] : rows_of(table, fields)) {
    const std::vector<std::string> keys = keys_in(table, fields, words[0]);
    const std::string text = fmt::format("{}", fmt::join(words, " "));
    const auto read = reading.read.find(words[0]);
    if (read == reading.read.end()) {
      // Another option may have stated the value.
      if (!keys.empty() && std::ranges::all_of(keys, was_read)) continue;
      if (keys.empty() && row->when.empty()) continue;  // a setting that no field depends on
      if (keys.empty() && std::ranges::any_of(row->when, [&](const FlagCondition& condition) {
            return known.contains(condition.key);
          }))
        continue;
      throw InputError(file, "", fmt::format("{} is missing; the other flags need it", text));
    }
    if (read->second == nullptr) continue;  // what its absence states was read
    // A value that follows from fields was read, but is in no file.
    const bool follows = std::ranges::any_of(
        keys, [&](const std::string& key) { return was_read(key) && !fields.contains(key); });
    const GivenFlag& flag = *read->second;
    for (std::size_t i = 0; follows && i < flag.words.size(); ++i) {
      if (same_value(words[i + 1], flag.words[i].text)) continue;
      throw InputError(file, place_of(flag),
                       fmt::format("{}: {} follows from the other flags", text_of(flag), text));
    }
  }
}

}  // namespace plimsoll
