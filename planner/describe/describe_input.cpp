// Finds out what kind of file an input is, and describes it.
#include "planner/describe/describe_input.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/file.h"
#include "models/framework/framework_json.h"
#include "models/kinds/file_kind.h"
#include "models/presets/preset_names.h"
#include "reports/numbers.h"

namespace plimsoll {
namespace {

/// A DescribedKind is a kind of file that `planner describe` knows.
struct DescribedKind {
  FileKind file;
  InputKind input;
};

constexpr DescribedKind kDescribedKinds[] = {
    {FileKind::job, InputKind::job},
    {FileKind::cluster, InputKind::cluster},
    {FileKind::framework, InputKind::framework},
    {FileKind::calibration, InputKind::calibration},
    {FileKind::plan, InputKind::plan},
    {FileKind::strategy, InputKind::strategy},
};

struct PresetsOfKind {
  InputKind kind;
  const std::vector<Preset>& (*presets)();
};

constexpr PresetsOfKind kPresetsOfKinds[] = {{InputKind::job, job_presets},
                                             {InputKind::cluster, cluster_presets},
                                             {InputKind::framework, framework_presets},
                                             {InputKind::calibration, calibration_presets}};

std::optional<Input> preset_input(const std::string& name) {
  for (const PresetsOfKind& of : kPresetsOfKinds) {
    if (const auto text = find_preset(of.presets(), name)) {
      return Input{name, std::string(*text), of.kind};
    }
  }
  for (const PresetsOfKind& of : kPresetsOfKinds) {
    if (const auto meant = preset_meant(name, of.presets()))
      return Input{std::string(*meant), std::string(*find_preset(of.presets(), *meant)), of.kind};
  }
  return std::nullopt;
}

[[noreturn]] void refuse_name(const std::string& name) {
  std::vector<std::string> names;
  for (const PresetsOfKind& of : kPresetsOfKinds) {
    for (const Preset& preset : of.presets()) names.emplace_back(preset.name);
  }
  const std::string near = nearest(name, names);
  throw InputError(
      name, "",
      fmt::format("no such file, and no preset of a job, cluster, framework or calibration{}",
                  near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near)));
}

Description describe_framework_file(const Input& input) {
  std::optional<Framework> framework = parse_framework(input.text, input.name, all_frameworks());
  if (!framework) {
    throw InputError(input.name, "/based_on",
                     "it is based on no built-in framework; known: " + known_frameworks());
  }
  // planner-run executes the built-in ones only.
  if (find_framework(framework->name) == nullptr) framework->facts.runs_on = RunsOn::nothing;
  const Json json = parse_json(input.text, input.name);
  return describe_framework(*framework, json.value("based_on", std::string()));
}

std::string json_key(const std::string& name, const std::string& unit) {
  std::string key = unit.empty() ? name : name + "_" + unit;
  std::ranges::replace(key, ' ', '_');
  std::ranges::replace(key, '-', '_');
  return key;
}

Json section_json(const Section& section) {
  Json json = section.is_list ? Json::array() : Json::object();
  for (const Fact& fact : section.facts) {
    if (section.is_list) {
      json.push_back(fact.value);
    } else {
      json[json_key(fact.label, fact.unit)] = fact.value;
    }
  }
  return json;
}

}  // namespace

std::string with_blanks(std::string_view key) {
  std::string words(key);
  std::ranges::replace(words, '_', ' ');
  return words;
}

std::string value_words(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_number_integer()) return grouped(value.get<std::int64_t>());
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::vector<std::string> words;
  for (const Json& one : value) words.push_back(value_words(one));
  return words.empty() ? "none" : fmt::format("{}", fmt::join(words, ", "));
}

InputKind kind_of(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file);
  const std::optional<FileKind> found = file_kind(json);
  for (const DescribedKind& known : kDescribedKinds) {
    if (found == known.file) return known.input;
  }
  if (json.is_object() && !found) {
    for (const std::string_view key : strategy_keys()) {
      if (json.contains(key)) return InputKind::strategy;
    }
  }
  throw InputError(file, "",
                   fmt::format("{}; a job, cluster, framework, calibration, plan, strategy or "
                               "training log is described",
                               found ? fmt::format("this is {}", to_words(*found))
                                     : std::string("no key says what this is")));
}

Input read_input(const std::string& name_or_path) {
  const bool is_name =
      name_or_path.find('/') == std::string::npos && !name_or_path.ends_with(".json");
  std::error_code unknown;
  if (!std::filesystem::exists(name_or_path, unknown) && !unknown) {
    if (auto input = preset_input(name_or_path)) return *std::move(input);
    if (is_name && name_or_path.find('=') != std::string::npos) {
      return {name_or_path, strategy_text(parse_strategy(name_or_path)), InputKind::strategy};
    }
    if (is_name) refuse_name(name_or_path);
  }
  if (std::filesystem::is_regular_file(name_or_path, unknown) && is_training_log(name_or_path)) {
    return {name_or_path, "", InputKind::log};
  }
  std::string text = read_file(name_or_path);
  const InputKind kind = kind_of(text, name_or_path);
  return {name_or_path, std::move(text), kind};
}

Description describe_input(const Input& input) {
  switch (input.kind) {
    case InputKind::job:
      return describe_job(parse_job(input.text, input.name));
    case InputKind::cluster:
      return describe_cluster(parse_cluster(input.text, input.name));
    case InputKind::framework:
      return describe_framework_file(input);
    case InputKind::calibration:
      return describe_calibration(parse_calibration_file(input.text, input.name), input.name);
    case InputKind::strategy:
      return describe_strategy(strategy_from_json_text(input.text, input.name), input.name);
    case InputKind::log:
      return describe_log(read_training_log(std::filesystem::path(input.name)), input.name);
    case InputKind::plan:
      return describe_plan(parse_plan(input.text, input.name));
  }
  INVARIANT(false, "every kind is described");
}

void Section::add(std::string label, std::string text) {
  Json value = text;
  add(std::move(label), std::move(text), std::move(value));
}

void Section::add(std::string label, std::string text, Json value, std::string unit) {
  facts.push_back({std::move(label), std::move(text), std::move(value), std::move(unit)});
}

void Section::add_count(std::string label, std::int64_t count) {
  add(std::move(label), grouped(count), count);
}

void Section::add_bytes(std::string label, Bytes bytes) {
  add(std::move(label), to_text(bytes), bytes.count(), "bytes");
}

void Section::add_time(std::string label, Seconds time) {
  add(std::move(label), to_text(time), time.value(), "s");
}

std::string description_text(const Description& description) {
  constexpr std::size_t kLeastWidth = 20, kMostWidth = 36;
  std::string text = fmt::format("{} {}\n", description.kind, description.name);
  for (const Section& section : description.sections) {
    if (section.facts.empty()) continue;
    text += section.title + "\n";
    std::size_t width = kLeastWidth;
    for (const Fact& fact : section.facts) {
      if (fact.label.size() <= kMostWidth) width = std::max(width, fact.label.size());
    }
    for (const Fact& fact : section.facts) {
      text += fact.label.size() <= kMostWidth
                  ? fmt::format("  {:<{}}  {}\n", fact.label, width, fact.text)
                  : fmt::format("  {}\n  {:<{}}  {}\n", fact.label, "", width, fact.text);
    }
  }
  return text;
}

Json description_json(const Description& description) {
  Json json = {{"kind", description.kind}, {"name", description.name}};
  for (const Section& section : description.sections) {
    json[section.key] = section_json(section);
  }
  return json;
}

}  // namespace plimsoll
