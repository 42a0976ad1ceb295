// Values of a config.json are read over the library's defaults.
#include "interop/imports/config_fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace plimsoll {
namespace {

// The product of two sizes stays within 63 bits. check_job has the limits of each.
constexpr std::int64_t kMostSize = std::int64_t{1} << 30;

Json overlaid(const Json& stated, const Json& defaults) {
  Json values = defaults;
  for (const auto& [key, value] : stated.items()) {
    const bool both = value.is_object() && values.contains(key) && values[key].is_object();
    values[key] = both ? overlaid(value, Json(values[key])) : value;
  }
  return values;
}

const Json kNoMembers = Json::object();

/// Writes Infinity, -Infinity and NaN as texts.
std::string without_python_numbers(std::string_view text) {
  constexpr std::string_view kNumbers[] = {"Infinity", "-Infinity", "NaN"};
  std::string json;
  bool quoted = false;
  for (std::size_t at = 0; at < text.size();) {
    const auto begins = [&](std::string_view number) {
      return text.substr(at).starts_with(number);
    };
    const auto number = quoted ? std::end(kNumbers) : std::ranges::find_if(kNumbers, begins);
    if (number != std::end(kNumbers)) {
      json += fmt::format("\"{}\"", *number);
      at += number->size();
      continue;
    }
    const std::size_t length = quoted && text[at] == '\\' ? 2 : 1;
    if (text[at] == '"') quoted = !quoted;
    json += text.substr(at, length);
    at += length;
  }
  return json;
}

}  // namespace

Json parse_python_json(std::string_view text, const std::string& file) {
  return parse_json(without_python_numbers(text), file);
}

std::string text_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

ConfigFields::ConfigFields(const Json& stated, const Json& defaults, std::string file,
                           std::string pointer)
    : stated_(stated),
      values_(overlaid(stated, defaults)),
      object_(values_, std::move(file), std::move(pointer)) {}

ConfigFields::Member ConfigFields::member(const std::string& key) const {
  const std::size_t slash = key.find('/');
  if (slash == key.npos) return {object_, key};
  const std::string outer = key.substr(0, slash);
  const auto found = values_.find(outer);
  const bool there = found != values_.end() && found->is_object();
  return {JsonObject(there ? *found : kNoMembers, file(), json_pointer(pointer(), outer)),
          key.substr(slash + 1)};
}

bool ConfigFields::is_stated(const std::string& key) const {
  const std::size_t slash = key.find('/');
  const auto found = stated_.find(key.substr(0, slash));
  if (found == stated_.end() || slash == key.npos) return found != stated_.end();
  return found->is_object() && found->contains(key.substr(slash + 1));
}

std::string ConfigFields::place(const std::string& key) const {
  const Member own = member(key);
  return json_pointer(own.object.pointer(), own.name);
}

bool ConfigFields::has(const std::string& key) {
  mark_read(key);
  Member own = member(key);
  return own.object.has(own.name);
}

std::int64_t ConfigFields::size(const std::string& key) {
  mark_read(key);
  Member own = member(key);
  const std::int64_t value = own.object.integer(own.name, 1, kMostSize);
  const std::string words = fmt::format("{} {}", key, value);
  if (!is_stated(key) && std::ranges::find(assumed_, words) == assumed_.end())
    assumed_.push_back(words);
  return value;
}

double ConfigFields::number(const std::string& key, double least, double most) {
  mark_read(key);
  Member own = member(key);
  return own.object.number(own.name, least, most);
}

double ConfigFields::dropout(const std::string& key) {
  return !key.empty() && has(key) ? number(key, 0, 1) : 0;
}

bool ConfigFields::boolean(const std::string& key) {
  if (!has(key)) return false;
  Member own = member(key);
  return own.object.boolean(own.name);
}

std::string ConfigFields::text(const std::string& key) {
  mark_read(key);
  Member own = member(key);
  return own.object.text(own.name);
}

const Json& ConfigFields::raw(const std::string& key) {
  mark_read(key);
  const std::size_t slash = key.find('/');
  return slash == key.npos ? object_.raw(key)
                           : values_.at(key.substr(0, slash)).at(key.substr(slash + 1));
}

std::vector<std::string> ConfigFields::unread_members(const std::string& key) const {
  const std::string prefix = key + "/";
  const auto first = read_.lower_bound(prefix);
  std::vector<std::string> names;
  if (first == read_.end() || !first->starts_with(prefix)) return names;
  const auto object = stated_.find(key);
  if (object == stated_.end() || !object->is_object()) return names;
  for (const auto& [name, value] : object->items()) {
    if (!is_read(prefix + name) && !value.is_null()) names.push_back(name);
  }
  return names;
}

InputError ConfigFields::fault(const std::string& key, std::string_view message) const {
  const std::size_t slash = key.find('/');
  const Json outer = slash == key.npos ? values_ : values_.value(key.substr(0, slash), kNoMembers);
  const auto found = outer.find(key.substr(slash == key.npos ? 0 : slash + 1));
  const std::string value = found == outer.end() ? "nothing" : printable(found->dump());
  return InputError(file(), place(key), fmt::format("found {}; {}", value, message));
}

}  // namespace plimsoll
