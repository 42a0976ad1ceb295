// The built-in frameworks, and what can be asked of any.
#include "models/framework/framework.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "models/framework/framework_json.h"
#include "models/presets/preset_names.h"

namespace plimsoll {
namespace {

/// A base has to be there before what is based on it. Files state their bases by name, so that the
/// order of files says nothing: those whose base is not there yet come again.
std::vector<Framework> parse_presets() {
  std::vector<Framework> known;
  std::vector<const Preset*> waiting;
  for (const Preset& preset : framework_presets()) waiting.push_back(&preset);
  while (!waiting.empty()) {
    std::vector<const Preset*> later;
    for (const Preset* preset : waiting) {
      const std::string file = fmt::format("models/presets/frameworks/{}.json", preset->name);
      if (auto framework = parse_framework(preset->text, file, known)) {
        known.push_back(*std::move(framework));
      } else {
        later.push_back(preset);
      }
    }
    INVARIANT(later.size() < waiting.size(), "a framework is based on itself or on none there is");
    waiting = std::move(later);
  }
  std::ranges::sort(known, {}, &Framework::name);
  return known;
}

}  // namespace

const std::vector<Framework>& all_frameworks() {
  static const std::vector<Framework> known = parse_presets();
  return known;
}

const Framework* find_framework(std::string_view name) {
  const auto found = std::ranges::find(all_frameworks(), name, &Framework::name);
  return found == all_frameworks().end() ? nullptr : &*found;
}

std::string known_frameworks() {
  std::vector<std::string_view> names;
  for (const Framework& framework : all_frameworks()) names.push_back(framework.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

const Framework& framework_by_name(std::string_view name) {
  if (const Framework* found = find_framework(name)) return *found;
  throw UsageError(fmt::format("no framework is called \"{}\"; {}", name,
                               unknown_preset(std::string(name), framework_presets())));
}

FrameworkFacts facts_of(std::string_view name) {
  const Framework* found = find_framework(name);
  return found == nullptr ? FrameworkFacts() : found->facts;
}

const Framework& bundled_framework() {
  static const Framework& framework = framework_by_name("bundled");
  return framework;
}

const Framework& bundled_cuda_framework() {
  static const Framework& framework = framework_by_name("bundled-cuda");
  return framework;
}

bool runs_here(const Framework& framework) { return framework.facts.runs_on != RunsOn::nothing; }

std::string calibrated_as(const Framework& framework) {
  const std::string& other = framework.facts.calibrated_as.value;
  return other.empty() ? framework.name : other;
}

Framework read_framework(const std::string& name_or_path) {
  if (const Framework* found = find_framework(name_or_path)) return *found;
  std::error_code unknown;  // of a name too long, say: read_file tells
  if (!std::filesystem::exists(name_or_path, unknown) && !unknown) {
    if (const auto meant = preset_meant(name_or_path, framework_presets()))
      return framework_by_name(*meant);
  }
  if (name_or_path.find_first_of("./") == std::string::npos) framework_by_name(name_or_path);
  return framework_of_text(read_file(name_or_path), name_or_path);
}

Framework framework_of_text(std::string_view text, const std::string& file) {
  std::optional<Framework> framework = parse_framework(text, file, all_frameworks());
  if (!framework) {
    throw InputError(file, "/based_on",
                     "it is based on no built-in framework; known: " + known_frameworks());
  }
  if (find_framework(framework->name) != nullptr) {
    throw InputError(file, "/name",
                     fmt::format("\"{}\" is built in; the framework of a file needs another name",
                                 framework->name));
  }
  // planner-run executes what the built-in ones lower to.
  framework->facts.runs_on = RunsOn::nothing;
  return *std::move(framework);
}

bool lowers_alike(Framework a, const Framework& b) {
  a.host.dispatch.op = b.host.dispatch.op;
  a.host.waits.time = b.host.waits.time;
  a.host.dispatch.backward = b.host.dispatch.backward;
  a.host.dispatch.ops_per_expert_op = b.host.dispatch.ops_per_expert_op;
  a.host.dispatch.ops_per_part = b.host.dispatch.ops_per_part;
  a.host.dispatch.ops_per_tensor = b.host.dispatch.ops_per_tensor;
  a.host.dispatch.graphs = b.host.dispatch.graphs;
  a.memory.process.context = b.memory.process.context;
  a.memory.process.pair_communicator = b.memory.process.pair_communicator;
  a.memory.process.communicator = b.memory.process.communicator;
  a.sources.dispatch = b.sources.dispatch;
  a.sources.memory = b.sources.memory;
  return a == b;
}

std::int64_t padded_vocabulary(std::int64_t rows, const Framework& framework, std::int64_t mp) {
  const std::int64_t multiple = framework.parallelism.vocabulary_multiple * mp;
  return (rows + multiple - 1) / multiple * multiple;
}

}  // namespace plimsoll
