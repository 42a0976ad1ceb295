// Keys of experts, by what a job says of them.
#include "imports/expert_shape.h"

#include <fmt/format.h>

#include "base/error.h"
#include "models/job/job_words.h"

namespace plimsoll {

namespace {

/// An architecture's file may name a key for these: the keys of `experts` in a job, and the number
/// of shared experts, each as wide as the others.
constexpr std::string_view kKnown[] = {
    "count",        "chosen",     "ffn_hidden", "shared_experts", "shared_ffn_hidden",
    "dense_layers", "normalized", "scale",      "groups",         "top_groups"};

}  // namespace

ExpertKeys expert_keys_from(JsonObject object) {
  ExpertKeys known;
  JsonObject keys = object.object("keys");
  for (const std::string& what : keys.keys()) {
    if (std::ranges::find(kKnown, what) == std::end(kKnown))
      keys.fail(what, "it is no size of experts");
    known.keys[what] = keys.text(what);
  }
  if (object.has("score"))
    known.always.score = static_cast<RouterScore>(object.choice("score", kRouterScores));
  if (object.has("normalized")) known.always.normalized = object.boolean("normalized");
  if (object.has("group_best")) known.always.group_best = object.integer("group_best", 1, 1 << 16);
  if (object.has("requires")) known.required = object.raw("requires");
  object.finish();
  return known;
}

void read_experts(ConfigFields& fields, const ExpertKeys& known, Job& job) {
  for (const auto& [key, value] : known.required.items()) {
    if (fields.has(key) && fields.raw(key) != value) {
      fields.fail(key, fmt::format("{} is required: the layers behind the dense ones have experts",
                                   value.dump()));
    }
  }
  Experts experts = known.always;
  const auto size = [&](const char* what, std::int64_t& value, std::int64_t least) {
    const auto key = known.keys.find(what);
    if (key == known.keys.end() || !fields.has(key->second)) return;
    value = std::int64_t(fields.number(key->second, double(least), 1 << 30));
  };
  experts.ffn_hidden = job.ffn_hidden;
  size("count", experts.count, 1);
  size("chosen", experts.chosen, 1);
  size("ffn_hidden", experts.ffn_hidden, 1);
  size("shared_ffn_hidden", experts.shared_ffn_hidden, 0);
  std::int64_t shared = 0;
  size("shared_experts", shared, 0);
  if (shared > 0) experts.shared_ffn_hidden = shared * experts.ffn_hidden;
  size("dense_layers", experts.dense_layers, 0);
  size("groups", experts.groups, 1);
  size("top_groups", experts.top_groups, 1);
  if (experts.top_groups == experts.groups) experts.groups = experts.top_groups = 1;
  if (experts.groups == 1) experts.group_best = 1;
  if (const auto key = known.keys.find("normalized"); key != known.keys.end())
    experts.normalized = fields.boolean(key->second);
  if (const auto key = known.keys.find("scale"); key != known.keys.end() && fields.has(key->second))
    experts.scale = fields.number(key->second, 0, 1e6);
  if (experts.count > 1) job.experts = experts;
}

}  // namespace plimsoll
