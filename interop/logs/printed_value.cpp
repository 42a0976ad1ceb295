// Numbers, units, durations, time stamps and progress bars of logs.
#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <utility>

#include "base/error.h"
#include "interop/logs/log_table.h"

namespace plimsoll {
namespace {

constexpr std::string_view kDigits = "0123456789";
constexpr std::array<std::pair<std::string_view, double>, 14> kTimes = {{{"s", 1},
                                                                         {"sec", 1},
                                                                         {"secs", 1},
                                                                         {"second", 1},
                                                                         {"seconds", 1},
                                                                         {"s/it", 1},
                                                                         {"s/iter", 1},
                                                                         {"s/step", 1},
                                                                         {"ms", 1e-3},
                                                                         {"msec", 1e-3},
                                                                         {"milliseconds", 1e-3},
                                                                         {"us", 1e-6},
                                                                         {"min", 60},
                                                                         {"minutes", 60}}};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_';
}

/// Returns the place behind blanks and colours ("\x1b[36m", or "[36m" where the byte was lost).
std::size_t past_blanks(std::string_view line, std::size_t at) {
  while (at < line.size()) {
    if (line[at] != ' ' && line[at] != '\t' && line[at] != '\x1b') {
      const std::size_t end =
          line[at] == '[' ? line.find_first_not_of("0123456789;", at + 1) : line.npos;
      if (end == line.npos || end == at + 1 || line[end] != 'm') break;
      at = end;
    }
    ++at;
  }
  return at;
}

/// Reads a number, which may have commas between thousands: "6,785". Returns its end, or `at`.
std::size_t read_number(std::string_view line, std::size_t at, double& value) {
  const char* const last = line.data() + line.size();
  const auto [end, error] = std::from_chars(line.data() + at, last, value);
  if (error != std::errc() || !std::isfinite(value)) return at;
  std::size_t to = std::size_t(end - line.data());
  if (to > at + 3 || !std::ranges::all_of(line.substr(at, to - at), is_digit)) return to;
  while (to + 3 < line.size() && line[to] == ',' &&
         std::ranges::all_of(line.substr(to + 1, 3), is_digit) &&
         (to + 4 == line.size() || !is_digit(line[to + 4]))) {
    double group = 0;
    std::from_chars(line.data() + to + 1, line.data() + to + 4, group);
    value = value * 1000 + group;
    to += 4;
  }
  return to;
}

std::optional<double> power_of(char prefix, double base) {
  const std::size_t at = std::string_view("kMGTP").find(prefix == 'K' ? 'k' : prefix);
  if (at == std::string_view::npos) return std::nullopt;
  return std::pow(base, double(at + 1));
}

/// Returns the factor of a unit that is printed, or nothing where it is none of that kind.
std::optional<double> printed_factor(std::string_view text, PrintedUnit unit) {
  if (unit.kind == PrintedUnit::Kind::time) {
    for (const auto& [name, factor] : kTimes) {
      if (name == text) return factor;
    }
  } else if (unit.kind == PrintedUnit::Kind::bytes) {
    if (text == "B") return 1;
    if (text.size() == 2 && text[1] == 'B') return power_of(text[0], unit.base);
    if (text.size() == 3 && text.ends_with("iB")) return power_of(text[0], 1024);
  } else if (unit.kind == PrintedUnit::Kind::flops) {  // TFLOPS, MODEL_TFLOP/s/GPU
    const std::size_t at = text.find("FLOP");
    if (at != text.npos && at > 0) return power_of(text[at - 1], 1000);
  } else if (text.size() == 1) {  // 4.71K
    return power_of(text[0], 1000);
  }
  return std::nullopt;
}

}  // namespace

PrintedUnit printed_unit(const std::string& word) {
  using Kind = PrintedUnit::Kind;
  if (word.empty()) return {Kind::count, 1};
  if (word == "h:mm:ss") return {Kind::clock, 1};
  if (word == "T") return {Kind::flops, 1e12};
  if (word == "printed") return {Kind::time, std::nullopt};
  if (word == "printed FLOP/s") return {Kind::flops, std::nullopt};
  if (word == "printed bytes") return {Kind::bytes, std::nullopt};
  if (const auto factor = printed_factor(word, {Kind::time, 1})) return {Kind::time, factor};
  const double base = word == "GB" ? 1000 : 1024;
  const auto factor = printed_factor(word, {Kind::bytes, std::nullopt, base});
  INVARIANT(factor, "a unit of the table of logs");
  return {Kind::bytes, factor, base};
}

