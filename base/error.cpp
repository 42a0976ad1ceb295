#include "base/error.h"

#include <cstdio>
#include <cstdlib>

namespace plimsoll {

InputError::InputError(std::string file, std::string pointer, std::string message)
    : std::runtime_error(file + ": at " + (pointer.empty() ? "/" : pointer) + ": " + message),
      file_(std::move(file)),
      pointer_(std::move(pointer)) {}

void invariant_failed(const char* expression, const char* file, int line,
                      const std::string& message) {
  std::fprintf(stderr, "internal error: %s:%d: %s (%s)\n", file, line, message.c_str(), expression);
  std::abort();
}

}  // namespace plimsoll
