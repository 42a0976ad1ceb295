// Exec beside: replaces this process by another program of the product.
#pragma once

#include <string>
#include <vector>

namespace plimsoll {

/// Replaces this process by `program`, found beside the running executable, with `arguments` passed
/// on. Returns only by throwing EnvironmentError.
[[noreturn]] void exec_beside(const std::string& program,
                              const std::vector<std::string>& arguments);

}  // namespace plimsoll
