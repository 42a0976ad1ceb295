// Held choices: what --fix, --max, --min and --exclude say of a search.
#pragma once

#include <string>
#include <vector>

#include "planner/space/limits.h"

namespace CLI {
class App;
}  // namespace CLI

namespace plimsoll {

/// KEY=VALUE pairs, by their flags.
struct HeldOptions {
  std::vector<std::string> fix, max, min, exclude;
  bool operator==(const HeldOptions&) const = default;
};
/// Adds the four flags to a command.
void add_held(CLI::App& command, HeldOptions& held);

/// Held choices, as a search takes them.
struct Held {
  Fixed fixed;
  Limits limits;
};
/// Parses the pairs. Throws UsageError for text without '=', an unknown key, a bad value, a key
/// that is given twice to one flag (not to --exclude), and for choices that contradict each other.
Held parse_held(const HeldOptions& options);

}  // namespace plimsoll
