// The deadline of a command is read and checked.
#include "runtime/command/deadline.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

#include "base/command_line.h"
#include "base/error.h"

namespace plimsoll {

void add_deadline(CLI::App& app, double& seconds, const std::string& description) {
  constexpr double kLeast = 1e-3, kMost = 1e6;
  app.add_option("--deadline", seconds, description)
      ->capture_default_str()
      ->check([](const std::string& text) { return refuse_number(text, kLeast, kMost); });
}

std::chrono::milliseconds deadline_of(double seconds) {
  const double count = std::round(seconds * 1e3);
  if (std::abs(seconds * 1e3 - count) > 1e-6) {
    throw UsageError(fmt::format("--deadline: found {}; whole milliseconds are required", seconds));
  }
  return std::chrono::milliseconds(std::int64_t(count));
}

}  // namespace plimsoll