std::optional<PrintedValue> value_after(std::string_view line, std::size_t at, PrintedUnit unit) {
  const std::size_t most = at + 250;  // no value reaches further
  line = line.substr(0, most);
  const auto skip = [&](std::string_view any) {
    if (at < line.size() && any.find(line[at]) != any.npos) ++at;
    at = past_blanks(line, at);
  };
  skip("\"'");
  std::string_view bracketed;
  if (at < line.size() && line[at] == '(' && !unit.factor) {
    const std::size_t close = line.find(')', at);
    if (close == line.npos) return std::nullopt;
    bracketed = line.substr(at + 1, close - at - 1);
    at = past_blanks(line, close + 1);
  }
  skip(":=");
  skip("\"'[");
  if (unit.kind == PrintedUnit::Kind::clock) {
    const std::size_t end = std::min(line.find_first_of("\"'", at), line.size());
    const auto seconds = duration(line.substr(at, end - at));
    if (!seconds) return std::nullopt;
    return PrintedValue{seconds, line.substr(at, end - at)};
  }
  double number = 0;
  const std::size_t end = read_number(line, at, number);
  if (end == at || end == most) return std::nullopt;
  const std::size_t after = end + (end < line.size() && line[end] == ' ' ? 1 : 0);
  std::size_t last = after;  // a unit begins with a letter: "5890.1/5901.2" has none
  while (last < line.size() &&
         (last > after ? is_word(line[last]) || line[last] == '/'
                       : std::isalpha(static_cast<unsigned char>(line[last]))))
    ++last;
  const std::string_view suffix = line.substr(after, last - after);
  auto factor = printed_factor(suffix, unit);
  if (!factor) factor = printed_factor(bracketed, unit);
  // A word right behind the number is its unit, and one behind a blank may be anything.
  const bool other = after == end && !suffix.empty() && unit.kind != PrintedUnit::Kind::count;
  if (!factor && !other) factor = unit.factor;
  PrintedValue result{std::nullopt, line.substr(at, (suffix.empty() || factor ? end : last) - at)};
  if (factor) result.value = number * *factor;
  return result;
}

std::optional<std::int64_t> integer_before(std::string_view line, std::size_t end) {
  const std::size_t other = line.substr(0, end).find_last_not_of(kDigits);
  const std::size_t begin = other == line.npos ? 0 : other + 1;
  std::int64_t number = 0;
  if (std::from_chars(line.data() + begin, line.data() + end, number).ec != std::errc()) {
    return std::nullopt;
  }
  return number;
}

std::optional<double> duration(std::string_view text) {
  double days = 0, first = 0, second = 0, third = 0;
  if (const std::size_t day = text.find(" day"); day != text.npos) {
    const std::size_t comma = text.find(',', day);
    const auto whole = integer_before(text, day);
    if (!whole || comma == text.npos) return std::nullopt;
    days = double(*whole);
    text = text.substr(comma + 1);
  }
  const std::string copy(text.substr(0, 40));
  const int parts = std::sscanf(copy.c_str(), "%lf:%lf:%lf", &first, &second, &third);
  const double seconds = parts == 3 ? (first * 60 + second) * 60 + third : first * 60 + second;
  if (parts < 2 || !(seconds >= 0 && seconds < 1e12)) return std::nullopt;
  return days * 86'400 + seconds;
}

std::optional<double> time_stamp(std::string_view line) {
  line = line.substr(0, 160);
  for (std::size_t at = line.find('-'); at != line.npos; at = line.find('-', at + 1)) {
    if (at < 4) continue;
    std::string text(line.substr(at - 4, 26));
    std::ranges::replace(text, ',', '.');
    int year = 0, hour = 0, minute = 0;
    unsigned month = 0, day = 0;
    double second = 0;
    if (std::sscanf(text.c_str(), "%4d-%2u-%2u%*1[ T]%2d:%2d:%lf", &year, &month, &day, &hour,
                    &minute, &second) != 6) {
      continue;
    }
    const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(month),
                                           std::chrono::day(day)};
    if (!date.ok() || !(second >= 0 && second < 61)) continue;
    const std::int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
    return double(days) * 86'400 + hour * 3600 + minute * 60 + second;
  }
  return std::nullopt;
}

std::optional<ProgressBar> progress_bar(std::string_view line, std::size_t at) {
  const std::size_t close = line.find('|', at + 2);
  if (close == line.npos) return std::nullopt;
  const std::string counts(line.substr(close + 1, 100));
  long long number = 0, total = 0;
  std::array<char, 24> elapsed = {}, unit = {};
  double rate = 0;
  const int read = std::sscanf(counts.c_str(), "%lld/%lld [%23[0-9:]<%*[^,], %lf%23[a-z/]", &number,
                               &total, elapsed.data(), &rate, unit.data());
  if (read < 3) return std::nullopt;
  ProgressBar bar{.number = number, .total = total, .elapsed = duration(elapsed.data())};
  if (read == 5 && rate > 0 && std::string_view(unit.data()) == "s/it") bar.time = rate;
  if (read == 5 && rate > 0 && std::string_view(unit.data()) == "it/s") bar.time = 1 / rate;
  // Another bar, a dictionary or a rank may stand before the description.
  constexpr std::size_t kLongest = 250;
  std::string_view before = line.substr(0, at).substr(at - std::min(at, kLongest));
  before = before.substr(0, before.find_last_not_of(kDigits) + 1);
  before = before.substr(before.find_last_of("]}\t") + 1);
  const std::size_t begin = before.find_first_not_of(" :");
  if (begin != before.npos) {
    bar.description = before.substr(begin, before.find_last_not_of(" :") + 1 - begin);
  }
  return bar;
}

bool begins_word(std::string_view line, std::size_t begin) {
  if (begin == 0 || !is_word(line[begin])) return true;
  const char before = line[begin - 1];
  if (before == 'm' && begin >= 4) {  // the end of a colour
    const std::size_t open = line.find_last_not_of("0123456789;", begin - 2);
    return open != line.npos && open + 2 < begin && line[open] == '[';
  }
  return !is_word(before) && before != '-' && before != '/' && before != '.';
}

}  // namespace plimsoll
