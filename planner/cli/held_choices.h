// Held choices: what --fix, --max, --min, --exclude and --try say of a search.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "planner/space/tried.h"

namespace CLI {
class App;
}  // namespace CLI

namespace plimsoll {

/// KEY=VALUE pairs, by their flags. Those of --try may have several values, with commas.
struct HeldOptions {
  std::vector<std::string> fix, max, min, exclude, tried{};
  bool operator==(const HeldOptions&) const = default;
};
/// The flags, in the order in which a command has them.
inline constexpr std::pair<const char*, std::vector<std::string> HeldOptions::*> kHeldFlags[] = {
    {"--fix", &HeldOptions::fix},
    {"--max", &HeldOptions::max},
    {"--min", &HeldOptions::min},
    {"--exclude", &HeldOptions::exclude},
    {"--try", &HeldOptions::tried}};
/// Returns the choices of texts such as "PP=2" or "PP=2,VPP=2", one each.
std::vector<std::string> single_choices(const std::vector<std::string>& texts);
/// Adds the flags to a command.
void add_held(CLI::App& command, HeldOptions& held);

/// Held choices, as a search takes them.
struct Held {
  Fixed fixed;
  Limits limits;
  Tried tried;
};
/// Parses the pairs. Throws UsageError for text without '=', an unknown key, a bad value, a key
/// that is given twice to one flag (not to --exclude), and for choices that contradict each other.
Held parse_held(const HeldOptions& options);

}  // namespace plimsoll
