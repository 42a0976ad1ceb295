// A struct that files hold lists its fields once. The list reads them, writes them and checks their
// limits:
//     constexpr auto kHostFields = [](auto& fields, auto& host) {
//       fields.required("to_host", host.to_host, {kLeastBandwidth, kMostBandwidth});
//       fields.optional("memory", host.memory);
//     };
//     Host host = read_listed<Host>(object, kHostFields);
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/units.h"

namespace plimsoll {

/// Which values a field takes: numbers within limits, or words, which are those of its enumerators.
struct Allowed {
  constexpr Allowed() = default;
  constexpr Allowed(double from, double to) : least(from), most(to) {}
  template <std::convertible_to<std::span<const std::string_view>> Words>
  constexpr Allowed(const Words& of, const char* named = nullptr)  // NOLINT(google-explicit-*)
      : words(of), what(named) {}

  double least = 0, most = 0x1p53;
  std::span<const std::string_view> words;
  const char* what = nullptr;  ///< names the words in errors where they are too many to be listed
};

/// How a value is stated that has a writer of its JSON and a reader. Readers are given its object,
/// or the object around it and its key.
template <class Write, class Read>
struct Form {
  Write write;
  Read read;
};
template <class Write, class Read>
Form(Write, Read) -> Form<Write, Read>;

/// How files state quantities: as numbers of SI units, or as texts such as "80 GiB".
enum class Units : std::uint8_t { numbers, texts };

namespace field_list {

template <class Value>
inline constexpr bool kIsOptional = false;
template <class Value>
inline constexpr bool kIsOptional<std::optional<Value>> = true;
template <class Value>
inline constexpr bool kIsVector = false;
template <class Value>
inline constexpr bool kIsVector<std::vector<Value>> = true;

inline bool is_missing(const std::string& text) { return text.empty(); }
template <class Value>
bool is_missing(const std::optional<Value>& value) {
  return !value;
}

/// A set of enumerators or of integers from 0: SetOf of models/kinds/set_of.h.
template <class Value>
inline constexpr bool kIsSet = requires {
  typename Value::Element;
};

inline Bytes text_of(JsonObject& object, std::string_view key, Bytes) { return object.bytes(key); }
inline Seconds text_of(JsonObject& object, std::string_view key, Seconds) {
  return object.seconds(key);
}
inline BytesPerSecond text_of(JsonObject& object, std::string_view key, BytesPerSecond) {
  return object.bytes_per_second(key);
}
inline FlopsPerSecond text_of(JsonObject& object, std::string_view key, FlopsPerSecond) {
  return object.flops_per_second(key);
}

/// Texts of FLOPs and of picoseconds do not occur.
template <class Quantity>
void read_quantity(JsonObject& object, std::string_view key, const Allowed& allowed, Units units,
                   Quantity& value) {
  if constexpr (requires { text_of(object, key, value); }) {
    if (units == Units::texts) {
      value = text_of(object, key, value);
      const Quantity least(allowed.least), most(allowed.most);
      if (value >= least && value <= most) return;
      object.fail(key,
                  fmt::format("from {} to {} is required", exact_text(least), exact_text(most)));
    }
  }
  if constexpr (requires { value.count(); }) {
    value = Quantity(object.integer(key, std::int64_t(allowed.least), std::int64_t(allowed.most)));
  } else {
    value = Quantity(object.number(key, allowed.least, allowed.most));
  }
}

inline std::size_t read_word(JsonObject& object, std::string_view key, const Allowed& allowed) {
  if (allowed.what == nullptr) return object.choice(key, allowed.words);
  const auto word = std::ranges::find(allowed.words, object.text(key));
  if (word == allowed.words.end())
    object.fail(key, fmt::format("the name of {} is required", allowed.what));
  return std::size_t(word - allowed.words.begin());
}

/// Enumerators are stated by their words.
template <class Set>
void read_set(JsonObject& object, std::string_view key, const Allowed& allowed, Set& set) {
  using Element = typename Set::Element;
  set = {};
  if constexpr (std::is_enum_v<Element>) {
    for (const std::string& text : object.texts(key)) {
      const auto word = std::ranges::find(allowed.words, text);
      if (word == allowed.words.end())
        object.fail(key, fmt::format("allowed: {}", fmt::join(allowed.words, ", ")));
      set.add(Element(word - allowed.words.begin()));
    }
  } else {
    for (const Element one :
         object.integers(key, std::int64_t(allowed.least), std::int64_t(allowed.most)))
      set.add(one);
  }
}

template <class Set>
Json set_json(const Set& set, const Allowed& allowed) {
  using Element = typename Set::Element;
  Json list = Json::array();
  if constexpr (std::is_enum_v<Element>) {
    for (std::size_t i = 0; i < allowed.words.size(); ++i)
      if (set.has(Element(i))) list.push_back(allowed.words[i]);
  } else {
    for (Element one = 0; double(one) <= allowed.most; ++one)
      if (set.has(one)) list.push_back(one);
  }
  return list;
}

}  // namespace field_list

/// Reads the value of a key that is there. A list of switches has 1 and 0.
template <class Value>
void read_value(JsonObject& object, std::string_view key, const Allowed& allowed, Units units,
                Value& value) {
  if constexpr (std::same_as<Value, bool>) {
    value = allowed.words.empty() ? object.boolean(key)
                                  : field_list::read_word(object, key, allowed) == 1;
  } else if constexpr (std::is_enum_v<Value>) {
    value = Value(field_list::read_word(object, key, allowed));
  } else if constexpr (std::same_as<Value, std::int64_t>) {
    value = object.integer(key, std::int64_t(allowed.least), std::int64_t(allowed.most));
  } else if constexpr (std::same_as<Value, double>) {
    value = object.number(key, allowed.least, allowed.most);
  } else if constexpr (std::same_as<Value, std::string>) {
    value = object.text(key);
  } else if constexpr (std::same_as<Value, std::vector<std::string>>) {
    value = object.texts(key);
  } else if constexpr (std::same_as<Value, std::vector<double>>) {
    value = object.numbers(key);
  } else if constexpr (std::same_as<Value, std::vector<std::int64_t>>) {
    value = object.integers(key, std::int64_t(allowed.least), std::int64_t(allowed.most));
  } else if constexpr (std::same_as<Value, std::vector<bool>>) {
    value.clear();
    for (const std::int64_t one : object.integers(key, 0, 1)) value.push_back(one == 1);
    if (value.empty()) object.fail(key, "at least one value is required");
  } else if constexpr (field_list::kIsSet<Value>) {
    field_list::read_set(object, key, allowed, value);
  } else {
    field_list::read_quantity(object, key, allowed, units, value);
  }
}

template <class Value>
Json value_json(const Value& value, const Allowed& allowed, Units units) {
  if constexpr (std::same_as<Value, bool> || std::is_enum_v<Value>) {
    if (!allowed.words.empty()) return allowed.words[std::size_t(value)];
    return value;
  } else if constexpr (std::same_as<Value, std::vector<bool>>) {
    Json list = Json::array();
    for (const bool one : value) list.push_back(one ? 1 : 0);
    return list;
  } else if constexpr (field_list::kIsSet<Value>) {
    return field_list::set_json(value, allowed);
  } else if constexpr (requires { Json(value); }) {
    return value;
  } else {
    if constexpr (requires { exact_text(value); })
      if (units == Units::texts) return exact_text(value);
    if constexpr (requires { value.count(); }) {
      return value.count();
    } else {
      return value.value();
    }
  }
}

/// A list of fields calls these. `how` is Allowed, a Form, or the list of a nested struct, of which
/// there may be several.
template <class Own>
class FieldVisitor {
 public:
  template <class Value, class How = Allowed>
  void required(std::string_view key, Value& value, const How& how = {}) {
    own().field(key, value, true, true, how);
  }
  /// Files may leave it out. It is always written.
  template <class Value, class How = Allowed>
  void defaulted(std::string_view key, Value& value, const How& how = {}) {
    own().field(key, value, false, true, how);
  }
  /// Files may leave it out. It is written unless it is 0, false or absent.
  template <class Value, class How = Allowed>
  void optional(std::string_view key, Value& value, const How& how = {}) {
    if constexpr (field_list::kIsOptional<std::remove_const_t<Value>>) {
      own().field(key, value, false, value.has_value(), how);
    } else {
      unless(Value{}, key, value, how);
    }
  }
  /// Files may leave it out. It is written unless it is `usual`.
  template <class Usual, class Value, class How = Allowed>
  void unless(const Usual& usual, std::string_view key, Value& value, const How& how = {}) {
    own().field(key, value, false, value != std::remove_const_t<Value>(usual), how);
  }
  /// A text or an optional value, which is null where it is missing.
  template <class Value, class How = Allowed>
  void or_null(std::string_view key, Value& value, const How& how = {}) {
    if (!own().null(key, value)) required(key, value, how);
  }
  /// The version of the file, which is the one that this build reads.
  void version(std::int64_t known) {
    std::int64_t stated = known;
    required("version", stated);
    check(stated == known, "version", "this build reads version {}", known);
  }
  /// Requires what a value has to do with others. Only readers do.
  template <class... Arguments>
  void check(bool kept, std::string_view key, fmt::format_string<Arguments...> message,
             Arguments&&... arguments) {
    if (!kept) own().fail(key, fmt::format(message, std::forward<Arguments>(arguments)...));
  }

