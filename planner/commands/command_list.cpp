// `planner list`: the names of what is built in.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/command_line.h"
#include "base/json.h"
#include "planner/cli/flags.h"
#include "planner/commands/commands.h"
#include "planner/describe/preset_list.h"

namespace plimsoll {
namespace {

struct ListOptions {
  std::string kind;  ///< empty: all
  bool json = false;
};

ExitCode run_list(const ListOptions& options) {
  if (options.kind.empty() && !options.json) {
    print_result(preset_names_text());
    return ExitCode::ok;
  }
  Json json = Json::object();
  for (const PresetKind& kind : preset_kinds()) {
    if (!options.kind.empty() && kind.name != options.kind) continue;
    const std::vector<ListedPreset> listed = list_presets(kind);
    if (!options.json) print_result(preset_list_text(listed));
    json[std::string(kind.name)] = preset_list_json(listed);
  }
  if (options.json) print_result(json_text(json));
  return ExitCode::ok;
}

}  // namespace

void add_list(CLI::App& app, Action& action) {
  const auto options = std::make_shared<ListOptions>();
  CLI::App& command = *app.add_subcommand("list", "built-in jobs, clusters, frameworks and fits");
  std::vector<std::string> kinds;
  for (const PresetKind& kind : preset_kinds()) kinds.emplace_back(kind.name);
  command.add_option("KIND", options->kind, "jobs, clusters, frameworks or calibrations")
      ->type_name("PRESETS")
      ->check([kinds](const std::string& text) -> std::string {
        if (std::ranges::find(kinds, text) != kinds.end()) return "";
        return "jobs, clusters, frameworks or calibrations is required";
      });
  add_json(command, options->json);
  command.callback([options, &action] { action = [options] { return run_list(*options); }; });
}

}  // namespace plimsoll
