// Adds flags that several commands have.
#include "planner/cli/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <stdexcept>

#include "base/command_line.h"
#include "base/error.h"
#include "base/json.h"
#include "passes/strategy/strategy_fields.h"
#include "planner/explore/search_request.h"
#include "planner/space/tried.h"
#include "planner/sweep/sweep_inputs.h"

namespace plimsoll {
namespace {

/// The largest tolerance: a hundred times the measured time. More is a slip of the pen.
constexpr double kMostTolerance = 100;

/// Returns "131072" for "128k", and other texts as they are.
std::string in_kibi(std::string text) {
  const bool ends_in_k = text.size() > 1 && (text.back() == 'k' || text.back() == 'K');
  const std::string number = text.substr(0, text.size() - 1);
  if (!ends_in_k || !refuse_integer(number, 1, kMostSequence / 1024).empty()) return text;
  return fmt::format("{}", 1024 * std::stoll(number));
}

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

std::optional<TrainingGoal> parse_training(const TrainingOptions& options) {
  std::optional<double> per_hour;
  if (!options.price.empty()) {
    const Price price = parse_price(options.price);
    if (!price.cluster.empty()) {
      throw UsageError(fmt::format("--price {}: 2.5/h is required: there is one cluster",
                                   printable(options.price)));
    }
    per_hour = price.per_hour;
  }
  if (!options.tokens.empty()) return TrainingGoal{parse_tokens(options.tokens), per_hour};
  if (per_hour) throw UsageError("--price needs --tokens");
  return std::nullopt;
}

Bytes parse_reserve(const std::string& text) {
  try {
    return parse_bytes(text);
  } catch (const std::invalid_argument& error) {
    throw UsageError(fmt::format("--reserve: {}", error.what()));
  }
}

std::optional<Seconds> optional_time_limit(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return parse_time_limit(text);
}

Seconds parse_time_limit(const std::string& text) {
  Seconds limit;
  try {
    limit = parse_seconds(text);  // "500 ms", too
  } catch (const std::invalid_argument&) {
    limit = parse_days("--time-limit", text);
  }
  if (limit.value() > 0 && limit <= kLongestTimeLimit) return limit;
  throw UsageError(
      fmt::format("--time-limit: found \"{}\"; it must be above 0 s and at most 1e6 s", text));
}

std::function<std::string(const std::string&)> integers(std::int64_t least, std::int64_t most) {
  return [=](const std::string& text) { return refuse_integer(text, least, most); };
}

void add_job(CLI::App& command, TargetOptions& target, bool required) {
  command
      .add_option(
          "JOB", target.job,
          "job file, the name of a preset (gpt3-175b or Qwen/Qwen3-8B, say: planner list jobs), or "
          "a Hugging Face config.json")
      ->required(required);
  command
      .add_option("--global-batch", target.global_batch, "sequences per step, instead of the job's")
      ->check(integers(1, kMostGlobalBatch));
  command
      .add_option("--sequence", target.sequence,
                  "tokens of a sequence (8192, or 8k: k is 1,024), instead of the job's")
      ->transform(in_kibi)
      ->check(integers(1, kMostSequence));
  add_reading(command, target);
}

void add_reading(CLI::App& command, TargetOptions& target) {
  command
      .add_option("--vocab", target.vocab,
                  "tokens of the vocabulary, if a framework's file does not state them")
      ->check(integers(1, kMostVocabulary));
  command.add_flag("--ignore-unknown", target.ignore_unknown,
                   "go on without flags of a framework's file that are not known");
}

void add_from(CLI::App& command, TargetOptions& target) {
  command.add_option(
      "--from", target.from,
      "instead of JOB: a framework's script, flags or configuration file, which also "
      "state the framework and, if they can, --devices; with JOB: a configuration "
      "file without a model");
}

void add_framework(CLI::App& command, TargetOptions& target) {
  command.add_option("--framework", target.framework,
                     "how ops run: a built-in name or a file; default: the bundled runtime on CPU "
                     "cores, else megatron-lm, or megatron-lm-flex for a job with experts");
}

void add_devices(CLI::App& command, TargetOptions& target) {
  command
      .add_option(
          "--devices", target.devices,
          "ranks: mp x cp x pp x dp x sharding_degree; default: all of the cluster file, if "
          "it states its nodes")
      ->check(integers(1, kMostDevices));
}

CLI::Option* add_calibration(CLI::App& command, std::vector<std::string>& calibration) {
  return command
      .add_option(
          "--calibration", calibration,
          "built-in (the default: what was fitted for device and framework, else typical), typical "
          "(rates typical of training), none (the cluster's own numbers), a fit's name "
          "(dgx-h100-80gb--megatron-lm, say) or a file; twice: a file that was measured, and what "
          "answers for what it did not measure (default: built-in)")
      ->allow_extra_args(false);
}

void add_machine(CLI::App& command, TargetOptions& target) {
  command.add_option("--cluster", target.cluster,
                     "required: cluster file, the name of a preset (dgx-h100-80gb or h100, say: "
                     "planner list clusters), 8xh100 for 8 devices, 2xdgx-h100-80gb for 2 nodes");
  add_calibration(command, target.calibration);
  add_devices(command, target);
  add_framework(command, target);
}

void add_training(CLI::App& command, TrainingOptions& training) {
  command.add_option("--tokens", training.tokens,
                     "what is trained on (15T, 300B): adds days and device-hours");
  command.add_option("--price", training.price,
                     "of one device for an hour (2.5 or 2.5/h): adds the cost; with --tokens");
}

void add_reserve(CLI::App& command, std::string& reserve) {
  command.add_option("--reserve", reserve, "memory kept free on each device")
      ->capture_default_str();
}

void add_time_limit(CLI::App& command, std::string& limit, const std::string& what) {
  command.add_option(
      "--time-limit", limit,
      fmt::format("end {} after this time (\"30 s\") without a result, exit 5", what));
}

void add_tolerance(CLI::App& command, double& tolerance) {
  command
      .add_option("--tolerance", tolerance, "largest |predicted - measured| / measured step time")
      ->check([](const std::string& text) { return refuse_number(text, 0, kMostTolerance); })
      ->capture_default_str();
}

void add_threads(CLI::App& command, std::int64_t& threads, const std::string& result) {
  command.add_option("--threads", threads, "default: all cores; " + result + " is the same")
      ->check(integers(1, kMostThreads));
}

void add_json(CLI::App& command, bool& json) { command.add_flag("--json", json, "JSON on stdout"); }

void add_verbose(CLI::App& command, bool& verbose) {
  command.add_flag("--verbose", verbose, "print all details, not only the most important lines");
}

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
