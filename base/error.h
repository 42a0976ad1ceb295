// The three kinds of failure, never mixed: bad input is an InputError, an expected outcome is a
// Verdict, a broken invariant aborts through INVARIANT. EnvironmentError is for what the machine
// lacks or refuses (a file that cannot be written, a rank that stopped).
#pragma once

#include <stdexcept>
#include <string>

namespace plimsoll {

/// Exit codes of every executable (docs/reference/exit-codes.md).
enum class ExitCode : int {
  ok = 0,
  internal = 1,
  usage = 2,
  bad_input = 3,
  infeasible = 4,
  stopped_early = 5,
  environment = 6,
  outside_tolerance = 7,
};

/// A user's file says something it may not. what() is "FILE: at POINTER: MESSAGE".
class InputError : public std::runtime_error {
 public:
  InputError(std::string file, std::string pointer, std::string message);
  const std::string& file() const { return file_; }
  const std::string& pointer() const { return pointer_; }

 private:
  std::string file_, pointer_;
};

/// Wrong command line (exit 2): unknown flag, unknown --fix key, missing argument.
class UsageError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The machine could not do it (exit 6): a write failed, a deadline passed, a library is missing.
class EnvironmentError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The exit code an exception ends a program with; internal for any other.
ExitCode exit_code(const std::exception& error);

/// An expected "no" with its reason: not legal, does not fit. Empty reason means yes.
class Verdict {
 public:
  static Verdict yes() { return Verdict(); }
  static Verdict no(std::string reason) {
    Verdict verdict;
    verdict.reason_ = std::move(reason);
    return verdict;
  }
  explicit operator bool() const { return reason_.empty(); }
  const std::string& reason() const { return reason_; }

 private:
  std::string reason_;
};

/// Infeasible request (exit 4) that has to cross several callers; carries the rule or the bytes.
class InfeasibleError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[noreturn]] void invariant_failed(const char* expression, const char* file, int line,
                                   const std::string& message);

}  // namespace plimsoll

/// A programmer's error, never reachable from user input; active in every build type.
#define INVARIANT(expression, message)                                          \
  do {                                                                          \
    if (!(expression)) {                                                        \
      ::plimsoll::invariant_failed(#expression, __FILE__, __LINE__, (message)); \
    }                                                                           \
  } while (false)
