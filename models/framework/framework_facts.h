// Framework facts: what is known of a framework's published runs, beside how it runs ops
// (models/framework/framework.h). models/presets/frameworks/NAME.json, each fact with its source.
#pragma once

#include <string>
#include <string_view>

#include "models/framework/capabilities.h"
#include "models/framework/framework.h"

namespace plimsoll {

struct FrameworkFacts {
  /// The framework whose fits hold for it, since they differ in nothing that fits move; empty:
  /// itself.
  Sourced<std::string> calibrated_as;
  /// Whether rates typical of training say more of its steps than what kernels reach alone.
  Sourced<bool> typical_rates{true};
};

/// A framework without a file has the defaults.
const FrameworkFacts& framework_facts(std::string_view name);

/// Name of the framework whose fitted calibrations hold for this one.
std::string calibrated_as(const Framework& framework);

}  // namespace plimsoll
