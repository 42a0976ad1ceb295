// Flags: adds the flags that several commands have to a command line, among them --fix, --max,
// --min, --exclude and --try.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "passes/strategy/constraints.h"
#include "planner/api/questions.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace plimsoll {

/// TrainingOptions are the texts of --tokens and --price; empty: nothing is asked.
struct TrainingOptions {
  std::string tokens, price;
};
/// Returns the training that is asked for, if there are tokens. Throws UsageError.
std::optional<TrainingGoal> parse_training(const TrainingOptions& options);
/// Parses "1 GiB". Throws UsageError.
Bytes parse_reserve(const std::string& text);
/// Parses "30 s" or "2 min". Throws UsageError for text that is no time, and for a time not above
/// zero or more than kLongestTimeLimit.
Seconds parse_time_limit(const std::string& text);
/// Returns nothing for an empty text.
std::optional<Seconds> optional_time_limit(const std::string& text);

/// Returns CLI11's check for an integer option.
std::function<std::string(const std::string&)> integers(std::int64_t least, std::int64_t most);

void add_job(CLI::App& command, TargetOptions& target, bool required = true);
/// Adds what states how a framework's file is read: --vocab and --ignore-unknown.
void add_reading(CLI::App& command, TargetOptions& target);
/// Adds --from, which takes the place of JOB.
void add_from(CLI::App& command, TargetOptions& target);
void add_framework(CLI::App& command, TargetOptions& target);
void add_devices(CLI::App& command, TargetOptions& target);
CLI::Option* add_calibration(CLI::App& command, std::vector<std::string>& calibration);
/// Adds --cluster, --calibration, --devices and --framework.
void add_machine(CLI::App& command, TargetOptions& target);
/// Adds --tokens and --price.
void add_training(CLI::App& command, TrainingOptions& training);
void add_reserve(CLI::App& command, std::string& reserve);
/// `what` is ended after this time, without a result.
void add_time_limit(CLI::App& command, std::string& limit, const std::string& what);
void add_tolerance(CLI::App& command, double& tolerance);
/// `result` is what does not depend on the number of threads: "the plan".
void add_threads(CLI::App& command, std::int64_t& threads, const std::string& result);
void add_json(CLI::App& command, bool& json);
/// Adds --verbose, which prints the whole result instead of its few most important lines.
void add_verbose(CLI::App& command, bool& verbose);

/// KEY=VALUE pairs, by their flags. Those of --try may have several values, with commas.
struct HeldOptions {
  std::vector<std::string> fix, max, min, exclude, tried{};
};
/// Adds --fix, --max, --min, --exclude and --try to a command.
void add_held(CLI::App& command, HeldOptions& held);

/// Parses the pairs. Throws UsageError for text without '=', an unknown key, a bad value, a key
/// that is given twice to one flag (not to --exclude), and for choices that contradict each other.
Constraints parse_held(const HeldOptions& options);

}  // namespace plimsoll