 private:
  Own& own() { return static_cast<Own&>(*this); }
};

class FieldReader : public FieldVisitor<FieldReader> {
 public:
  static constexpr bool kReads = true;
  FieldReader(JsonObject& object, Units units) : object_(object), units_(units) {}

  template <class Value, class How>
  void field(std::string_view key, Value& value, bool required, bool, const How& how) {
    if (required || object_.has(key)) read(key, value, how);
  }
  template <class Value>
  bool null(std::string_view key, Value& value) {
    if (!object_.raw(key).is_null()) return false;
    value = Value();
    return true;
  }
  [[noreturn]] void fail(std::string_view key, const std::string& message) const {
    object_.fail(key, message);
  }
  JsonObject& object() { return object_; }

 private:
  template <class Value, class How>
  void read(std::string_view key, Value& value, const How& how) {
    if constexpr (field_list::kIsOptional<Value>) {
      read(key, value.emplace(), how);
    } else if constexpr (std::convertible_to<const How&, Allowed>) {
      read_value(object_, key, how, units_, value);
    } else if constexpr (requires { how.read(object_, key); }) {
      value = how.read(object_, key);
    } else if constexpr (requires { how.read(object_); }) {
      value = how.read(object_.object(key));
    } else if constexpr (field_list::kIsVector<Value>) {
      value.clear();
      for (JsonObject& object : object_.objects(key)) one(object, value.emplace_back(), how);
    } else {
      JsonObject object = object_.object(key);
      one(object, value, how);
    }
  }
  template <class Value, class List>
  void one(JsonObject& object, Value& value, const List& list) {
    FieldReader reader(object, units_);
    list(reader, value);
    object.finish();
  }

