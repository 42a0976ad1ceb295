// Parses the choices that a search is held to.
#include "planner/cli/held_choices.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/error.h"
#include "passes/strategy/strategy_fields.h"
#include "planner/space/tried.h"

namespace plimsoll {
namespace {

std::pair<std::string, std::string> pair_of(std::string_view flag, const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    throw UsageError(fmt::format("{} {}: expected KEY=VALUE", flag, text));
  return {std::string(strategy_key(text.substr(0, equals))), text.substr(equals + 1)};
}

/// Returns the choices of texts such as "PP=2" or "PP=2,VPP=2", one each.
std::vector<std::string> single_choices(const std::vector<std::string>& texts) {
  std::vector<std::string> single;
  for (const std::string& text : texts) {
    std::size_t begin = 0;
    for (std::size_t comma = 0; (comma = text.find(',', comma)) != std::string::npos; ++comma) {
      if (text.find('=', comma) == std::string::npos) break;
      single.push_back(text.substr(begin, comma - begin));
      begin = comma + 1;
    }
    single.push_back(text.substr(begin));
  }
  return single;
}

/// Throws the error with its flag before it, unless the error names the flag.
[[noreturn]] void throw_with_flag(std::string_view flag, const std::string& text,
                                  const UsageError& error) {
  const std::string_view why = error.what();
  if (why.starts_with("--")) throw UsageError(std::string(why));
  throw UsageError(fmt::format("{} {}: {}", flag, text, why));
}

void add_limits(LimitKind kind, std::string_view flag, const std::vector<std::string>& pairs,
                Limits& limits) {
  for (const std::string& text : single_choices(pairs)) {
    const auto [key, value] = pair_of(flag, text);
    try {
      limits.push_back(make_limit(kind, key, value));
    } catch (const UsageError& error) {
      throw_with_flag(flag, text, error);
    }
  }
}

}  // namespace

void add_held(CLI::App& command, HeldOptions& held) {
  const auto add = [&](const char* flag, std::vector<std::string>& values, const char* help) {
    command.add_option(flag, values, help)->allow_extra_args(false);
  };
  add("--fix", held.fix, "KEY=VALUE: only strategies with this choice; repeatable");
  add("--max", held.max, "KEY=NUMBER: only strategies with at most this; repeatable");
  add("--min", held.min, "KEY=NUMBER: only strategies with at least this; repeatable");
  add("--exclude", held.exclude, "KEY=VALUE: only strategies without this choice; repeatable");
  add("--try", held.tried,
      "KEY=VALUE[,VALUE...]: also strategies with these values of a key that is not searched; "
      "repeatable");
}

Constraints parse_held(const HeldOptions& options) {
  Constraints held;
  for (const std::string& text : single_choices(options.fix)) {
    auto pair = pair_of("--fix", text);
    if (pair.first == kAllReplicas) {
      for (const LimitKind kind : {LimitKind::most, LimitKind::least})
        held.limits.push_back(make_limit(kind, pair.first, pair.second));
      continue;
    }
    if (is_fixed(held.fixed, pair.first))
      throw UsageError(fmt::format("--fix {} is given twice", pair.first));
    pair.second = read_choice(pair.first, pair.second);
    held.fixed.push_back(std::move(pair));
  }
  add_limits(LimitKind::most, "--max", options.max, held.limits);
  add_limits(LimitKind::least, "--min", options.min, held.limits);
  add_limits(LimitKind::excluded, "--exclude", options.exclude, held.limits);
  // As a plan file has them, by kind, and excluded values by key.
  std::ranges::stable_sort(held.limits, {}, [](const Limit& limit) {
    return std::pair(limit.kind, limit.kind == LimitKind::excluded ? limit.key : std::string());
  });
  if (const auto wrong = contradiction(held.fixed, held.limits)) throw UsageError(*wrong);
  for (const std::string& text : options.tried) {
    const auto [key, values] = pair_of("--try", text);
    try {
      held.tried.push_back(make_tried(key, values));
    } catch (const UsageError& error) {
      throw_with_flag("--try", text, error);
    }
  }
  if (const auto wrong = contradiction(held.fixed, held.limits, held.tried))
    throw UsageError(*wrong);
  return held;
}

}  // namespace plimsoll
