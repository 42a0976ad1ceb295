// Generations of GPUs, read from models/presets/gpu_generations.
#include "models/cluster/gpu_generation.h"

#include <algorithm>
#include <cctype>

#include "base/json.h"
#include "models/presets/presets.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kMostCapability = 1000, kMostLinks = 1024;

NvlinkFacts nvlink_from(JsonObject object) {
  NvlinkFacts facts;
  facts.links = object.integer("links", 1, kMostLinks);
  facts.rate = object.bytes_per_second("rate");
  facts.document = object.text("document");
  facts.date = object.text("date");
  object.finish();
  return facts;
}

PeakFacts peaks_from(JsonObject object) {
  PeakFacts facts;
  facts.multiprocessors = object.number("multiprocessors", 1, 1e6);
  facts.bf16 = object.flops_per_second("bf16");
  facts.fp32 = object.flops_per_second("fp32");
  facts.document = object.text("document");
  object.finish();
  return facts;
}

GpuGeneration generation_from(const Preset& preset) {
  const std::string file = std::string(preset.name) + ".json";
  const Json json = parse_json(preset.text, file);
  JsonObject object(json, file);
  GpuGeneration generation;
  generation.names = object.texts("names");
  generation.compute_capability = object.integer("compute_capability", 1, kMostCapability);
  if (object.has("same_links"))
    generation.same_links = object.integers("same_links", 1, kMostCapability);
  if (object.has("nvlink")) {
    generation.nvlink = nvlink_from(object.object("nvlink"));
  } else {
    object.text("document");  // of the compute capability
  }
  if (object.has("tf32")) {
    JsonObject tf32 = object.object("tf32");
    generation.tf32_of_16_bits = tf32.number("of_16_bits", 0.01, 1);
    tf32.text("document");
    tf32.finish();
  }
  if (object.has("flash_2")) {
    JsonObject rates = object.object("flash_2");
    generation.flash_2 = {rates.number("forward", 0.01, 1), rates.number("backward", 0.01, 1)};
    rates.text("document");
    rates.finish();
  }
  if (object.has("untransposed_fp8")) {
    JsonObject fp8 = object.object("untransposed_fp8");
    fp8.text("document");
    fp8.finish();
    generation.untransposed_fp8 = true;
  }
  if (object.has("lacks")) {
    JsonObject lacks = object.object("lacks");
    generation.without_flash_attention = lacks.text("flash_attention");
    lacks.finish();
  }
  if (object.has("peaks")) generation.peaks = peaks_from(object.object("peaks"));
  object.finish();
  return generation;
}

/// Whether it is a word of the text.
bool has_word(std::string_view text, std::string_view word) {
  const std::size_t at = text.find(word);
  if (at == text.npos) return false;
  const auto letter = [&](std::size_t i) {
    return i < text.size() && std::isalnum(static_cast<unsigned char>(text[i])) != 0;
  };
  return !(at > 0 && letter(at - 1)) && !letter(at + word.size());
}

}  // namespace

const std::vector<GpuGeneration>& gpu_generations() {
  static const std::vector<GpuGeneration> generations = [] {
    std::vector<GpuGeneration> read;
    for (const Preset& preset : gpu_generation_presets()) read.push_back(generation_from(preset));
    std::ranges::sort(read, {}, &GpuGeneration::compute_capability);
    return read;
  }();
  return generations;
}

const GpuGeneration* generation_of_capability(std::int64_t compute_capability) {
  for (const GpuGeneration& generation : gpu_generations()) {
    const bool alike =
        std::ranges::find(generation.same_links, compute_capability) != generation.same_links.end();
    if (alike || generation.compute_capability == compute_capability) return &generation;
  }
  return nullptr;
}

const GpuGeneration* generation_named(std::string_view device) {
  const GpuGeneration* named = nullptr;
  for (const GpuGeneration& generation : gpu_generations()) {
    if (std::ranges::any_of(generation.names,
                            [&](const std::string& name) { return has_word(device, name); }))
      named = &generation;
  }
  return named;
}

}  // namespace plimsoll