  JsonObject& object_;
  Units units_;
};

class FieldWriter : public FieldVisitor<FieldWriter> {
 public:
  static constexpr bool kReads = false;
  FieldWriter(Json& json, Units units) : json_(json), units_(units) {}

  template <class Value, class How>
  void field(std::string_view key, const Value& value, bool, bool written, const How& how) {
    if (!written) return;
    if constexpr (field_list::kIsOptional<Value>) {
      if (value) json_[std::string(key)] = json_of(*value, how);
    } else {
      json_[std::string(key)] = json_of(value, how);
    }
  }
  template <class Value>
  bool null(std::string_view key, const Value& value) {
    const bool missing = field_list::is_missing(value);
    if (missing) json_[std::string(key)] = nullptr;
    return missing;
  }
  void fail(std::string_view, const std::string&) const {}
  Json& json() { return json_; }

 private:
  template <class Value, class How>
  Json json_of(const Value& value, const How& how) {
    if constexpr (std::convertible_to<const How&, Allowed>) {
      return value_json(value, how, units_);
    } else if constexpr (requires { how.write(value); }) {
      return how.write(value);
    } else if constexpr (field_list::kIsVector<Value>) {
      Json array = Json::array();
      for (const auto& one : value) array.push_back(json_of(one, how));
      return array;
    } else {
      return listed_json(value, how, units_);
    }
  }

  Json& json_;
  Units units_;
};

/// Checks the limits of a struct that was not read from a file.
class FieldChecker : public FieldVisitor<FieldChecker> {
 public:
  static constexpr bool kReads = false;
  FieldChecker(const std::string& file, std::string pointer)
      : file_(file), pointer_(std::move(pointer)) {}

  template <class Value, class How>
  void field(std::string_view key, const Value& value, bool, bool written, const How& how) {
    if (written) within(json_pointer(pointer_, key), value, how);
  }
  void fail(std::string_view, const std::string&) const {}

 private:
  template <class Value, class How>
  void within(const std::string& at, const Value& value, const How& how) {
    if constexpr (field_list::kIsOptional<Value>) {
      if (value) within(at, *value, how);
    } else if constexpr (!std::convertible_to<const How&, Allowed>) {
      if constexpr (field_list::kIsVector<Value>) {
        for (std::size_t i = 0; i < value.size(); ++i)
          within(fmt::format("{}/{}", at, i), value[i], how);
      } else {
        FieldChecker checker(file_, at);
        how(checker, value);
      }
    } else if constexpr (std::same_as<Value, std::int64_t> || std::same_as<Value, double>) {
      const Allowed allowed = how;
      if (double(value) >= allowed.least && double(value) <= allowed.most) return;
      throw InputError(file_, at,
                       fmt::format("found {}; {} from {} to {} is required", value,
                                   std::same_as<Value, double> ? "a number" : "an integer",
                                   Value(allowed.least), Value(allowed.most)));
    }
  }

  const std::string& file_;
  std::string pointer_;
};

/// Whether a list is given a FieldReader: `if constexpr (kReading<decltype(fields)>)`.
template <class Visitor>
inline constexpr bool kReading = std::remove_reference_t<Visitor>::kReads;

/// Reads the fields of a struct. Keys that the list does not name are left to the caller.
template <class Value, class List>
void read_listed(JsonObject& object, Value& value, const List& list, Units units = Units::numbers) {
  FieldReader reader(object, units);
  list(reader, value);
}

/// Reads a struct from an object that has its fields alone.
template <class Value, class List>
Value read_listed(JsonObject object, const List& list, Units units = Units::numbers) {
  Value value;
  read_listed(object, value, list, units);
  object.finish();
  return value;
}

template <class Value, class List>
Json listed_json(const Value& value, const List& list, Units units = Units::numbers) {
  Json json = Json::object();
  FieldWriter writer(json, units);
  list(writer, value);
  return json;
}

/// Throws InputError at `file` where a number is outside its limits.
template <class Value, class List>
void check_listed(const Value& value, const List& list, const std::string& file) {
  FieldChecker checker(file, "");
  list(checker, value);
}

}  // namespace plimsoll
