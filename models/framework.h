// Framework: how an executor runs ops. The passes lower for it, the cost model charges for it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/units.h"

namespace plimsoll {

struct Framework {
  std::string name;
  bool fused_bias = true;  ///< its matmul adds the bias; else bias_add is an op of its own
  /// Scratch memory for library kernels: one buffer on the compute stream.
  Bytes workspace;
  std::string source;  ///< document, code or measurement the numbers come from
  bool operator==(const Framework&) const = default;
};

/// The bundled runtime (planner run).
Framework bundled_framework();
/// By preset name; throws UsageError naming the known ones.
Framework framework_by_name(std::string_view name);

}  // namespace plimsoll
