// How reports write numbers.
#include "reports/numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace plimsoll {

std::string grouped(std::int64_t number) {
  const std::string digits = fmt::format("{}", number);
  const std::size_t sign = number < 0 ? 1 : 0;
  std::string text = digits.substr(0, sign);
  for (std::size_t i = sign; i < digits.size(); ++i) {
    if (i > sign && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string short_count(double number) {
  static constexpr std::pair<double, const char*> kSteps[] = {
      {1e12, " T"}, {1e9, " B"}, {1e6, " M"}, {1e3, " k"}};
  const auto digits = [](double value) {
    const bool whole = value == std::floor(value);
    const int decimals = whole ? 0 : std::abs(value) < 9.995 ? 2 : std::abs(value) < 99.95 ? 1 : 0;
    return fmt::format("{:.{}f}", value, decimals);
  };
  for (const auto& [size, name] : kSteps) {
    if (std::abs(number) >= 0.9995 * size) return digits(number / size) + name;
  }
  return digits(number);
}

std::string joined_amounts(const std::string& first, std::string_view word,
                           const std::string& second) {
  const auto unit_of = [](const std::string& amount) {
    return std::string_view(amount).substr(std::min(amount.find(' '), amount.size()));
  };
  const bool alike = unit_of(first) == unit_of(second);
  return fmt::format("{} {} {}", alike ? first.substr(0, first.find(' ')) : first, word, second);
}

std::string taken_text(const Filling& filling) {
  return joined_amounts(to_text(filling.taken()), "of", to_text(filling.capacity));
}

std::string filled_text(const Filling& filling) {
  return fmt::format("{:.1f} %", 100 * filling.share());
}

std::string counts_text(const std::vector<std::int64_t>& counts) {
  std::string text;
  for (auto at = counts.begin(); at != counts.end();) {
    const auto end =
        std::find_if(at, counts.end(), [&](std::int64_t other) { return other != *at; });
    if (at == counts.begin() && end == counts.end() && counts.size() > 1) {
      return fmt::format("{} each", *at);
    }
    text += fmt::format("{}{}", text.empty() ? "" : ", ", *at);
    if (end - at > 1) text += fmt::format(" x {}", end - at);
    at = end;
  }
  return text;
}

std::string percent(double share) {
  const double hundredths = 100 * share;
  if (hundredths > 0 && hundredths < 0.05) return "< 0.1 %";
  const bool decimal = std::abs(hundredths) < 9.95 && hundredths != 0;
  return fmt::format("{:.{}f} %", hundredths, decimal ? 1 : 0);
}

std::string signed_error(const TimePair& time) {
  if (!(time.measured.value() > 0)) return "-";
  const double error = (time.predicted - time.measured) / time.measured;
  return (error < 0 ? "-" : "+") + percent(std::abs(error));
}

std::string short_number(double value) {
  if (std::abs(value) >= 99'950) return short_count(value);
  if (value == 0) return "0";
  const int digits = 2 - int(std::floor(std::log10(std::abs(value)) + 1e-12));
  if (digits > 0) return fmt::format("{:.{}f}", value, std::min(digits, 6));
  const double unit = std::pow(10.0, -digits);
  return grouped(std::llround(value / unit) * std::llround(unit));
}

std::string training_text(const Training& training, DeviceKind kind) {
  const auto with_interval = [](const char* form, const Amount& amount) {
    return fmt::format(fmt::runtime(form), short_number(amount.value), short_number(amount.low),
                       short_number(amount.high));
  };
  std::string text = fmt::format("{} tokens: {}, {} {}-hours", short_count(training.tokens),
                                 with_interval("{} days ({} to {})", training.days),
                                 short_number(training.device_hours.value),
                                 kind == DeviceKind::gpu ? "GPU" : "core");
  if (training.cost) text += with_interval(", cost {} ({} to {})", *training.cost);
  return text;
}

}  // namespace plimsoll
