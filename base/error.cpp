// Errors are mapped to exit codes here, and a broken invariant ends the process.
#include "base/error.h"

#include <cstdio>
#include <cstdlib>
#include <new>
#include <system_error>

namespace plimsoll {

InputError::InputError(std::string file, std::string pointer, std::string message)
    : std::runtime_error(file + (pointer.empty() ? "" : ": at " + pointer) + ": " + message),
      file_(std::move(file)),
      pointer_(std::move(pointer)) {}

ExitCode exit_code(const std::exception& error) {
  if (dynamic_cast<const UsageError*>(&error) != nullptr) return ExitCode::usage;
  if (dynamic_cast<const InputError*>(&error) != nullptr) return ExitCode::bad_input;
  if (dynamic_cast<const InfeasibleError*>(&error) != nullptr) return ExitCode::infeasible;
  if (dynamic_cast<const EnvironmentError*>(&error) != nullptr) return ExitCode::environment;
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return ExitCode::environment;
  if (dynamic_cast<const std::system_error*>(&error) != nullptr) return ExitCode::environment;
  return ExitCode::internal;
}

void invariant_failed(const char* expression, const char* file, int line,
                      const std::string& message) {
  std::fprintf(stderr, "internal error: %s:%d: %s (%s)\n", file, line, message.c_str(), expression);
  std::abort();
}

}  // namespace plimsoll
