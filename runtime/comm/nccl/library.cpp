// NCCL's version and errors are turned into text.
#include "runtime/comm/nccl/library.h"

#include <fmt/format.h>

#include "base/error.h"

namespace plimsoll {

std::string nccl_version() {
  int code = 0;
  check_nccl(nccl().version(&code), "name its version");
  // 10,000 major + 100 minor + patch, since 2.9.
  return fmt::format("NCCL {}.{}.{}", code / 10000, code % 10000 / 100, code % 100);
}

void check_nccl(ncclResult_t result, std::string_view what) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const char* const last = nccl().last_error(nullptr);
  throw EnvironmentError(fmt::format("NCCL cannot {}: {}{}{}", what, nccl().error_string(result),
                                     last != nullptr && *last != '\0' ? "; " : "",
                                     last != nullptr ? last : ""));
}

}  // namespace plimsoll
