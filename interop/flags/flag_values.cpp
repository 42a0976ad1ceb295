// The numbers and units of flags.
#include "interop/flags/flag_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <stdexcept>

#include "base/error.h"
#include "interop/flags/flag_adapters.h"

namespace plimsoll {
namespace {

std::int64_t bytes_of_parameter(const FlagFields& fields) {
  const auto precision = fields.find("precision");
  return precision != fields.end() && precision->second == "fp32" ? 4 : 2;
}

std::int64_t bytes_of_gradient(const FlagFields& fields) {
  return differs(fields, "gradient_type", "f32") && differs(fields, "precision", "fp32") ? 2 : 4;
}

constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;

std::int64_t integer_of(std::string_view text) {
  const auto number = integer_from(text);
  if (!number) throw std::invalid_argument("an integer is required");
  return *number;
}

std::string with_point(const std::string& number) {
  return number.find_first_of(".e") == number.npos ? number + ".0" : number;
}

/// Returns so many units of `size` bytes as bytes.
std::string bytes_from(std::string_view text, std::int64_t size) {
  const auto number = number_from(text);
  const double most = 1e15;
  if (!number || *number < 0 || *number > most)
    throw std::invalid_argument("a number from 0 to 1e15 is required");
  if (*number * double(size) > most * 8)
    throw std::invalid_argument("a smaller number is required");
  return decimal(std::int64_t(*number * double(size)));
}

std::int64_t count_from(std::string_view text) {
  const auto number = integer_from(text);
  if (!number || *number < 1 || *number > std::int64_t{1} << 50)
    throw std::invalid_argument("an integer from 1 to 2^50 is required");
  return *number;
}

std::string percent_of(std::string_view share) {
  const auto number = number_from(share);
  if (!number || *number < 0 || *number > 1)
    throw std::invalid_argument("a number from 0 to 1 is required");
  const double percent = *number * 100;
  if (std::abs(percent - std::round(percent)) > 1e-9)
    throw std::invalid_argument("whole percents are required");
  return decimal(std::llround(percent));
}

std::string as_it_is(const FlagFields&, std::string_view text) { return std::string(text); }

struct Unit {
  std::string_view name;
  std::string (*to)(const FlagFields&, std::string_view value);
  std::string (*from)(const FlagFields&, std::string_view text);
};

constexpr Unit kUnits[] = {
    {"parameters",
     [](const FlagFields& fields, std::string_view value) {
       return decimal(integer_of(value) / bytes_of_parameter(fields));
     },
     [](const FlagFields& fields, std::string_view text) {
       return bytes_from(text, bytes_of_parameter(fields));
     }},
    {"MiB",
     [](const FlagFields&, std::string_view value) {
       return with_point(fmt::format("{}", double(integer_of(value)) / double(kMebibyte)));
     },
     [](const FlagFields&, std::string_view text) { return bytes_from(text, kMebibyte); }},
    {"whole_MiB",
     [](const FlagFields&, std::string_view value) {
       return decimal(std::max<std::int64_t>(1, (integer_of(value) + kMebibyte / 2) / kMebibyte));
     },
     [](const FlagFields&, std::string_view text) { return bytes_from(text, kMebibyte); }},
    {"elements",
     [](const FlagFields& fields, std::string_view value) {
       return decimal(integer_of(value) / bytes_of_gradient(fields));
     },
     [](const FlagFields& fields, std::string_view text) {
       return decimal(count_from(text) * bytes_of_gradient(fields));
     }},
    {"without_end",
     [](const FlagFields&, std::string_view value) { return decimal(integer_of(value) - 1); },
     [](const FlagFields&, std::string_view text) { return decimal(count_from(text) + 1); }},
    {"share",
     [](const FlagFields&, std::string_view value) {
       return with_point(fmt::format("{}", double(integer_of(value)) / 100));
     },
     [](const FlagFields&, std::string_view text) { return percent_of(text); }},
    {"float",
     [](const FlagFields&, std::string_view value) {
       const auto number = integer_from(value);
       return number ? decimal(*number) + ".0" : std::string(value);
     },
     as_it_is},
    {"text", as_it_is, as_it_is},
    // No row that is written has these.
    {"alpha", as_it_is, scale_by_rank},
    {"alpha_by_root", as_it_is, scale_by_root},
    {"adapted_modules", as_it_is, targets_of_modules},
    {"dense_modules", as_it_is, targets_outside_experts},
    {"trained_modules", as_it_is, matches_of_modules},
};

const Unit& unit_of(std::string_view name) {
  const auto* unit = std::ranges::find(kUnits, name, &Unit::name);
  INVARIANT(unit != std::end(kUnits), "flag tables name units that there are");
  return *unit;
}

}  // namespace

std::string decimal(std::int64_t value) { return fmt::format("{}", value); }

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t end = std::min(text.find(separator), text.size());
    parts.emplace_back(text.substr(0, end));
    if (end == text.size()) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<std::int64_t> integer_from(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> number_from(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

std::string plain_number(std::string_view text) {
  if (const auto integer = integer_from(text)) return decimal(*integer);
  return fmt::format("{}", number_from(text).value_or(0));
}

std::optional<std::int64_t> count_of(const FlagFields& fields, std::string_view key) {
  const auto text = value_of(fields, key);
  const auto value = text ? integer_from(*text) : std::nullopt;
  if (!value || *value < 1 || *value > std::int64_t{1} << 53) return std::nullopt;
  return value;
}

bool differs(const FlagFields& fields, std::string_view key, std::string_view usual) {
  const auto field = fields.find(key);
  return field != fields.end() && field->second != usual;
}

std::string in_unit(const FlagFields& fields, std::string_view unit, std::string_view value) {
  return unit_of(unit).to(fields, value);
}

std::string from_unit(const FlagFields& fields, std::string_view unit, std::string_view text) {
  return unit_of(unit).from(fields, text);
}

}  // namespace plimsoll
