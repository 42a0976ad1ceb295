// A type that stands in a file has one list of its fields, in the order of the file. The same list
// writes the type and reads it:
//
//   void list_fields(Fields& io, RankMemory& memory) {
//     io("rank", memory.rank);
//     io("peak_bytes", memory.peak);
//   }
#pragma once

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

/// The largest magnitude of an integer in a file, which a double still holds exactly.
inline constexpr std::int64_t kMostJsonInteger = std::int64_t{1} << 53;

/// The bound of a time in seconds in a plan or a measurement, 11 days. A clock in picoseconds holds
/// it with room for sums.
inline constexpr double kMostJsonSeconds = 1e6;

/// The bound of shares, MFU and HFU, beyond what the checker lets pass.
inline constexpr double kMostRatio = 1e6;

/// Returns the texts of an enum with so many values.
template <class Enum>
std::vector<std::string_view> texts_of(std::size_t count) {
  std::vector<std::string_view> texts;
  for (std::size_t i = 0; i < count; ++i) texts.push_back(to_text(static_cast<Enum>(i)));
  return texts;
}

/// Reads a value that has a text form (a Job, a Strategy) and is embedded whole at `key`. `read`
/// gets its text. Errors are moved to the value's place in this file.
template <class Read>
auto read_embedded(JsonObject& parent, std::string_view key, Read read) {
  const std::string pointer = parent.object(key).pointer();
  try {
    return read(parent.raw(key).dump(), parent.file());
  } catch (const InputError& error) {
    const std::string here = error.pointer().empty() ? "/" : error.pointer();
    const std::string message = error.what();
    const std::size_t prefix = error.file().size() + here.size() + std::size(": at : ") - 1;
    throw InputError(error.file(), pointer + error.pointer(), message.substr(prefix));
  }
}

/// Fields either writes an object from values or reads values from one, and then throws InputError
/// as JsonObject does.
class Fields {
 public:
  Fields() = default;
  explicit Fields(JsonObject object) : from(std::move(object)) {}
  bool reads() const { return from.has_value(); }

  void operator()(const std::string& key, bool& value) {
    from ? void(value = from->boolean(key)) : write(key, value);
  }
  void operator()(const std::string& key, std::string& value) {
    from ? void(value = from->text(key)) : write(key, value);
  }
  void operator()(const std::string& key, std::vector<std::string>& value) {
    from ? void(value = from->texts(key)) : write(key, value);
  }
  void operator()(const std::string& key, Seconds& value, double least = 0) {
    number(key, value, least, kMostJsonSeconds);
  }
  /// A number with a fraction: a double or a rate.
  template <class T>
  void number(const std::string& key, T& value, double least, double most) {
    from ? void(value = T(from->number(key, least, most))) : write(key, value);
  }
  /// An integer: a count, Bytes or Picoseconds.
  template <class T>
  void operator()(const std::string& key, T& value, std::int64_t least = 0,
                  std::int64_t most = kMostJsonInteger) {
    from ? void(value = T(from->integer(key, least, most))) : write(key, value);
  }
  /// Whether a key that may be left out is there, in the values or in the file.
  bool shows(const std::string& key, bool is_there) { return from ? from->has(key) : is_there; }
  /// A key that is left out where the value is the usual one, which it is before it is read.
  template <class T, class... Bounds>
  void unless(const T& usual, const std::string& key, T& value, Bounds... bounds) {
    if (shows(key, value != usual)) (*this)(key, value, bounds...);
  }
  template <class T, class... Bounds>
  void optional(const std::string& key, std::optional<T>& value, Bounds... bounds) {
    if (!shows(key, value.has_value())) return;
    if (from) value.emplace();
    (*this)(key, *value, bounds...);
  }
  /// A text that may be missing is null, never empty.
  void or_null(const std::string& key, std::string& text) {
    if (is_null(key, text.empty())) return;
    (*this)(key, text);
  }
  template <class Enum>
  void choice(const std::string& key, Enum& value, std::span<const std::string_view> words) {
    from ? void(value = Enum(from->choice(key, words))) : write(key, words[std::size_t(value)]);
  }
  /// A choice that may be missing is null.
  template <class Enum>
  void choice(const std::string& key, std::optional<Enum>& value,
              std::span<const std::string_view> words) {
    if (from) value.emplace();
    if (is_null(key, !value)) return value.reset();
    choice(key, *value, words);
  }
  /// An object of a type that lists its fields.
  template <class T>
  void object(const std::string& key, T& value) {
    from ? read_inner(from->object(key), value) : void(json[key] = inner(value));
  }
  /// An object that may be missing is null.
  template <class T>
  void object(const std::string& key, std::optional<T>& value) {
    if (from) value.emplace();
    if (is_null(key, !value)) return value.reset();
    object(key, *value);
  }
  template <class T>
  void list(const std::string& key, std::vector<T>& values) {
    if (from) {
      for (JsonObject& object : from->objects(key))
        read_inner(std::move(object), values.emplace_back());
      return;
    }
    json[key] = Json::array();
    for (T& value : values) json[key].push_back(inner(value));
  }
  /// An object with a number for each name; with `some` only those that are not 0. Doubles are
  /// shares.
  template <class Values>
  void by_name(const std::string& key, Values& values, std::span<const std::string_view> names,
               bool some = false) {
    Fields all = from ? Fields(from->object(key)) : Fields();
    for (std::size_t i = 0; i < names.size(); ++i) {
      const std::string name(names[i]);
      if constexpr (std::is_same_v<typename Values::value_type, double>) {
        all.number(name, values[i], 0, kMostRatio);
      } else if (all.shows(name, values[i] != typename Values::value_type()) || !some) {
        all(name, values[i]);
      }
    }
    from ? all.from->finish() : void(json[key] = std::move(all.json));
  }
  /// A value that has a writer and a reader of its JSON.
  template <class T, class Write, class Read>
  void as(const std::string& key, T& value, Write write_json, Read read) {
    from ? void(value = read(from->object(key))) : void(json[key] = write_json(value));
  }
  /// A value that has a writer and a reader of its text.
  template <class T, class Write, class Read>
  void as_text(const std::string& key, T& value, Write write_text, Read read) {
    from ? void(value = read_embedded(*from, key, read))
         : void(json[key] = parse_json(write_text(value), key));
  }

  std::optional<JsonObject> from;  ///< absent: values are written
  Json json = Json::object();

 private:
  template <class T>
  void write(const std::string& key, const T& value) {
    if constexpr (requires { value.count(); }) {
      json[key] = value.count();
    } else if constexpr (requires { value.value(); }) {
      json[key] = value.value();
    } else {
      json[key] = value;
    }
  }
  bool is_null(const std::string& key, bool is_missing) {
    if (from) return from->raw(key).is_null();
    if (is_missing) json[key] = nullptr;
    return is_missing;
  }
  template <class T>
  static Json inner(T& value) {
    Fields io;
    list_fields(io, value);
    return std::move(io.json);
  }
  template <class T>
  static void read_inner(JsonObject object, T& value) {
    Fields io(std::move(object));
    list_fields(io, value);
    io.from->finish();
  }
};

/// Writes the fields of a value into an object, which may have some already.
template <class T>
Json fields_json(const T& value, Json before = Json::object()) {
  Fields io;
  io.json = std::move(before);
  list_fields(io, const_cast<T&>(value));  // a list that writes changes nothing
  return std::move(io.json);
}

/// Reads the fields of a value from an object that has no others.
template <class T>
T read_fields(JsonObject object) {
  T value;
  Fields io(std::move(object));
  list_fields(io, value);
  io.from->finish();
  return value;
}

}  // namespace plimsoll
