#include "published/document_facts.h"

#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "models/calibration/fitted_calibration.h"
#include "models/presets/presets.h"

namespace plimsoll {
namespace {

/// A document's statement about those of its runs whose place in the document contains `place`. A
/// field that is absent is not stated.
struct DocumentFact {
  std::string place, source;
  std::optional<std::int64_t> kv_heads, reserved_tokens;
  std::optional<double> dropout;
  std::optional<bool> tied_embeddings;
  std::optional<LossMemory> loss_memory;
  std::optional<Bytes> handle_workspace;
  std::string recompute;  ///< empty: not said
};

DocumentFact fact_from(JsonObject object) {
  constexpr std::int64_t kMost = std::int64_t{1} << 24;
  DocumentFact fact;
  fact.place = object.text("place");
  fact.source = object.text("source");
  JsonObject says = object.object("says");
  if (says.has("kv_heads")) fact.kv_heads = says.integer("kv_heads", 1, kMost);
  if (says.has("reserved_tokens")) fact.reserved_tokens = says.integer("reserved_tokens", 1, kMost);
  if (says.has("dropout")) fact.dropout = says.number("dropout", 0, 0.99);
  if (says.has("tied_embeddings")) fact.tied_embeddings = says.boolean("tied_embeddings");
  if (says.has("recompute")) fact.recompute = says.text("recompute");
  if (says.has("loss_memory"))
    fact.loss_memory = static_cast<LossMemory>(says.choice("loss_memory", kLossMemories));
  if (says.has("handle_workspace")) fact.handle_workspace = says.bytes("handle_workspace");
  says.finish();
  object.finish();
  return fact;
}

using DocumentFacts = std::map<std::string, std::vector<DocumentFact>>;

DocumentFacts read_facts() {
  DocumentFacts facts;
  for (const Preset& preset : document_presets()) {
    const std::string file = std::string(preset.name) + ".json";
    const Json json = parse_json(preset.text, file);
    JsonObject object(json, file);
    std::vector<DocumentFact>& of = facts[object.text("document")];
    for (const JsonObject& fact : object.objects("facts")) of.push_back(fact_from(fact));
    object.finish();
  }
  return facts;
}

void apply(const DocumentFact& fact, PublishedRun& run) {
  if (fact.kv_heads) run.kv_heads = fact.kv_heads;
  if (fact.reserved_tokens && run.vocab) run.vocab = *run.vocab + *fact.reserved_tokens;
  if (fact.dropout) run.dropout = fact.dropout;
  if (fact.tied_embeddings) run.tied_embeddings = fact.tied_embeddings;
  if (fact.loss_memory) run.loss_memory = fact.loss_memory;
  if (fact.handle_workspace) run.handle_workspace = fact.handle_workspace;
  if (!fact.recompute.empty()) run.recompute = fact.recompute;
}

}  // namespace

void apply_document_facts(PublishedRun& run) {
  static const DocumentFacts known = read_facts();
  const auto found = known.find(document_of(run.source));
  if (found == known.end()) return;
  for (const DocumentFact& fact : found->second) {
    if (run.source.find(fact.place) != std::string::npos) apply(fact, run);
  }
}

}  // namespace plimsoll
