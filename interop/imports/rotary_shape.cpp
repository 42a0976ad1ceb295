// Rotary embeddings are read from a config.json here.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "interop/imports/hugging_face_keys.h"
#include "interop/imports/model_shape.h"
#include "models/job/job_words.h"

namespace plimsoll {
namespace {

/// YaRN's factor of what is turned (Peng et al. 2023, arXiv 2309.00071, section 3.4), as
/// transformers has it (modeling_rope_utils.py, _compute_yarn_parameters).
double yarn_factor(double factor, double weight = 1) {
  return factor <= 1 ? 1 : 0.1 * weight * std::log(factor) + 1;
}

std::string type_of(const Json& rope) {
  const std::string type = text_at(rope, "rope_type");
  return type.empty() ? text_at(rope, "type") : type;
}

/// Reads how angles are scaled. What a job cannot state is noted.
void read_scaling(ConfigFields& fields, const Architecture& known, const std::string& key,
                  const Json& value, JsonObject& rope, Imported& imported) {
  Job& job = *imported.job;
  const std::string type = type_of(value);
  if (type.empty() && value.contains("factor")) {
    imported.notes.push_back(
        fmt::format("{}: a factor without a type is left out; no cost changes", key));
  }
  if (type.empty() || type == "default" || type == "mrope") return;
  // Hunyuan has another base, whatever the length is (modular_hunyuan_v1_dense.py).
  if (type == "dynamic" && rope.has("alpha")) {
    const auto columns = double(head_width(job));
    job.rotary.base *= std::pow(rope.number("alpha", 1e-6, 1e9), columns / (columns - 2));
    return;
  }
  RotaryScale& scale = job.rotary.scale;
  const auto scaling = std::ranges::find(kRotaryScalings, type);
  if (scaling == kRotaryScalings.end() || type == "none") {
    imported.notes.push_back(
        fmt::format("{} {}: a job cannot state these angles of rotary "
                    "embeddings, and leaves them as they are; no cost changes",
                    key, printable(type)));
    return;
  }
  scale.kind = RotaryScaling(scaling - kRotaryScalings.begin());
  scale.factor = rope.number("factor", 1e-6, 1e6);
  if (scale.kind == RotaryScaling::linear) return;
  constexpr const char* kOriginal = "original_max_position_embeddings";
  const bool llama3 = scale.kind == RotaryScaling::llama3;
  const auto number = [&](const char* name, double usual) {
    return rope.has(name) && !rope.raw(name).is_null() ? rope.number(name, 0, 1e6) : usual;
  };
  scale.original = rope.has(kOriginal) ? rope.integer(kOriginal, 1, 1 << 27)
                                       : fields.size(known.key("positions"));
  scale.low = llama3 ? rope.number("low_freq_factor", 1e-6, 1e6) : number("beta_slow", 1);
  scale.high = llama3 ? rope.number("high_freq_factor", 1e-6, 1e6) : number("beta_fast", 32);
  if (llama3) return;
  if (rope.has("truncate")) scale.whole_columns = rope.boolean("truncate");
  const double weight = number("mscale", 0), all = number("mscale_all_dim", 0);
  const double usual = weight > 0 && all > 0
                           ? yarn_factor(scale.factor, weight) / yarn_factor(scale.factor, all)
                           : yarn_factor(scale.factor);
  scale.amplitude = number("attention_factor", usual);
  if (known.softmax_of_yarn && all > 0)
    job.factors.scores *= std::pow(yarn_factor(scale.factor, all), 2);
}

/// Reads the objects of layers without a window and with one, in place of one for all.
void read_scaling_of_layers(ConfigFields& fields, const Architecture& known, const std::string& key,
                            const Json& whole, JsonObject& rope, Imported& imported) {
  constexpr const char *kFull = "full_attention", *kWindowed = "sliding_attention";
  const auto is_in = [&](const char* layers) {
    return whole.contains(layers) && whole.at(layers).is_object();
  };
  const std::string windowed = is_in(kWindowed) ? type_of(whole.at(kWindowed)) : "";
  if (!windowed.empty() && windowed != "default") {
    imported.notes.push_back(
        fmt::format("{}/{} {}: angles of layers with a window are not scaled in a job; these are "
                    "left as they are, and no cost changes",
                    key, kWindowed, printable(windowed)));
  }
  if (!is_in(kFull)) return read_scaling(fields, known, key, whole, rope, imported);
  JsonObject full(whole.at(kFull), fields.file(), json_pointer(rope.pointer(), kFull));
  read_scaling(fields, known, key + "/" + kFull, whole.at(kFull), full, imported);
}

/// Reads the base of rotary embeddings, of layers with and without a window where they differ.
void read_bases(ConfigFields& fields, JsonObject& rope, const Json& value, Job& job) {
  if (rope.has("rope_theta")) job.rotary.base = rope.number("rope_theta", 1, 1e12);
  if (rope.has("partial_rotary_factor"))
    job.rotary.fraction = rope.number("partial_rotary_factor", 0, 1);
  const double usual = job.rotary.fraction;
  std::optional<double> of_layers;
  for (const auto& [name, member] : value.items()) {
    if (!member.is_object()) continue;
    const bool windowed = name == "sliding_attention";
    if (!windowed && name != "full_attention")
      rope.fail(name, "layers with a window and others may differ, and no others");
    JsonObject own(member, fields.file(), json_pointer(rope.pointer(), name));
    if (own.has("rope_theta")) {
      (windowed ? job.rotary.window_base : job.rotary.base) = own.number("rope_theta", 1, 1e12);
    }
    constexpr const char* kPart = "partial_rotary_factor";
    job.rotary.fraction = own.has(kPart) ? own.number(kPart, 0, 1) : usual;
    if (of_layers.value_or(job.rotary.fraction) != job.rotary.fraction)
      own.fail(kPart, "all layers of a job turn as many columns");
    of_layers = job.rotary.fraction;
  }
}

/// Reads which layers have rotary embeddings: those of a list of 1 and 0, or all but the last of
/// each period.
void read_turned_layers(ConfigFields& fields, const Architecture& known, Job& job) {
  constexpr const char* kList = "no_rope_layers";
  const std::string& period = known.key("unturned_period");
  if (period.empty()) return;
  std::vector<bool> turned(std::size_t(job.layers), true);
  if (fields.has(kList) && fields.raw(kList).is_array() && !fields.raw(kList).empty()) {
    const Json& list = fields.raw(kList);
    if (list.size() != turned.size())
      fields.fail(kList, fmt::format("1 or 0 for each of the {} layers is required", job.layers));
    for (std::size_t i = 0; i < turned.size(); ++i) turned[i] = list[i] == 1;
  } else if (fields.has(period)) {
    const auto length = std::size_t(fields.size(period));
    for (std::size_t i = length - 1; i < turned.size(); i += length) turned[i] = false;
  }
  job.rotary.pattern = pattern_of(turned);
}

/// Reads how queries grow. If layers of the type may lack rotary embeddings, only those grow.
void read_growth(ConfigFields& fields, const Architecture& known, Job& job) {
  const std::string &factor = known.key("growth_factor"), &span = known.key("growth_span");
  const auto on = known.switches.find("query_growth");
  const bool off =
      on != known.switches.end() && (!fields.has(on->second) || is_off(fields.raw(on->second)));
  const bool nowhere = !known.key("unturned_period").empty() && job.rotary.pattern.empty();
  if (factor.empty() || !fields.has(factor) || !fields.has(span) || off || nowhere) return;
  const double stated = fields.number(factor, 0, 1e6);
  if (stated > 0) job.rotary.growth = {stated, fields.size(span), known.always.rotary.growth.ahead};
}

/// Returns the key and the object of the angles. The library takes a file's object whole, that of
/// older files before the other, and its own if a file has none (modeling_rope_utils.py,
/// convert_rope_params_to_dict).
std::pair<const char*, const Json*> angles_of(ConfigFields& fields, const Architecture& known) {
  for (const Json* all : {&fields.stated(), &known.defaults}) {
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      fields.mark_read(key);
      if (all->contains(key) && !is_off(all->at(key))) return {key, &all->at(key)};
    }
  }
  return {"", nullptr};
}

void read_angles(ConfigFields& fields, const Architecture& known, const char* key,
                 const Json& value, Imported& imported) {
  if (!value.is_object()) fields.fail(key, "an object is required");
  JsonObject rope(value, fields.file(), json_pointer(fields.pointer(), key));
  read_bases(fields, rope, value, *imported.job);
  read_scaling_of_layers(fields, known, key, value, rope, imported);
  for (const auto& [name, member] : value.items()) {
    const std::string inner = fmt::format("{}/{}", key, name);
    if (!is_of_angles(name) && !fields.is_read(inner)) imported.unread.push_back(printable(inner));
    fields.mark_read(inner);
  }
}

}  // namespace

