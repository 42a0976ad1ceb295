// The option --deadline says how long a rank waits for others.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <string>

namespace plimsoll {

/// Adds the option to a command, with its limits. `seconds` has the default.
void add_deadline(CLI::App& app, double& seconds, const std::string& description);

/// Waits are counted in whole milliseconds; a deadline is kept, and named, exactly. Throws
/// UsageError for another number.
std::chrono::milliseconds deadline_of(double seconds);

}  // namespace plimsoll
