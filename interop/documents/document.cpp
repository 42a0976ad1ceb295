// Reads JSON documents, and holds the limits of all documents.
#include "interop/documents/document.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "interop/documents/settings.h"

namespace plimsoll {
namespace {

constexpr std::size_t kMostDocumentBytes = std::size_t{1} << 20;
constexpr std::int64_t kMostDocumentDepth = 64, kMostDocumentValues = 100'000;
constexpr std::size_t kMostKeyBytes = 256, kMostWordBytes = 4096;

DocumentWord json_word(const Json& value) {
  if (value.is_string()) return text_word(value.get<std::string>());
  if (value.is_number_float()) return {fmt::format("{}", value.get<double>())};
  return {value.dump()};
}

/// Returns the line on which each value of a JSON text begins. Values are in the order of the text:
/// an object or a list comes before what it holds. The text is well-formed, with an object outside.
/// A byte order mark, which the parser accepts before it, is no value.
std::vector<std::int64_t> lines_of_values(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<std::int64_t> lines;
  std::int64_t line = 1;
  bool is_key = false;          // whether a text that begins here is a key
  std::vector<bool> in_object;  // by nesting
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '\n') ++line;
    if (c == ' ' || c == '\t' || c == '\r' || c == '\n') continue;
    if (c == ',') {
      is_key = in_object.back();
    } else if (c == ':') {
      is_key = false;
    } else if (c == '}' || c == ']') {
      in_object.pop_back();
    } else {
      if (!is_key) lines.push_back(line);
      if (c == '{' || c == '[') {
        in_object.push_back(c == '{');
        is_key = c == '{';
      } else if (c == '"') {
        while (text[++at] != '"') at += text[at] == '\\' ? 1 : 0;
      } else {
        at = text.find_first_of(",]} \t\r\n", at) - 1;
      }
    }
  }
  return lines;
}

/// Collects the values of a JSON text, which it visits in the order of `lines`.
struct JsonVisit {
  SettingCollector& collector;
  std::vector<std::int64_t> lines;
  std::size_t visited = 0;

  std::int64_t count(std::int64_t depth) {
    const std::int64_t line = lines.at(visited++);
    collector.count(depth, line);
    return line;
  }
  std::vector<DocumentWord> words(const Json& list, std::int64_t depth) {
    std::vector<DocumentWord> words;
    for (const Json& element : list) {
      count(depth);
      words.push_back(json_word(element));
    }
    return words;
  }
  void collect(const std::string& key, const Json& value, std::int64_t depth);
};

bool holds_scalars(const Json& list) {
  return std::ranges::none_of(list, [](const Json& element) { return element.is_structured(); });
}

void JsonVisit::collect(const std::string& key, const Json& value, std::int64_t depth) {
  const std::int64_t line = count(depth);
  if (value.is_object()) {
    for (const auto& [name, member] : value.items()) collect(dotted(key, name), member, depth + 1);
    return;
  }
  if (!value.is_array()) {
    collector.add(key, {json_word(value)}, false, line);
    return;
  }
  if (holds_scalars(value)) {
    collector.add(key, words(value, depth), true, line);
    return;
  }
  const bool of_lists = std::ranges::all_of(
      value, [](const Json& element) { return element.is_array() && holds_scalars(element); });
  std::vector<std::vector<DocumentWord>> lists;
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (of_lists) {
      count(depth);
      lists.push_back(words(value[i], depth));
    } else {
      collect(dotted(key, fmt::format("{}", i)), value[i], depth + 1);
    }
  }
  if (of_lists) collector.add_lists(key, lists, line);
}

std::vector<Setting> read_json_document(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file);
  if (!json.is_object()) throw InputError(file, "", "an object is required");
  SettingCollector collector{file};
  JsonVisit{collector, lines_of_values(text)}.collect("", json, 0);
  return std::move(collector.settings);
}

}  // namespace

void SettingCollector::count(std::int64_t depth, std::int64_t line) {
  if (depth > kMostDocumentDepth)
    throw InputError(file, line_place(line), "values are nested at most 64 deep");
  if (++values > kMostDocumentValues)
    throw InputError(file, line_place(line), "at most 100000 values are allowed, aliases counted");
}

void SettingCollector::add(const std::string& key, std::vector<DocumentWord> words, bool list,
                           std::int64_t line) {
  if (key.size() > kMostKeyBytes)
    throw InputError(file, line_place(line),
                     fmt::format("{}: a key of at most 256 bytes is allowed", printable(key)));
  if (!keys.insert(key).second)
    throw InputError(file, line_place(line), fmt::format("{} is given twice", printable(key)));
  settings.push_back({key, std::move(words), list, line});
}

void SettingCollector::add_lists(const std::string& key,
                                 const std::vector<std::vector<DocumentWord>>& lists,
                                 std::int64_t line) {
  DocumentWord word;
  Json json = Json::array();
  for (const std::vector<DocumentWord>& list : lists) {
    json.push_back(Json::array());
    for (const DocumentWord& element : list) {
      json.back().push_back(element.text);
      if (word.unknown.empty()) word.unknown = element.unknown;
    }
  }
  word.text = json.dump(-1, ' ', true);
  add(key, {std::move(word)}, false, line);
}

std::string line_place(std::int64_t line) { return line > 0 ? fmt::format("line {}", line) : ""; }

std::string dotted(std::string_view parent, std::string_view key) {
  return parent.empty() ? std::string(key) : fmt::format("{}.{}", parent, key);
}

DocumentWord text_word(std::string text) {
  if (text.size() > kMostWordBytes) return {printable(text), "the text is longer than 4096 bytes"};
  const bool control =
      std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) < ' '; });
  if (control) return {printable(text), "the text has control characters"};
  return {std::move(text)};
}

std::vector<Setting> read_document(std::string_view text, DocumentSyntax syntax,
                                   const std::string& file) {
  if (text.size() > kMostDocumentBytes)
    throw InputError(file, "", "a file of up to 1 MiB is required");
  if (syntax == DocumentSyntax::toml) return read_toml(text, file);
  if (syntax == DocumentSyntax::json) return read_json_document(text, file);
  std::vector<Setting> settings = read_yaml(text, file);
  resolve_references(settings);
  return settings;
}

}  // namespace plimsoll
