// Writes what was imported as text for a terminal, and as JSON.
#include "interop/imports/summary.h"

#include <fmt/format.h>

#include "base/json.h"
#include "graph/graph.h"
#include "models/job/job_words.h"

namespace plimsoll {
namespace {

std::string_view word_of(Family family) { return kFamilies[static_cast<std::size_t>(family)]; }

std::string_view word_of(DType precision) {
  for (std::size_t i = 0; i < kPrecisions.size(); ++i) {
    if (kPrecisionTypes[i] == precision) return kPrecisions[i];
  }
  return "";
}

std::string head_words(const Job& job) {
  if (job.kv_heads == job.heads) return fmt::format("heads {}", job.heads);
  return fmt::format("heads {} ({} of keys and values)", job.heads, job.kv_heads);
}

std::string job_lines(const Job& job) {
  return fmt::format(
      "  job         {}: {} family, {} layers, hidden {}, {}, ffn {}, vocabulary {}, {} embeddings\n"
      "  step        {} sequences of {} tokens, {}\n",
      job.name, word_of(job.family), job.layers, job.hidden, head_words(job), job.ffn_hidden,
      job.vocab, job.tied_embeddings ? "tied" : "untied", job.global_batch, job.sequence,
      word_of(job.precision));
}

}  // namespace

std::string import_summary(const Imported& imported, const std::string& parameters) {
  std::string text = imported.kind + "\n";
  if (imported.job) text += job_lines(*imported.job) + parameters;
  if (imported.devices) text += fmt::format("  devices     {}\n", *imported.devices);
  if (imported.framework) text += fmt::format("  framework   {}\n", imported.framework->name);
  if (imported.strategy)
    text += fmt::format("  strategy    {}\n", strategy_summary(*imported.strategy));
  for (const std::string& note : imported.notes) text += fmt::format("  note        {}\n", note);
  for (const UnknownFlag& unknown : imported.unknown) {
    text += fmt::format("  not known   {}: may change model, memory and time\n", text_of(unknown));
  }
  for (const std::string& key : imported.unread) text += fmt::format("  not read    {}\n", key);
  return text;
}

std::string import_summary_json(const Imported& imported) {
  const auto object_of = [](const auto& value, const auto& write) {
    return value ? Json::parse(write(*value)) : Json(nullptr);
  };
  Json json = {{"kind", imported.kind}, {"job", object_of(imported.job, job_text)}};
  json["parameters"] =
      imported.job ? Json(parameter_count(build_forward(*imported.job, 1))) : Json(nullptr);
  json["strategy"] = object_of(imported.strategy, strategy_text);
  json["framework"] = imported.framework ? Json(imported.framework->name) : Json(nullptr);
  json["devices"] = imported.devices ? Json(*imported.devices) : Json(nullptr);
  json["notes"] = imported.notes;
  json["unread"] = imported.unread;
  json["unknown"] = Json::array();
  for (const UnknownFlag& unknown : imported.unknown) {
    json["unknown"].push_back({{"option", unknown.option},
                               {"line", unknown.line > 0 ? Json(unknown.line) : Json(nullptr)}});
  }
  return json_text(json);
}

}  // namespace plimsoll
