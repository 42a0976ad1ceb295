// Values of a config.json are read over the library's defaults.
#include "imports/config_fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace plimsoll {
namespace {

// The product of two sizes stays within 63 bits. check_job has the limits of each.
constexpr std::int64_t kMostSize = std::int64_t{1} << 30;

Json overlaid(const Json& stated, const Json& defaults) {
  Json values = defaults;
  for (const auto& [key, value] : stated.items()) values[key] = value;
  return values;
}

}  // namespace

std::string text_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

ConfigFields::ConfigFields(const Json& stated, const Json& defaults, std::string file,
                           std::string pointer)
    : stated_(stated),
      values_(overlaid(stated, defaults)),
      object_(values_, std::move(file), std::move(pointer)) {}

bool ConfigFields::has(const std::string& key) {
  read_.insert(key);
  return object_.has(key);
}

std::int64_t ConfigFields::size(const std::string& key) {
  read_.insert(key);
  const std::int64_t value = object_.integer(key, 1, kMostSize);
  const std::string words = fmt::format("{} {}", key, value);
  if (!stated_.contains(key) && std::ranges::find(assumed_, words) == assumed_.end())
    assumed_.push_back(words);
  return value;
}

double ConfigFields::number(const std::string& key, double least, double most) {
  read_.insert(key);
  return object_.number(key, least, most);
}

double ConfigFields::dropout(const std::string& key) {
  return !key.empty() && has(key) ? number(key, 0, 1) : 0;
}

bool ConfigFields::boolean(const std::string& key) { return has(key) && object_.boolean(key); }

std::string ConfigFields::text(const std::string& key) {
  read_.insert(key);
  return object_.text(key);
}

const Json& ConfigFields::raw(const std::string& key) {
  read_.insert(key);
  return object_.raw(key);
}

void ConfigFields::fail(const std::string& key, std::string_view message) const {
  const auto found = values_.find(key);
  const std::string value = found == values_.end() ? "nothing" : printable(found->dump());
  throw InputError(file(), json_pointer(pointer(), key),
                   fmt::format("found {}; {}", value, message));
}

}  // namespace plimsoll
