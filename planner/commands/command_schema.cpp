// `planner schema`: the JSON Schemas of the files that planner reads and writes.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/command_line.h"
#include "base/json.h"
#include "graph/op_table.h"
#include "models/presets/presets.h"
#include "planner/cli/flags.h"
#include "planner/commands/commands.h"

namespace plimsoll {
namespace {

struct SchemaOptions {
  std::string name;  ///< empty: list all
  bool json = false;
};

Json read_schema(const Preset& preset) { return parse_json(preset.text, std::string(preset.name)); }

constexpr const char* kReference = "$ref";
constexpr const char* kDefinitions = "definitions";
/// Schemas refer to the names of ops under this name.
constexpr const char* kOps = "ops.json";

/// Returns the names of ops, of all and of those that some lists take, from the table of ops.
Json ops_schema() {
  const auto names = [](auto belongs) {
    Json list = Json::array();
    for (std::size_t i = 0; i < kOpKinds; ++i) {
      if (belongs(OpKind(i))) list.push_back(kOpNames[i]);
    }
    return Json{{"enum", list}};
  };
  return {{kDefinitions,
           {{"any", names([](OpKind) { return true; })},
            {"communication", names(communicates)},
            {"local", names([](OpKind kind) { return !communicates(kind); })},
            {"memory_bound",
             names([](OpKind kind) { return row(kind).op_class == OpClass::memory_bound; })}}}};
}

/// Points references to other schemas ("job.json#/definitions/optimizer"), and those within the
/// schema `own`, to where bundle() puts these schemas. Notes which ones it met. The root has no
/// name.
void redirect(Json& node, const std::string& own, std::set<std::string>& met) {
  for (auto& entry : node.items()) {
    Json& member = entry.value();
    if (entry.key() != kReference) {
      if (member.is_structured()) redirect(member, own, met);
      continue;
    }
    const auto text = member.get<std::string>();
    const std::size_t hash = text.find('#');
    const std::string file = hash == 0 ? own : text.substr(0, hash);
    if (!file.empty()) met.insert(file);
    const std::string place = hash == text.npos ? "" : text.substr(hash + 1);
    member = (file.empty() ? "#" : fmt::format("#/{}/{}", kDefinitions, file)) + place;
  }
}

/// Returns a schema with all schemas that it refers to among its definitions.
Json bundle(const Preset& preset) {
  Json whole = read_schema(preset);
  std::set<std::string> met;
  redirect(whole, "", met);
  for (bool more = true; more;) {
    more = false;
    for (const std::string& file : std::set(met)) {
      if (whole[kDefinitions].contains(file)) continue;
      const std::string name = file.substr(0, file.rfind('.'));
      const auto text = find_preset(schema_presets(), name);
      INVARIANT(text || file == kOps, "schemas refer to schemas");
      Json other = file == kOps ? ops_schema() : read_schema({name, *text});
      other.erase("$schema");
      redirect(other, file, met);
      whole[kDefinitions][file] = std::move(other);
      more = true;
    }
  }
  return whole;
}

std::string list_text() {
  std::string text;
  for (const Preset& preset : schema_presets())
    text +=
        fmt::format("{:<22} {}\n", preset.name, read_schema(preset)["title"].get<std::string>());
  return text;
}

std::string list_json() {
  Json list = Json::array();
  for (const Preset& preset : schema_presets())
    list.push_back({{"name", preset.name}, {"title", read_schema(preset)["title"]}});
  return json_text({{"schemas", list}});
}

ExitCode run_schema(const SchemaOptions& options) {
  if (options.name.empty()) {
    print_result(options.json ? list_json() : list_text());
    return ExitCode::ok;
  }
  const auto text = find_preset(schema_presets(), options.name);
  if (!text) {
    std::vector<std::string> names;
    for (const Preset& preset : schema_presets()) names.emplace_back(preset.name);
    const std::string near = nearest(options.name, names);
    throw UsageError(fmt::format(
        "no schema {}{}", printable(options.name),
        near.empty() ? "; planner schema lists them" : fmt::format("; did you mean {}?", near)));
  }
  print_result(json_text(bundle({options.name, *text})));
  return ExitCode::ok;
}

}  // namespace

void add_schema(CLI::App& app, Action& action) {
  const auto options = std::make_shared<SchemaOptions>();
  CLI::App& command =
      *app.add_subcommand("schema", "JSON Schemas of the files that are read and written");
  command.add_option("SCHEMA", options->name, "kind of file; default: a list of them");
  add_json(command, options->json);
  command.callback([options, &action] { action = [options] { return run_schema(*options); }; });
}

}  // namespace plimsoll
