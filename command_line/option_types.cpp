// One table says which flag takes which type of value.
#include "command_line/option_types.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>

namespace plimsoll {
namespace {

struct FlagType {
  std::string_view flag, type;
};

constexpr FlagType kFlagTypes[] = {
    {"after", "STAGE"},
    {"before", "STAGE"},
    {"budget", "TIME"},
    {"calibration", "CALIBRATION"},
    {"cluster", "CLUSTER"},
    {"cluster-out", "FILE"},
    {"collective", "COLLECTIVE"},
    {"data", "FILE"},
    {"date", "DATE"},
    {"device", "CLUSTER"},
    {"exclude", "KEY=VALUE"},
    {"fix", "KEY=VALUE"},
    {"framework", "FRAMEWORK"},
    {"framework-out", "FILE"},
    {"from", "SCRIPT"},
    {"goals", "FILE"},
    {"inputs", "FOLDER"},
    {"max", "KEY=VALUE"},
    {"measured", "FILE"},
    {"min", "KEY=VALUE"},
    {"name", "NAME"},
    {"network", "RATE"},
    {"nic-bandwidth", "RATE"},
    {"nvlink-bandwidth", "RATE"},
    {"output", "FILE"},
    {"pcie-bandwidth", "RATE"},
    {"plan", "FILE"},
    {"precision", "PRECISION"},
    {"reserve", "BYTES"},
    {"socket-bandwidth", "RATE"},
    {"stated", "FOLDER"},
    {"strategy-out", "FILE"},
    {"time", "TIME"},
    {"time-limit", "TIME"},
    {"trace", "FILE"},
    {"why-not", "CHOICES"},
};

/// The name that CLI11 gives to an option of text by itself.
constexpr std::string_view kUnnamed = "TEXT";

}  // namespace

void name_types(CLI::App& program) {
  for (CLI::Option* option : program.get_options()) {
    const std::string type = option->get_type_name();
    if (option->get_lnames().empty() || type.substr(0, type.find(':')) != kUnnamed) continue;
    const auto named = std::ranges::find(kFlagTypes, option->get_lnames()[0], &FlagType::flag);
    if (named != std::end(kFlagTypes)) option->type_name(std::string(named->type));
  }
  for (CLI::App* command : program.get_subcommands([](CLI::App*) { return true; }))
    name_types(*command);
}

}  // namespace plimsoll
