// Conditions of rules are read, and evaluated on a value.
#include "published/row_condition.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace plimsoll {
namespace {

std::string lower_case(std::string text) {
  for (char& c : text) c = char(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string letters_of(const std::string& text) {
  std::string letters;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) letters += c;
  }
  return letters;
}

/// Whether the texts are in it, each after the one before.
bool has_in_order(const std::string& text, const std::vector<std::string>& parts) {
  std::size_t at = 0;
  return std::ranges::all_of(parts, [&](const std::string& part) {
    const std::size_t found = text.find(part, at);
    at = found + part.size();
    return found != std::string::npos;
  });
}

bool is_scalar(const Json& json) { return !json.is_object() && !json.is_array(); }

}  // namespace

RowCondition::RowCondition(JsonObject& object, const std::string& key)
    : RowCondition(object.raw(key), object, key) {}

RowCondition::RowCondition(const Json& json, const JsonObject& object, const std::string& key) {
  if (is_scalar(json)) {
    value_ = json.is_string() ? Json(lower_case(json.get<std::string>())) : json;
  } else if (json.is_array()) {
    kind_ = Kind::any;
    read_parts(json, object, key);
  } else {
    kind_ = Kind::all;
    for (const auto& member : json.items())
      parts_.push_back(RowCondition(member.key(), member.value(), object, key));
    if (parts_.empty()) object.fail(key, "a condition asks for something");
  }
}

RowCondition::RowCondition(std::string_view member, const Json& json, const JsonObject& object,
                           const std::string& key) {
  constexpr std::array<std::string_view, 7> kMembers = {
      "not", "has", "contains", "contains_letters", "starts_with", "least", "most"};
  constexpr std::array kKinds = {
      Kind::none,        Kind::has,   Kind::contains, Kind::contains_letters,
      Kind::starts_with, Kind::least, Kind::most};
  const auto known = std::ranges::find(kMembers, member);
  if (known == kMembers.end()) {
    object.fail(key,
                "a condition has not, has, contains, contains_letters, starts_with, least, most");
  }
  kind_ = kKinds[std::size_t(known - kMembers.begin())];
  if (kind_ == Kind::none || kind_ == Kind::has) {
    parts_.push_back(RowCondition(json, object, key));
  } else if (kind_ == Kind::least || kind_ == Kind::most) {
    if (!json.is_number()) object.fail(key, std::string(member) + " takes a number");
    value_ = json;
  } else {
    const Json texts = json.is_array() && kind_ == Kind::contains ? json : Json::array({json});
    for (const Json& text : texts) {
      if (!text.is_string()) object.fail(key, std::string(member) + " takes text");
      texts_.push_back(lower_case(text.get<std::string>()));
    }
  }
}

void RowCondition::read_parts(const Json& json, const JsonObject& object, const std::string& key) {
  for (const Json& part : json) parts_.push_back(RowCondition(part, object, key));
}

bool RowCondition::holds(const Json& value) const {
  const std::string text = value.is_string() ? lower_case(value.get<std::string>()) : "";
  const auto part_holds = [&](const RowCondition& part) { return part.holds(value); };
  switch (kind_) {
    case Kind::equal:
      return value.is_string() ? value_ == Json(text) : value_ == value;
    case Kind::any:
      return std::ranges::any_of(parts_, part_holds);
    case Kind::all:
      return std::ranges::all_of(parts_, part_holds);
    case Kind::has:
      return value.is_array() &&
             std::ranges::any_of(value, [&](const Json& one) { return parts_[0].holds(one); });
    case Kind::none:
      return std::ranges::none_of(parts_, part_holds);
    case Kind::contains:
      return value.is_string() && has_in_order(text, texts_);
    case Kind::contains_letters:
      return value.is_string() && has_in_order(letters_of(text), texts_);
    case Kind::starts_with:
      return value.is_string() && text.starts_with(texts_[0]);
    case Kind::least:
      return value.is_number() && value.get<double>() >= value_.get<double>();
    case Kind::most:
      return value.is_number() && value.get<double>() <= value_.get<double>();
  }
  return false;
}

}  // namespace plimsoll
