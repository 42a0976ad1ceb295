// Checked byte arithmetic, and units as people write them.
#include "base/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>
#include <stdexcept>

#include "base/error.h"

namespace plimsoll {

void Bytes::overflow() { INVARIANT(false, "byte count overflows"); }

Bytes round_up(Bytes size, Bytes alignment) {
  INVARIANT(alignment.count() > 0 && size.count() >= 0, "round_up of negative sizes");
  const std::int64_t rest = size.count() % alignment.count();
  return rest == 0 ? size : size + Bytes(alignment.count() - rest);
}

void Picoseconds::out_of_range() {
  throw InfeasibleError("a time would be longer than 106 days, the longest time that is supported");
}

namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 53;

/// One unit is 10^ten * 2^two.
struct Unit {
  std::string_view name;
  int ten = 0, two = 0;
};

constexpr Unit kByteUnits[] = {{"B", 0, 0},    {"kB", 3, 0},   {"MB", 6, 0},   {"GB", 9, 0},
                               {"TB", 12, 0},  {"PB", 15, 0},  {"KiB", 0, 10}, {"MiB", 0, 20},
                               {"GiB", 0, 30}, {"TiB", 0, 40}, {"PiB", 0, 50}};
constexpr Unit kSecondUnits[] = {
    {"s", 0, 0}, {"ms", -3, 0}, {"us", -6, 0}, {"ns", -9, 0}, {"ps", -12, 0}};
constexpr Unit kByteRateUnits[] = {
    {"B/s", 0, 0},     {"kB/s", 3, 0},    {"MB/s", 6, 0},    {"GB/s", 9, 0},    {"TB/s", 12, 0},
    {"KiB/s", 0, 10},  {"MiB/s", 0, 20},  {"GiB/s", 0, 30},  {"TiB/s", 0, 40},  {"bit/s", 0, -3},
    {"kbit/s", 3, -3}, {"Mbit/s", 6, -3}, {"Gbit/s", 9, -3}, {"Tbit/s", 12, -3}};
constexpr Unit kFlopRateUnits[] = {{"FLOP/s", 0, 0},  {"kFLOP/s", 3, 0},  {"MFLOP/s", 6, 0},
                                   {"GFLOP/s", 9, 0}, {"TFLOP/s", 12, 0}, {"PFLOP/s", 15, 0},
                                   {"EFLOP/s", 18, 0}};

/// A written number, still decimal: digits * 10^exponent, with the unit beside it.
struct WrittenNumber {
  std::string digits;  ///< at least one, no leading zeros unless it is "0"
  int exponent = 0;
  Unit unit;
};

[[noreturn]] void refuse(std::string_view text, std::string_view example,
                         std::span<const Unit> units) {
  std::string names;
  for (const Unit& unit : units) names += fmt::format("{}{}", names.empty() ? "" : ", ", unit.name);
  std::string shown(text.substr(0, 40));
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c < 0x20 || c > 0x7e; }, '?');
  throw std::invalid_argument(
      fmt::format("\"{}\" is not a quantity: write a number and one of the units {}, as in \"{}\"",
                  shown, names, example));
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Splits "1.25e3 GB" into digits, exponent and unit; nullopt when it is not of that form.
std::optional<WrittenNumber> split(std::string_view text, std::span<const Unit> units) {
  WrittenNumber written;
  std::size_t at = 0;
  const auto take_digits = [&] {
    const std::size_t begin = at;
    while (at < text.size() && is_digit(text[at])) written.digits += text[at++];
    return at - begin;
  };
  if (text.size() > 64 || take_digits() == 0) return std::nullopt;
  if (at < text.size() && text[at] == '.') {
    ++at;
    const std::size_t decimals = take_digits();
    if (decimals == 0) return std::nullopt;
    written.exponent = -static_cast<int>(decimals);
  }
  // An exponent needs a digit behind it: "2 EFLOP/s" has none, "2e3 FLOP/s" has.
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    std::size_t digit = at + 1;
    if (digit < text.size() && text[digit] == '+') ++digit;
    int exponent = 0;
    const auto [end, error] =
        std::from_chars(text.data() + digit, text.data() + text.size(), exponent);
    if (error == std::errc() && std::abs(exponent) <= 400) {
      written.exponent += exponent;
      at = static_cast<std::size_t>(end - text.data());
    }
  }
  while (at < text.size() && text[at] == ' ') ++at;
  const std::string_view name = text.substr(at);
  const auto unit = std::find_if(units.begin(), units.end(),
                                 [&](const Unit& candidate) { return candidate.name == name; });
  if (unit == units.end()) return std::nullopt;
  written.unit = *unit;
  written.digits.erase(0,
                       std::min(written.digits.find_first_not_of('0'), written.digits.size() - 1));
  return written;
}