void read_rotary(ConfigFields& fields, const Architecture& known, Imported& imported) {
  Job& job = *imported.job;
  if (job.alibi || job.learned_positions) {
    for (const char* key : {"rope_theta", "rope_scaling", "partial_rotary_factor"})
      fields.mark_read(key);
    return;
  }
  const std::string &base_key = known.key("rotary_base"), &part_key = known.key("rotary_fraction"),
                    &of_windows = known.key("window_rotary_base");
  if (fields.has(base_key)) job.rotary.base = fields.number(base_key, 1, 1e12);
  if (const std::string& ratio = known.key("rotary_ratio"); !ratio.empty() && fields.has(ratio))
    job.rotary.base *= fields.number(ratio, 1e-6, 1e9);
  if (fields.has(part_key)) job.rotary.fraction = fields.number(part_key, 0, 1);
  if (const std::string& width = known.key("rotary_width"); !width.empty() && fields.has(width))
    job.rotary.fraction = double(fields.size(width)) / double(head_width(job));
  read_turned_layers(fields, known, job);
  read_growth(fields, known, job);
  if (!of_windows.empty() && fields.has(of_windows))
    job.rotary.window_base = fields.number(of_windows, 1, 1e12);
  if (const auto [key, value] = angles_of(fields, known); value != nullptr)
    read_angles(fields, known, key, *value, imported);
  if (job.latent) job.rotary.fraction = 1;  // its sizes say how many columns are turned
}

}  // namespace plimsoll
