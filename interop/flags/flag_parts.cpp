// Splits of layers as flags state them.
#include "interop/flags/flag_parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>

#include "base/json.h"
#include "interop/flags/flag_values.h"
#include "models/job/job_limits.h"
#include "passes/strategy/stage_layout.h"

namespace plimsoll {
namespace {

/// The parts of a model and what its layers are spread by.
struct Parts {
  Job job;
  Strategy strategy;
};

std::optional<Parts> parts_of(const FlagFields& fields) {
  const auto layers = fields.find("layers");
  if (layers == fields.end()) return std::nullopt;
  Parts parts;
  parts.job.layers = integer_from(layers->second).value_or(0);
  if (const auto depths = fields.find("mtp.depths"); depths != fields.end())
    parts.job.mtp = MultiToken{.depths = integer_from(depths->second).value_or(0)};
  for (const std::string_view key :
       {"pp", "virtual_stages", "layer_split", "embedding_as_layers", "loss_as_layers"}) {
    const auto field = fields.find(key);
    if (field != fields.end()) set_field(parts.strategy, key, field->second);
  }
  return parts;
}

/// Every n-th layer, counted from 1: layers n - 1, 2 n - 1, and so on.
std::string nth_layers(std::int64_t layers, std::int64_t step) {
  std::string list;
  for (std::int64_t layer = step - 1; layer < layers; layer += step)
    list += (list.empty() ? "" : "+") + decimal(layer);
  return list;
}

/// The names of modules that a model has: in front, a layer's before and behind its number, behind.
struct ModuleNames {
  std::string front, layer_before, layer_behind;
  std::vector<std::string> behind;
};

ModuleNames module_names(std::string_view text) {
  const std::vector<std::string> names = split(text, ' ');
  INVARIANT(names.size() >= 2 && names[1].find('*') != std::string::npos,
            "flag tables name modules as \"front layers.* behind\"");
  const std::size_t star = names[1].find('*');
  return {names[0],
          names[1].substr(0, star),
          names[1].substr(star + 1),
          {names.begin() + 2, names.end()}};
}

}  // namespace

/// Megatron-LM spreads layers, with one for each end of the model that counts as a layer, where
/// parts divide them.
std::optional<std::string> split_of(const FlagFields& fields) {
  const auto parts = parts_of(fields);
  if (!parts) return std::nullopt;
  const Strategy& strategy = parts->strategy;
  const std::int64_t embedding = strategy.pipeline.embedding_as_layers,
                     loss = strategy.pipeline.loss_as_layers;
  const bool even =
      strategy.pipeline.layer_split.empty() && embedding <= 1 && loss <= 1 &&
      (parts->job.layers + embedding + loss) % (strategy.pp * strategy.pipeline.virtual_stages) ==
          0;
  return even ? "even" : "listed";
}

/// Megatron-LM megatron/training/arguments.py, --pipeline-model-parallel-layout.
std::optional<std::string> layout_of(const FlagFields& fields) {
  const auto parts = parts_of(fields);
  if (!parts) return std::nullopt;
  const Strategy& strategy = parts->strategy;
  if (strategy.pp > kMostLayers || strategy.pp * strategy.pipeline.virtual_stages > 2 * kMostLayers)
    return std::nullopt;
  const std::vector<std::int64_t> layers = layers_per_part(parts->job, strategy);
  std::string layout = "E";
  for (std::size_t part = 0; part < layers.size(); ++part) {
    if (part > 0) layout += "|";
    const bool last = part + 1 == layers.size();
    const std::int64_t modules = last ? total_layers(parts->job) - dealt_layers(parts->job) : 0;
    if (layers[part] > modules) layout += "t*" + decimal(layers[part] - modules);
    if (modules > 0) layout += "m*" + decimal(modules);
  }
  return layout + "L";
}

StatedFields split_from_layout(const FlagFields& fields, std::string_view text) {
  const std::vector<std::int64_t> layers = layers_of_layout(text);
  const std::int64_t stages = count_of(fields, "pp").value_or(1);
  const auto parts = std::int64_t(layers.size());
  if (parts % stages != 0)
    throw std::invalid_argument(
        fmt::format("found {} parts; a multiple of the {} stages is "
                    "required",
                    parts, stages));
  std::int64_t sum = 0;
  for (const std::int64_t each : layers) sum += each;
  const auto model = parts_of(fields);
  if (model && sum != total_layers(model->job)) {
    throw std::invalid_argument(
        fmt::format("it has {} of the model's {} layers", sum, total_layers(model->job)));
  }
  StatedFields stated = {{"virtual_stages", decimal(parts / stages)}};
  if (parts > 1) stated.emplace_back("layer_split", fmt::format("{}", fmt::join(layers, "+")));
  return stated;
}

StatedFields virtual_stages_from(const FlagFields& fields, std::string_view text) {
  const auto each = integer_from(text);
  const auto parts = parts_of(fields);
  if (!each || *each < 1 || !parts) throw std::invalid_argument("a count of layers is required");
  const std::int64_t layers = parts->job.layers + parts->strategy.pipeline.embedding_as_layers +
                              parts->strategy.pipeline.loss_as_layers;
  const std::int64_t stages = parts->strategy.pp;
  if (layers % stages != 0 || layers / stages % *each != 0)
    throw std::invalid_argument(
        fmt::format("a divisor of the layers of a stage, {} / {}, is required", layers, stages));
  return {{"virtual_stages", decimal(layers / stages / *each)}};
}

std::optional<std::string> every_nth_layer(const FlagFields& fields) {
  const auto field = fields.find("recompute_list");
  const auto layers = count_of(fields, "layers");
  if (field == fields.end() || !layers || field->second == "all") return std::nullopt;
  const auto first =
      integer_from(std::string_view(field->second).substr(0, field->second.find('+')));
  if (!first || *first < 0 || *first >= *layers || *layers > kMostLayers) return std::nullopt;
  const std::int64_t step = *first + 1;
  return nth_layers(*layers, step) == field->second ? std::optional(decimal(step)) : std::nullopt;
}

StatedFields layers_from_step(const FlagFields& fields, std::string_view text) {
  const auto step = integer_from(text);
  const auto layers = count_of(fields, "layers");
  if (!step || *step < 0 || !layers || *layers > kMostLayers)
    throw std::invalid_argument("a number of layers is required");
  if (*step > *layers)
    throw std::invalid_argument(
        fmt::format("no layer of {} would be recomputed: a smaller number is required", *layers));
  if (*step <= 1) return {{"recompute_list", "all"}};
  return {{"recompute_list", nth_layers(*layers, *step)}};
}

std::optional<std::string> modules_of(const FlagFields& fields, std::string_view names) {
  const auto parts = parts_of(fields);
  if (!parts || parts->job.layers > kMostLayers) return std::nullopt;
  const ModuleNames modules = module_names(names);
  const std::vector<std::int64_t> layers = layers_per_part(parts->job, parts->strategy);
  Json lists = Json::array();
  std::int64_t next = 0;
  for (std::size_t part = 0; part < layers.size(); ++part) {
    Json list = Json::array();
    if (part == 0) list.push_back(modules.front);
    for (std::int64_t i = 0; i < layers[part]; ++i, ++next)
      list.push_back(modules.layer_before + decimal(next) + modules.layer_behind);
    if (part + 1 == layers.size()) {
      for (const std::string& name : modules.behind) list.push_back(name);
    }
    lists.push_back(std::move(list));
  }
  return lists.dump();
}

StatedFields split_from_modules(const FlagFields& fields, std::string_view names,
                                std::string_view text) {
  const ModuleNames modules = module_names(names);
  const Json lists = Json::parse(text, nullptr, false);
  const std::int64_t stages = count_of(fields, "pp").value_or(1);
  const auto parts = lists.is_array() ? std::int64_t(lists.size()) : 0;
  if (parts == 0 || parts % stages != 0)
    throw std::invalid_argument(
        fmt::format("a list of modules for each of the {} stages is required", stages));
  std::vector<std::int64_t> layers;
  for (const Json& list : lists) {
    layers.push_back(0);
    for (const Json& name : list.is_array() ? list : Json::array()) {
      if (name.is_string() && name.get<std::string>().starts_with(modules.layer_before))
        ++layers.back();
    }
  }
  StatedFields stated = {{"virtual_stages", decimal(parts / stages)},
                         {"layer_split", fmt::format("{}", fmt::join(layers, "+"))}};
  if (parts == 1) stated.pop_back();
  std::int64_t sum = 0;
  for (const std::int64_t each : layers) sum += each;
  FlagFields split = fields;
  for (const auto& [key, value] : stated) split[key] = value;
  if (sum != count_of(fields, "layers").value_or(0) || modules_of(split, names) != lists.dump())
    throw std::invalid_argument(
        fmt::format("all modules of the model in its order, {}, are required", names));
  return stated;
}

}  // namespace plimsoll