double parse_quantity(std::string_view text, std::string_view example,
                      std::span<const Unit> units) {
  const std::optional<WrittenNumber> written = split(text, units);
  if (!written) refuse(text, example, units);
  const std::string decimal =
      fmt::format("{}e{}", written->digits, written->exponent + written->unit.ten);
  double value = 0;
  const auto [end, error] = std::from_chars(decimal.data(), decimal.data() + decimal.size(), value);
  value = std::ldexp(value, written->unit.two);
  if (error != std::errc() || !std::isfinite(value)) refuse(text, example, units);
  return value;
}

/// The decimal digits and exponent of the shortest text that reads back as `value`.
WrittenNumber shortest(double value) {
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string_view scientific(buffer, static_cast<std::size_t>(end.ptr - buffer));
  const std::size_t e = scientific.find('e');
  WrittenNumber written;
  for (char c : scientific.substr(0, e))
    if (is_digit(c)) written.digits += c;
  const std::string_view exponent = scientific.substr(e + (scientific[e + 1] == '+' ? 2 : 1));
  std::from_chars(exponent.data(), exponent.data() + exponent.size(), written.exponent);
  written.exponent -= static_cast<int>(written.digits.size()) - 1;
  return written;
}

/// Exact text in the decimal unit that leaves one to three digits before the point, else the
/// nearest one with an exponent.
std::string exact_quantity(double value, std::span<const Unit> units) {
  INVARIANT(std::isfinite(value) && value >= 0, "quantities in files are finite, not negative");
  if (value == 0) return fmt::format("0 {}", units.front().name);
  WrittenNumber written = shortest(value);
  const int magnitude = written.exponent + static_cast<int>(written.digits.size()) - 1;
  for (const Unit& unit : units) {
    const int before = magnitude - unit.ten;  // digits before the point, less one
    if (unit.two != 0 || before < 0 || before > 2) continue;
    std::string digits = written.digits;
    const std::size_t whole = static_cast<std::size_t>(before) + 1;
    if (digits.size() <= whole) {
      digits.append(whole - digits.size(), '0');
    } else {
      digits = digits.substr(0, whole) + '.' + digits.substr(whole);
    }
    return fmt::format("{} {}", digits, unit.name);
  }
  return fmt::format("{}e{} {}", written.digits, written.exponent, units.front().name);
}

/// Three significant digits; values of 1000 and more keep all digits before the point.
std::string three_digits(double value) {
  const double size = std::abs(value);
  if (size >= 99.95) return fmt::format("{:.0f}", value);
  if (size >= 9.995) return fmt::format("{:.1f}", value);
  return fmt::format("{:.2f}", value);
}

/// `steps` ascend by `factor`; the last one that leaves at least 1 is used.
std::string people_text(double value, std::span<const std::string_view> steps, double factor) {
  if (!std::isfinite(value)) return fmt::format("{} {}", value, steps.front());
  std::size_t step = 0;
  // The border is where rounding to what is shown would reach the next unit.
  while (step + 1 < steps.size() && std::abs(value) >= factor - 0.5) {
    value /= factor;
    ++step;
  }
  return fmt::format("{} {}", three_digits(value), steps[step]);
}

}  // namespace

