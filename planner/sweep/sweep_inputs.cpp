// Parses the lists and amounts of a sweep.
#include "planner/sweep/sweep_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace plimsoll {
namespace {

constexpr double kLeastGigabits = 0.001, kMostGigabits = 1e6;
constexpr double kMostTokens = 1e18, kLongestDays = 1e6, kHighestPrice = 1e9;

template <class Number>
std::optional<Number> number_from(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// Reads one part of a list: a number or a range.
class ListPart {
 public:
  ListPart(std::string_view flag, std::string_view text, std::int64_t least, std::int64_t most)
      : flag_(flag), text_(text), least_(least), most_(most) {}

  std::vector<std::int64_t> numbers() const {
    const std::size_t dots = text_.find("..");
    if (dots == text_.npos) return {bound(text_)};
    const std::size_t by = text_.find_first_of("x+", dots);
    if (by == text_.npos) fail();
    const std::int64_t first = bound(text_.substr(0, dots));
    const std::int64_t last = bound(text_.substr(dots + 2, by - dots - 2));
    const bool times = text_[by] == 'x';
    const auto step = number_from<std::int64_t>(text_.substr(by + 1));
    if (!step || *step < (times ? 2 : 1) || *step > most_ || first > last) fail();
    std::vector<std::int64_t> all;
    for (std::int64_t n = first; n <= last; n = times ? n * *step : n + *step) {
      if (all.size() == kMostListed)
        throw UsageError(fmt::format("{} {}: more than {} numbers", flag_, text_, kMostListed));
      all.push_back(n);
    }
    return all;
  }

 private:
  [[noreturn]] void fail() const {
    throw UsageError(
        fmt::format("{} {}: expected numbers from {} to {}: 64,96,128 or 64..1024x2 or 64..256+64",
                    flag_, printable(text_), least_, most_));
  }

  std::int64_t bound(std::string_view text) const {
    const auto number = number_from<std::int64_t>(text);
    if (!number || *number < least_ || *number > most_) fail();
    return *number;
  }

  std::string_view flag_, text_;
  std::int64_t least_, most_;
};

/// Splits "2.5 d" into the number and its unit.
std::pair<std::optional<double>, std::string_view> split_unit(std::string_view text) {
  const std::size_t last = text.find_last_of("0123456789.");
  if (last == text.npos) return {};
  std::string_view unit = text.substr(last + 1);
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  return {number_from<double>(text.substr(0, last + 1)), unit};
}

using Unit = std::pair<std::string_view, double>;

/// Returns the number times its unit; nothing where either is unknown.
template <std::size_t count>
std::optional<double> amount_of(std::string_view text, const Unit (&units)[count]) {
  const auto [number, unit] = split_unit(text);
  if (!number || !std::isfinite(*number)) return std::nullopt;
  const std::string_view name = unit;
  const auto known = std::ranges::find(units, name, &Unit::first);
  if (known == std::end(units)) return std::nullopt;
  return *number * known->second;
}

}  // namespace

std::vector<std::int64_t> parse_numbers(std::string_view flag,
                                        const std::vector<std::string>& lists, std::int64_t least,
                                        std::int64_t most) {
  std::vector<std::int64_t> all;
  for (const std::string& list : lists) {
    for (std::size_t begin = 0; begin <= list.size();) {
      const std::size_t end = std::min(list.find(',', begin), list.size());
      const std::string_view part = std::string_view(list).substr(begin, end - begin);
      const auto numbers = ListPart(flag, part, least, most).numbers();
      all.insert(all.end(), numbers.begin(), numbers.end());
      begin = end + 1;
    }
  }
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  if (all.size() > kMostListed)
    throw UsageError(fmt::format("{}: {} numbers, more than {}", flag, all.size(), kMostListed));
  return all;
}

std::vector<BytesPerSecond> parse_networks(const std::vector<std::string>& lists) {
  std::vector<BytesPerSecond> all;
  for (const std::string& list : lists) {
    for (std::size_t begin = 0; begin <= list.size();) {
      const std::size_t end = std::min(list.find(',', begin), list.size());
      const std::string part = list.substr(begin, end - begin);
      const auto gigabits = number_from<double>(part);
      if (!gigabits || !(*gigabits >= kLeastGigabits && *gigabits <= kMostGigabits)) {
        throw UsageError(fmt::format(
            "--network {}: Gbit/s of each device are required, from {} to {}: 100,200,400",
            printable(part), kLeastGigabits, kMostGigabits));
      }
      all.push_back(BytesPerSecond(*gigabits * 1e9 / 8));
      begin = end + 1;
    }
  }
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  if (all.size() > kMostListed)
    throw UsageError(fmt::format("--network: {} numbers, more than {}", all.size(), kMostListed));
  return all;
}

double parse_tokens(std::string_view text) {
  static constexpr Unit kUnits[] = {{"", 1}, {"k", 1e3}, {"M", 1e6}, {"B", 1e9}, {"T", 1e12}};
  const auto tokens = amount_of(text, kUnits);
  if (tokens && *tokens >= 1 && *tokens <= kMostTokens) return *tokens;
  throw UsageError(fmt::format("--tokens {}: expected a number such as 15T, 300B, 20M or 1e12",
                               printable(text)));
}

Seconds parse_days(std::string_view flag, std::string_view text) {
  static constexpr Unit kUnits[] = {{"d", 86400}, {"h", 3600}, {"min", 60}, {"s", 1}};
  const auto seconds = amount_of(text, kUnits);
  if (seconds && *seconds > 0 && *seconds <= kLongestDays * 86400) return Seconds(*seconds);
  throw UsageError(
      fmt::format("{} {}: expected a time such as 30d, 12h, 90min or 30s", flag, printable(text)));
}

Price parse_price(std::string_view text) {
  Price price;
  const std::size_t equals = text.rfind('=');
  if (equals != text.npos) price.cluster = text.substr(0, equals);
  const std::string_view amount = equals == text.npos ? text : text.substr(equals + 1);
  static constexpr Unit kUnits[] = {{"/h", 1}, {"", 1}};
  const auto per_hour = amount_of(amount, kUnits);
  if (!per_hour || *per_hour <= 0 || *per_hour > kHighestPrice || equals == 0) {
    throw UsageError(fmt::format(
        "--price {}: expected the price of a device for an hour, 2.5/h or CLUSTER=2.5/h",
        printable(text)));
  }
  price.per_hour = *per_hour;
  return price;
}

}  // namespace plimsoll
