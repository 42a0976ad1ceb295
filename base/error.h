// There are three kinds of failure, which are never mixed. Bad input is an InputError, an expected
// "no" is a Verdict, and a broken invariant aborts through INVARIANT. An EnvironmentError says what
// the machine lacks or refuses, such as a file that cannot be written or a rank that stopped.
#pragma once

#include <stdexcept>
#include <string>

namespace plimsoll {

/// These are the exit codes of every executable (docs/reference/exit-codes.md).
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

/// A user's file says something that is not allowed. what() is "FILE: at POINTER: MESSAGE", or
/// "FILE: MESSAGE" for the whole file.
class InputError : public std::runtime_error {
 public:
  InputError(std::string file, std::string pointer, std::string message);
  const std::string& file() const { return file_; }
  const std::string& pointer() const { return pointer_; }

 private:
  std::string file_, pointer_;
};

/// The command line is wrong (exit 2): an unknown flag, an unknown --fix key or a missing argument.
class UsageError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The machine could not do the work (exit 6): a write failed, a deadline passed or a library is
/// missing.
class EnvironmentError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Returns the code with which an exception ends a program; other exceptions give `internal`.
ExitCode exit_code(const std::exception& error);

/// A Verdict is an expected "yes", or a "no" with its reason, such as "not legal" or "does not
/// fit". An empty reason means yes.
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

/// A request cannot be met (exit 4), and the answer has to cross several callers. The message
/// carries the rule or the bytes.
class InfeasibleError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[noreturn]] void invariant_failed(const char* expression, const char* file, int line,
                                   const std::string& message);

}  // namespace plimsoll

/// A failed INVARIANT is a programmer's error, which user input never reaches. It is active in
/// every build type.
#define INVARIANT(expression, message)                                          \
  do {                                                                          \
    if (!(expression)) {                                                        \
      ::plimsoll::invariant_failed(#expression, __FILE__, __LINE__, (message)); \
    }                                                                           \
  } while (false)
