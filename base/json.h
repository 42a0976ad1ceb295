// JSON is read with exact keys. nlohmann/json converts silently (2.5 becomes 2, the last duplicate
// wins), so untrusted values are read only through the checked getters below.
//
// The limits (docs/reference/files.md) are 64 MiB, nesting 64, strings of 4096 bytes, keys of 256
// bytes, 10^4 members per object and 10^6 elements per array. Keys are unique. Strings are
// well-formed UTF-8 without control or direction-changing characters. Integers are within +-2^53,
// and numbers are finite.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/units.h"

namespace plimsoll {

/// Writers build this type: its members keep their order of insertion, so output bytes are stable.
using Json = nlohmann::ordered_json;

/// Parses text under the limits above. Throws InputError with `file` and either line and column or
/// the JSON pointer.
Json parse_json(std::string_view text, const std::string& file);
Json read_json(const std::filesystem::path& path);
/// Returns pretty text: two-space indent, a newline at the end, and an object or array on one line
/// where it fits in 100 columns. Doubles have the fewest digits that read back exactly.
std::string json_text(const Json& value);

/// Returns text from outside, made safe for a message. It is clipped to `most` bytes, and anything
/// but printable ASCII becomes '?'.
std::string printable(std::string_view text, std::size_t most = 60);
/// Returns `parent` + "/" + `key`, escaped as RFC 6901 says.
std::string json_pointer(std::string_view parent, std::string_view key);

/// A JsonObject reads one JSON object. Getters throw InputError naming the file, the JSON pointer,
/// what was found and what is allowed. finish() is called last: it refuses keys that nobody asked
/// for and names the nearest known key. The document is not copied, so it must outlive the reader.
class JsonObject {
 public:
  JsonObject(const Json& value, std::string file, std::string pointer = "");

  /// whether the key is present and not null; marks the key as known
  bool has(std::string_view key) const;
  std::int64_t integer(std::string_view key, std::int64_t least, std::int64_t most);
  double number(std::string_view key, double least, double most);
  bool boolean(std::string_view key);
  std::string text(std::string_view key);
  /// Returns the index of the text among `allowed`.
  std::size_t choice(std::string_view key, std::span<const std::string_view> allowed);
  Bytes bytes(std::string_view key);                      ///< "80 GiB"
  Seconds seconds(std::string_view key);                  ///< "3 us"
  BytesPerSecond bytes_per_second(std::string_view key);  ///< "450 GB/s"
  FlopsPerSecond flops_per_second(std::string_view key);  ///< "312 TFLOP/s"
  JsonObject object(std::string_view key);
  std::vector<JsonObject> objects(std::string_view key);
  std::vector<std::int64_t> integers(std::string_view key, std::int64_t least, std::int64_t most);
  std::vector<double> numbers(std::string_view key);
  std::vector<std::string> texts(std::string_view key);
  /// Returns the keys of this object in file order, and marks all as known (for maps with free
  /// keys).
  std::vector<std::string> keys();
  const Json& raw(std::string_view key);  ///< returns any value; marks the key as known

  /// Throws InputError at `key` of this object: "found FOUND; MESSAGE".
  [[noreturn]] void fail(std::string_view key, const std::string& message) const;
  void finish() const;

  const std::string& file() const { return file_; }
  const std::string& pointer() const { return pointer_; }

 private:
  const Json& member(std::string_view key);
  std::string pointer_to(std::string_view key) const;

  const Json* value_;
  std::string file_, pointer_;
  mutable std::vector<std::string> known_;
};

/// Returns the candidate nearest to `word` by edit distance, or an empty text when none is near.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace plimsoll