Bytes parse_bytes(std::string_view text) {
  constexpr std::string_view kExample = "80 GiB";
  const std::optional<WrittenNumber> written = split(text, kByteUnits);
  if (!written) refuse(text, kExample, kByteUnits);
  int exponent = written->exponent + written->unit.ten;
  std::string digits = written->digits;
  while (digits.size() > 1 && digits.back() == '0') {
    digits.pop_back();
    ++exponent;
  }
  if (digits == "0") return Bytes(0);
  const auto too_many = [&]() -> Bytes {
    throw std::invalid_argument(fmt::format("\"{}\" is more than 2^53 bytes", text));
  };
  // 17 digits * 2^50 fits in 128 bits; more digits cannot be whole and within 2^53 at once.
  if (digits.size() > 17 || exponent > 16) return too_many();
  if (exponent < -17) refuse(text, kExample, kByteUnits);
  __extension__ using Wide = __int128;
  Wide count = 0;
  for (char c : digits) count = count * 10 + (c - '0');
  count <<= written->unit.two;
  for (; exponent > 0; --exponent) {
    count *= 10;
    if (count > kMostBytes) return too_many();
  }
  for (; exponent < 0; ++exponent) {
    if (count % 10 != 0) {
      throw std::invalid_argument(fmt::format("\"{}\" is not a whole number of bytes", text));
    }
    count /= 10;
  }
  if (count > kMostBytes) return too_many();
  return Bytes(static_cast<std::int64_t>(count));
}

Seconds parse_seconds(std::string_view text) {
  return Seconds(parse_quantity(text, "3 us", kSecondUnits));
}

BytesPerSecond parse_bytes_per_second(std::string_view text) {
  return BytesPerSecond(parse_quantity(text, "450 GB/s", kByteRateUnits));
}

FlopsPerSecond parse_flops_per_second(std::string_view text) {
  return FlopsPerSecond(parse_quantity(text, "312 TFLOP/s", kFlopRateUnits));
}

std::string exact_text(Bytes size) {
  INVARIANT(size.count() >= 0, "sizes in files are not negative");
  Unit best = kByteUnits[0];
  for (const Unit& unit : kByteUnits) {
    const bool divides = size.count() % (std::int64_t{1} << unit.two) == 0;
    if (size.count() > 0 && unit.two > best.two && divides) best = unit;
  }
  return fmt::format("{} {}", size.count() >> best.two, best.name);
}

std::string exact_text(Seconds time) { return exact_quantity(time.value(), kSecondUnits); }
std::string exact_text(BytesPerSecond rate) { return exact_quantity(rate.value(), kByteRateUnits); }
std::string exact_text(FlopsPerSecond rate) { return exact_quantity(rate.value(), kFlopRateUnits); }

std::string to_text(Bytes size) {
  static constexpr std::string_view kSteps[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  if (std::abs(size.count()) < 1024) return fmt::format("{} B", size.count());
  return people_text(static_cast<double>(size.count()), kSteps, 1024);
}

std::string to_text(Seconds time) {
  static constexpr std::string_view kSteps[] = {"ps", "ns", "us", "ms", "s"};
  if (time.value() == 0) return "0 s";
  return people_text(time.value() * 1e12, kSteps, 1000);
}

std::string to_text(BytesPerSecond rate) {
  static constexpr std::string_view kSteps[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
  return people_text(rate.value(), kSteps, 1000);
}

std::string to_text(FlopsPerSecond rate) {
  static constexpr std::string_view kSteps[] = {"FLOP/s",  "kFLOP/s", "MFLOP/s", "GFLOP/s",
                                                "TFLOP/s", "PFLOP/s", "EFLOP/s"};
  return people_text(rate.value(), kSteps, 1000);
}

}  // namespace plimsoll
