// Checked getters over parsed JSON, and pretty text.
#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/file.h"
#include "base/schema_note.h"

namespace plimsoll {
namespace {

constexpr std::size_t kLineWidth = 100;

std::string scalar_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Appends `value` on one line; false as soon as `text` would exceed `most` characters.
bool append_flat(std::string& text, const Json& value, std::size_t most) {
  if (!value.is_structured()) {
    text += scalar_text(value);
    return text.size() <= most;
  }
  text += value.is_array() ? '[' : '{';
  bool first = true;
  for (const auto& member : value.items()) {
    if (!first) text += ", ";
    first = false;
    if (value.is_object()) text += scalar_text(Json(member.key())) + ": ";
    if (!append_flat(text, member.value(), most)) return false;
  }
  text += value.is_array() ? ']' : '}';
  return text.size() <= most;
}

/// Appends `value`; `column` characters stand on its first line already.
void append_pretty(std::string& text, const Json& value, std::size_t indent, std::size_t column) {
  std::string flat;
  const std::size_t room = column + 1 < kLineWidth ? kLineWidth - column - 1 : 0;
  if (!value.is_structured() || value.empty() || append_flat(flat, value, room)) {
    text += value.is_structured() && !value.empty() ? flat : scalar_text(value);
    return;
  }
  const std::string margin(indent + 2, ' ');
  text += value.is_array() ? "[" : "{";
  bool first = true;
  for (const auto& member : value.items()) {
    text += first ? "\n" : ",\n";
    first = false;
    const std::string label = value.is_object() ? scalar_text(Json(member.key())) + ": " : "";
    text += margin + label;
    append_pretty(text, member.value(), indent + 2, margin.size() + label.size());
  }
  text += "\n" + std::string(indent, ' ') + (value.is_array() ? "]" : "}");
}

/// The words with which a message says what was found.
std::string found(const Json& value) {
  if (value.is_object()) return fmt::format("an object of {} members", value.size());
  if (value.is_array()) return fmt::format("an array of {} elements", value.size());
  return printable(scalar_text(value));
}

std::string number_text(double value) { return fmt::format("{}", value); }

}  // namespace

std::string printable(std::string_view text, std::size_t most) {
  std::string safe;
  for (char c : text.substr(0, most)) safe += c >= 0x20 && c < 0x7f ? c : '?';
  return text.size() > most ? safe + "..." : safe;
}

std::string json_pointer(std::string_view parent, std::string_view key) {
  std::string pointer(parent);
  pointer += '/';
  for (char c : key) {
    if (c == '~') {
      pointer += "~0";
    } else if (c == '/') {
      pointer += "~1";
    } else {
      pointer += c;
    }
  }
  return pointer;
}

Json read_json(const std::filesystem::path& path) {
  return parse_json(read_file(path), path.string());
}

std::string json_text(const Json& value) {
  std::string text;
  append_pretty(text, value, 0, 0);
  return text + "\n";
}

JsonObject::JsonObject(const Json& value, std::string file, std::string pointer)
    : value_(&value), file_(std::move(file)), pointer_(std::move(pointer)) {
  if (!value.is_object()) {
    throw InputError(file_, pointer_, fmt::format("found {}; an object is required", found(value)));
  }
}

std::string JsonObject::pointer_to(std::string_view key) const {
  return json_pointer(pointer_, key);
}

bool JsonObject::has(std::string_view key) const {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.emplace_back(key);
  const auto member = value_->find(std::string(key));
  return member != value_->end() && !member->is_null();
}

const Json& JsonObject::member(std::string_view key) {
  has(key);
  const auto member = value_->find(std::string(key));
  if (member != value_->end()) return *member;
  // A misspelt key is the likeliest reason, and finish() would not be reached to say so.
  std::vector<std::string> others;
  for (const auto& other : value_->items()) others.push_back(other.key());
  const std::string near = nearest(key, others);
  throw InputError(file_, pointer_to(key),
                   near.empty() ? std::string("the key is missing")
                                : fmt::format("the key is missing; is \"{}\" a misspelling of it?",
                                              printable(near)));
}

void JsonObject::fail(std::string_view key, const std::string& message) const {
  const auto member = value_->find(std::string(key));
  const std::string what = member == value_->end() ? "nothing" : found(*member);
  throw InputError(file_, pointer_to(key), fmt::format("found {}; {}", what, message));
}

std::int64_t JsonObject::integer(std::string_view key, std::int64_t least, std::int64_t most) {
  const Json& value = member(key);
  const auto allowed = fmt::format("an integer from {} to {} is required", least, most);
  if (!value.is_number_integer()) fail(key, allowed);
  const auto number = value.get<std::int64_t>();
  if (number < least || number > most) fail(key, allowed);
  return number;
}

double JsonObject::number(std::string_view key, double least, double most) {
  const Json& value = member(key);
  const auto allowed =
      fmt::format("a number from {} to {} is required", number_text(least), number_text(most));
  if (!value.is_number()) fail(key, allowed);
  const double number = value.get<double>();
  if (!(number >= least && number <= most)) fail(key, allowed);
  return number;
}

bool JsonObject::boolean(std::string_view key) {
  const Json& value = member(key);
  if (!value.is_boolean()) fail(key, "true or false is required");
  return value.get<bool>();
}

std::string JsonObject::text(std::string_view key) {
  const Json& value = member(key);
  if (!value.is_string()) fail(key, "a text is required");
  return value.get<std::string>();
}

std::size_t JsonObject::choice(std::string_view key, std::span<const std::string_view> allowed) {
  const Json& value = member(key);
  if (value.is_string()) {
    const auto& word = value.get_ref<const std::string&>();
    const auto at = std::find(allowed.begin(), allowed.end(), word);
    if (at != allowed.end()) return static_cast<std::size_t>(at - allowed.begin());
  }
  std::string list;
  for (std::string_view word : allowed) {
    list += fmt::format("{}\"{}\"", list.empty() ? "" : ", ", word);
  }
  const std::vector<std::string> words(allowed.begin(), allowed.end());
  const std::string near =
      value.is_string() ? nearest(value.get_ref<const std::string&>(), words) : "";
  fail(key, fmt::format("allowed: {}{}", list,
                        near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near)));
}

