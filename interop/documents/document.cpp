// Reads JSON documents, and holds the limits of all documents.
#include "interop/documents/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

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

using JsonLines = std::map<const Json*, std::int64_t>;

/// Gives each value its line, in the order of the text.
void place(const Json& value, const std::vector<std::int64_t>& in_order, JsonLines& lines) {
  const std::int64_t line = in_order.at(lines.size());
  lines.emplace(&value, line);
  if (!value.is_structured()) return;
  for (const Json& member : value) place(member, in_order, lines);
}

struct JsonNode {
  const Json* value;
  const JsonLines* lines;

  std::int64_t line() const { return lines->at(value); }
  NodeKind kind() const {
    return value->is_object()  ? NodeKind::table
           : value->is_array() ? NodeKind::list
                               : NodeKind::scalar;
  }
  DocumentWord word() const { return json_word(*value); }
  std::vector<std::pair<std::string, JsonNode>> members() const {
    std::vector<std::pair<std::string, JsonNode>> all;
    for (const auto& [name, member] : value->items())
      all.emplace_back(name, JsonNode{&member, lines});
    return all;
  }
  std::vector<JsonNode> elements() const {
    std::vector<JsonNode> all;
    for (const Json& element : *value) all.push_back({&element, lines});
    return all;
  }
};

std::vector<Setting> read_json_document(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file);
  if (!json.is_object()) throw InputError(file, "", "an object is required");
  SettingCollector collector{file};
  JsonLines lines;
  place(json, lines_of_values(text), lines);
  collect(collector, "", JsonNode{&json, &lines});
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

DocumentWord word_of_lists(const std::vector<std::vector<DocumentWord>>& lists) {
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
  return word;
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
