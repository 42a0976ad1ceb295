// Writes documents.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "interop/documents/document.h"

namespace plimsoll {
namespace {

std::string commented(const std::vector<std::string>& comments) {
  std::string text;
  for (const std::string& line : comments) text += line.empty() ? "#\n" : "# " + line + "\n";
  return text;
}

/// Readers of YAML 1.1 take 1e-08 for a text: their floats have a point.
std::string number_text(const Json& value) {
  std::string text = value.dump();
  const std::size_t exponent = text.find('e');
  if (exponent != text.npos && text.find('.') == text.npos) text.insert(exponent, ".0");
  return text;
}

/// Texts are in quotes, with JSON's escapes, which TOML and YAML share.
std::string scalar_text(const Json& value) {
  if (value.is_number_float()) return number_text(value);
  return value.dump(-1, ' ', true);
}

std::string leaf_text(const Json& value) {
  if (!value.is_array()) return scalar_text(value);
  std::vector<std::string> elements;
  for (const Json& element : value) elements.push_back(scalar_text(element));
  return fmt::format("[{}]", fmt::join(elements, ", "));
}

/// A name needs no quotes where it has only letters, digits, '_' and '-'.
std::string key_text(const std::string& key) {
  const auto plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '-';
  };
  const bool name = !key.empty() && !(key[0] >= '0' && key[0] <= '9') && key[0] != '-';
  return name && std::ranges::all_of(key, plain) ? key : Json(key).dump(-1, ' ', true);
}

void add_toml(std::string& text, const std::string& table, const Json& values) {
  std::string leaves;
  for (const auto& [key, value] : values.items()) {
    if (!value.is_object() && !value.is_null())
      leaves += fmt::format("{} = {}\n", key_text(key), leaf_text(value));
  }
  if (!leaves.empty()) {
    if (!text.empty()) text += "\n";
    if (!table.empty()) text += fmt::format("[{}]\n", table);
    text += leaves;
  }
  for (const auto& [key, value] : values.items()) {
    if (value.is_object())
      add_toml(text, table.empty() ? key_text(key) : table + "." + key_text(key), value);
  }
}

void add_yaml(std::string& text, const std::string& indent, const Json& values) {
  for (const auto& [key, value] : values.items()) {
    if (!value.is_object()) {
      text += fmt::format("{}{}: {}\n", indent, key_text(key), leaf_text(value));
    } else if (!value.empty()) {
      text += fmt::format("{}{}:\n", indent, key_text(key));
      add_yaml(text, indent + "  ", value);
    }
  }
}

}  // namespace

std::string document_text(const Json& values, DocumentSyntax syntax,
                          const std::vector<std::string>& comments) {
  if (syntax == DocumentSyntax::json) return json_text(values);
  std::string text = commented(comments);
  if (syntax == DocumentSyntax::toml) {
    add_toml(text, "", values);
  } else {
    if (!text.empty()) text += "\n";
    add_yaml(text, "", values);
  }
  return text;
}

}  // namespace plimsoll
