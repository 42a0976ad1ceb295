// Bounds and forms of values that the files of plan/ share.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/field_list.h"

namespace plimsoll {

/// The largest magnitude of an integer in a file, which a double still holds exactly.
inline constexpr std::int64_t kMostJsonInteger = std::int64_t{1} << 53;

/// The bound of a time in seconds in a plan or a measurement, 11 days. A clock in picoseconds holds
/// it with room for sums.
inline constexpr double kMostJsonSeconds = 1e6;
inline constexpr Allowed kTimes(0, kMostJsonSeconds);

/// Shares, MFU and HFU: their bound is beyond what the checker lets pass.
inline constexpr Allowed kRatios(0, 1e6);

/// Returns the texts of an enum with `count` values.
template <class Enum>
std::vector<std::string_view> texts_of(std::size_t count) {
  std::vector<std::string_view> texts;
  for (std::size_t i = 0; i < count; ++i) texts.push_back(to_text(static_cast<Enum>(i)));
  return texts;
}

/// A value that has a text form (a Job, a Strategy) is embedded whole. `read` gets its text. Errors
/// are moved to the value's place in this file.
template <class Write, class Read>
auto embedded(Write write, Read read) {
  const auto read_member = [=](JsonObject& parent, std::string_view key) {
    const std::string pointer = parent.object(key).pointer();
    try {
      return read(parent.raw(key).dump(), parent.file());
    } catch (const InputError& error) {
      const std::string here = error.pointer().empty() ? "/" : error.pointer();
      const std::string message = error.what();
      const std::size_t prefix = error.file().size() + here.size() + std::size(": at : ") - 1;
      throw InputError(error.file(), pointer + error.pointer(), message.substr(prefix));
    }
  };
  return Form{[=](const auto& value) { return parse_json(write(value), ""); }, read_member};
}

}  // namespace plimsoll
