// Reads TOML by toml++ (docs/adr/0042-documents.md).
#include <fmt/format.h>

#include <stdexcept>

namespace plimsoll {
/// Some damaged files break assertions of toml++ 3.3: they are refused like others.
constexpr void check_toml(bool holds) {
  if (!holds) throw std::logic_error("a value is malformed");
}
}  // namespace plimsoll

#define TOML_ASSERT(condition) plimsoll::check_toml(bool(condition))
#define TOML_EXCEPTIONS 1
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include <algorithm>

#include "base/error.h"
#include "documents/settings.h"

namespace plimsoll {
namespace {

std::int64_t line_of(const toml::node& node) { return std::int64_t(node.source().begin.line); }

DocumentWord toml_word(const toml::node& node) {
  if (const auto text = node.as_string()) return text_word(text->get());
  if (const auto value = node.as_integer()) return {fmt::format("{}", value->get())};
  if (const auto value = node.as_floating_point()) return {fmt::format("{}", value->get())};
  if (const auto value = node.as_boolean()) return {value->get() ? "true" : "false"};
  return {"a date", "dates say nothing of a job"};
}

bool holds_scalars(const toml::array& array) {
  return std::none_of(array.begin(), array.end(), [](const toml::node& element) {
    return element.is_table() || element.is_array();
  });
}

std::vector<DocumentWord> toml_words(SettingCollector& collector, const toml::array& array,
                                     std::int64_t depth) {
  std::vector<DocumentWord> words;
  for (const toml::node& element : array) {
    collector.count(depth, line_of(array));
    words.push_back(toml_word(element));
  }
  return words;
}

void collect_toml(SettingCollector& collector, const std::string& key, const toml::node& node,
                  std::int64_t depth) {
  collector.count(depth, line_of(node));
  if (const toml::table* table = node.as_table()) {
    for (const auto& [name, member] : *table)
      collect_toml(collector, dotted(key, name.str()), member, depth + 1);
    return;
  }
  const toml::array* array = node.as_array();
  if (array == nullptr) {
    collector.add(key, {toml_word(node)}, false, line_of(node));
    return;
  }
  if (holds_scalars(*array)) {
    collector.add(key, toml_words(collector, *array, depth), true, line_of(node));
    return;
  }
  const bool lists = std::all_of(array->begin(), array->end(), [](const toml::node& element) {
    return element.is_array() && holds_scalars(*element.as_array());
  });
  std::vector<std::vector<DocumentWord>> words;
  for (std::size_t i = 0; i < array->size(); ++i) {
    const toml::node& element = *array->get(i);
    if (lists) {
      words.push_back(toml_words(collector, *element.as_array(), depth));
    } else {
      collect_toml(collector, dotted(key, fmt::format("{}", i)), element, depth + 1);
    }
  }
  if (lists) collector.add_lists(key, words, line_of(node));
}

}  // namespace

std::vector<Setting> read_toml(std::string_view text, const std::string& file) {
  SettingCollector collector{file};
  try {
    const toml::table table = toml::parse(text);
    collect_toml(collector, "", table, 0);
  } catch (const toml::parse_error& error) {
    throw InputError(file, line_place(std::int64_t(error.source().begin.line)),
                     fmt::format("no TOML: {}", printable(error.description(), 200)));
  } catch (const std::logic_error& error) {
    throw InputError(file, "", fmt::format("no TOML: {}", error.what()));
  }
  // toml++ orders keys by name; messages and lists follow the file.
  std::stable_sort(collector.settings.begin(), collector.settings.end(),
                   [](const Setting& a, const Setting& b) { return a.line < b.line; });
  return std::move(collector.settings);
}

}  // namespace plimsoll