namespace {
/// Runs a unit parser on a text member; its refusal becomes `refuse(message)`.
template <class Parse, class Refuse>
auto parsed(const Json& value, Parse parse, Refuse refuse) {
  if (!value.is_string()) refuse("a text with a number and a unit is required, as in \"80 GiB\"");
  try {
    return parse(value.get_ref<const std::string&>());
  } catch (const std::invalid_argument& error) {
    refuse(error.what());
    throw;
  }
}
}  // namespace

Bytes JsonObject::bytes(std::string_view key) {
  return parsed(member(key), parse_bytes, [&](const std::string& message) { fail(key, message); });
}

Seconds JsonObject::seconds(std::string_view key) {
  return parsed(member(key), parse_seconds,
                [&](const std::string& message) { fail(key, message); });
}

BytesPerSecond JsonObject::bytes_per_second(std::string_view key) {
  return parsed(member(key), parse_bytes_per_second,
                [&](const std::string& message) { fail(key, message); });
}

FlopsPerSecond JsonObject::flops_per_second(std::string_view key) {
  return parsed(member(key), parse_flops_per_second,
                [&](const std::string& message) { fail(key, message); });
}

JsonObject JsonObject::object(std::string_view key) {
  return JsonObject(member(key), file_, pointer_to(key));
}

std::vector<JsonObject> JsonObject::objects(std::string_view key) {
  const Json& value = member(key);
  if (!value.is_array()) fail(key, "an array of objects is required");
  std::vector<JsonObject> result;
  result.reserve(value.size());
  for (std::size_t i = 0; i < value.size(); ++i) {
    result.emplace_back(value[i], file_, fmt::format("{}/{}", pointer_to(key), i));
  }
  return result;
}

std::vector<std::int64_t> JsonObject::integers(std::string_view key, std::int64_t least,
                                               std::int64_t most) {
  const Json& value = member(key);
  const auto allowed = fmt::format("integers from {} to {}", least, most);
  if (!value.is_array()) fail(key, fmt::format("an array of {} is required", allowed));
  std::vector<std::int64_t> result;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const bool whole = value[i].is_number_integer();
    const std::int64_t number = whole ? value[i].get<std::int64_t>() : 0;
    if (!whole || number < least || number > most) {
      throw InputError(file_, fmt::format("{}/{}", pointer_to(key), i),
                       fmt::format("found {}; {} are required", found(value[i]), allowed));
    }
    result.push_back(number);
  }
  return result;
}

std::vector<double> JsonObject::numbers(std::string_view key) {
  const Json& value = member(key);
  if (!value.is_array()) fail(key, "an array of numbers is required");
  std::vector<double> result;
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (!value[i].is_number()) {
      throw InputError(file_, fmt::format("{}/{}", pointer_to(key), i),
                       fmt::format("found {}; a number is required", found(value[i])));
    }
    result.push_back(value[i].get<double>());
  }
  return result;
}

std::vector<std::string> JsonObject::texts(std::string_view key) {
  const Json& value = member(key);
  if (!value.is_array()) fail(key, "an array of texts is required");
  std::vector<std::string> result;
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (!value[i].is_string()) {
      throw InputError(file_, fmt::format("{}/{}", pointer_to(key), i),
                       fmt::format("found {}; a text is required", found(value[i])));
    }
    result.push_back(value[i].get<std::string>());
  }
  return result;
}

std::vector<std::string> JsonObject::keys() {
  std::vector<std::string> result;
  for (const auto& member : value_->items()) result.push_back(member.key());
  known_.insert(known_.end(), result.begin(), result.end());
  return result;
}

const Json& JsonObject::raw(std::string_view key) { return member(key); }

void JsonObject::finish() const {
  for (const auto& member : value_->items()) {
    if (std::find(known_.begin(), known_.end(), member.key()) != known_.end()) continue;
    if (pointer_.empty() && is_schema_note(member.key(), member.value())) continue;
    const std::string near = nearest(member.key(), known_);
    throw InputError(file_, pointer_to(member.key()),
                     near.empty() ? std::string("unknown key")
                                  : fmt::format("unknown key; did you mean \"{}\"?", near));
  }
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  // Levenshtein distance, one row at a time.
  const auto distance = [&](std::string_view other) {
    std::vector<std::size_t> row(other.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < word.size(); ++i) {
      std::size_t diagonal = row[0];
      row[0] = i + 1;
      for (std::size_t j = 0; j < other.size(); ++j) {
        const std::size_t change = diagonal + (word[i] == other[j] ? 0 : 1);
        diagonal = row[j + 1];
        row[j + 1] = std::min({change, row[j] + 1, row[j + 1] + 1});
      }
    }
    return row.back();
  };
  // Near: at most a third of the word differs (one letter of a short word).
  std::size_t best = std::max<std::size_t>(1, word.size() / 3) + 1;
  std::string result;
  for (const std::string& candidate : candidates) {
    const std::size_t letters = distance(candidate);
    if (letters < best && letters < candidate.size()) {
      best = letters;
      result = candidate;
    }
  }
  return result;
}

}  // namespace plimsoll
