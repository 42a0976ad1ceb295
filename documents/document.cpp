// Reads JSON documents, and holds the limits of all documents.
#include "documents/document.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "documents/settings.h"

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

void collect_json(SettingCollector& collector, const std::string& key, const Json& value,
                  std::int64_t depth) {
  collector.count(depth, 0);
  if (value.is_object()) {
    for (const auto& [name, member] : value.items())
      collect_json(collector, dotted(key, name), member, depth + 1);
    return;
  }
  if (!value.is_array()) {
    collector.add(key, {json_word(value)}, false, 0);
    return;
  }
  const auto is_list = [](const Json& element) {
    return element.is_array() &&
           std::ranges::none_of(element, [](const Json& inner) { return inner.is_structured(); });
  };
  if (!value.empty() && std::ranges::all_of(value, is_list)) {
    std::vector<std::vector<DocumentWord>> lists;
    for (const Json& element : value) {
      lists.emplace_back();
      for (const Json& inner : element) {
        collector.count(depth, 0);
        lists.back().push_back(json_word(inner));
      }
    }
    collector.add_lists(key, lists, 0);
    return;
  }
  if (std::ranges::any_of(value, [](const Json& element) { return element.is_structured(); })) {
    for (std::size_t i = 0; i < value.size(); ++i)
      collect_json(collector, dotted(key, fmt::format("{}", i)), value[i], depth + 1);
    return;
  }
  std::vector<DocumentWord> words;
  for (const Json& element : value) {
    collector.count(depth, 0);
    words.push_back(json_word(element));
  }
  collector.add(key, std::move(words), true, 0);
}

std::vector<Setting> read_json_document(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file);
  if (!json.is_object()) throw InputError(file, "", "an object is required");
  SettingCollector collector{file};
  collect_json(collector, "", json, 0);
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
