// Held choices: what --fix, --max, --min, --exclude and --try say of a search.
#pragma once

#include <string>
#include <vector>

#include "passes/strategy/constraints.h"

namespace CLI {
class App;
}  // namespace CLI

namespace plimsoll {

/// KEY=VALUE pairs, by their flags. Those of --try may have several values, with commas.
struct HeldOptions {
  std::vector<std::string> fix, max, min, exclude, tried{};
};
/// Adds the flags to a command.
void add_held(CLI::App& command, HeldOptions& held);

/// Parses the pairs. Throws UsageError for text without '=', an unknown key, a bad value, a key
/// that is given twice to one flag (not to --exclude), and for choices that contradict each other.
Constraints parse_held(const HeldOptions& options);

}  // namespace plimsoll
