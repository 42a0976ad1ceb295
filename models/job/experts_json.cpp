// The experts and MTP modules of a job file: keys, limits, canonical form.
#include <fmt/format.h>

#include "base/error.h"
#include "models/job/job_limits.h"
#include "models/job/job_parts_json.h"
#include "models/job/job_words.h"

namespace plimsoll {

namespace {

constexpr double kMostFactor = 1e6;  // of weights, losses and capacity

void integer(JsonObject& object, const char* key, std::int64_t& value, std::int64_t least,
             std::int64_t most) {
  if (object.has(key)) value = object.integer(key, least, most);
}

void number(JsonObject& object, const char* key, double& value) {
  if (object.has(key)) value = object.number(key, 0, kMostFactor);
}

std::int64_t layers_with_experts(const Job& job) {
  std::int64_t count = 0;
  for (std::int64_t layer = 0; layer < job.layers; ++layer) count += has_experts(job, layer);
  return count;
}

struct ExpertRule {
  bool kept;
  const char* pointer;
  std::string message;
};

}  // namespace

Experts experts_from(JsonObject object, std::int64_t ffn_hidden) {
  Experts experts;
  experts.count = object.integer("count", 2, kMostExperts);
  experts.chosen = object.integer("chosen", 1, kMostExperts);
  experts.ffn_hidden = ffn_hidden;
  integer(object, "ffn_hidden", experts.ffn_hidden, 1, kMostFfn);
  integer(object, "shared_ffn_hidden", experts.shared_ffn_hidden, 0, kMostFfn);
  integer(object, "dense_ffn_hidden", experts.dense_ffn_hidden, 0, kMostFfn);
  integer(object, "latent_hidden", experts.latent_hidden, 0, kMostHidden);
  integer(object, "dense_layers", experts.dense_layers, 0, kMostLayers);
  if (object.has("pattern")) experts.pattern = layer_pattern_from(object, "pattern");
  for (const auto& [key, value] :
       {std::pair("shared_gate", &experts.shared_gate), std::pair("bias", &experts.bias),
        std::pair("router_bias", &experts.router_bias),
        std::pair("scaled_input", &experts.scaled_input),
        std::pair("drop_overflow", &experts.drop_overflow)}) {
    if (object.has(key)) *value = object.boolean(key);
  }
  if (object.has("score"))
    experts.score = static_cast<RouterScore>(object.choice("score", kRouterScores));
  if (object.has("normalized")) experts.normalized = object.boolean("normalized");
  number(object, "scale", experts.scale);
  integer(object, "groups", experts.groups, 1, kMostExperts);
  integer(object, "top_groups", experts.top_groups, 1, kMostExperts);
  integer(object, "group_best", experts.group_best, 1, kMostExperts);
  number(object, "capacity", experts.capacity);
  if (object.has("load")) experts.load = object.number("load", 1, kMostFactor);
  number(object, "balance_loss", experts.balance_loss);
  integer(object, "balance_sequences", experts.balance_sequences, 1, kMostBatch);
  number(object, "z_loss", experts.z_loss);
  number(object, "selection_bias", experts.selection_bias);
  object.finish();
  return experts;
}

Json experts_json(const Experts& experts) {
  Json json = {
      {"count", experts.count}, {"chosen", experts.chosen}, {"ffn_hidden", experts.ffn_hidden}};
  if (experts.shared_ffn_hidden > 0) json["shared_ffn_hidden"] = experts.shared_ffn_hidden;
  if (experts.shared_gate) json["shared_gate"] = true;
  if (experts.dense_ffn_hidden > 0) json["dense_ffn_hidden"] = experts.dense_ffn_hidden;
  if (experts.latent_hidden > 0) json["latent_hidden"] = experts.latent_hidden;
  if (experts.dense_layers > 0) json["dense_layers"] = experts.dense_layers;
  if (!experts.pattern.empty()) json["pattern"] = layer_pattern_json(experts.pattern);
  if (experts.bias) json["bias"] = true;
  if (experts.router_bias) json["router_bias"] = true;
  if (experts.scaled_input) json["scaled_input"] = true;
  json["score"] = kRouterScores[static_cast<std::size_t>(experts.score)];
  json["normalized"] = experts.normalized;
  if (experts.scale != 1) json["scale"] = experts.scale;
  if (experts.groups > 1) {
    json["groups"] = experts.groups;
    json["top_groups"] = experts.top_groups;
    json["group_best"] = experts.group_best;
  }
  if (experts.capacity > 0) json["capacity"] = experts.capacity;
  if (experts.load != Experts().load) json["load"] = experts.load;
  if (experts.drop_overflow) json["drop_overflow"] = true;
  if (experts.balance_loss > 0) json["balance_loss"] = experts.balance_loss;
  if (experts.balance_sequences > 1) json["balance_sequences"] = experts.balance_sequences;
  if (experts.z_loss > 0) json["z_loss"] = experts.z_loss;
  if (experts.selection_bias > 0) json["selection_bias"] = experts.selection_bias;
  return json;
}

void check_experts(const Job& job, const std::string& file) {
  if (!job.experts) return;
  const Experts& experts = *job.experts;
  const std::int64_t each = experts.count / experts.groups;
  const ExpertRule rules[] = {
      {job.family == Family::llama, "/experts", "only family llama has experts"},
      {job.activation == Activation::swiglu || job.activation == Activation::geglu, "/activation",
       "experts are gated: \"swiglu\" or \"geglu\" is required"},
      {!job.mlp_bias, "/mlp_bias", "found true; experts.bias says whether experts have biases"},
      {experts.dense_layers < job.layers, "/experts/dense_layers",
       fmt::format("found {}; fewer than the {} layers are required", experts.dense_layers,
                   job.layers)},
      {layers_with_experts(job) > 0, "/experts/pattern", "no layer has experts"},
      {!experts.shared_gate || experts.shared_ffn_hidden > 0, "/experts/shared_gate",
       "it is of a shared MLP, and shared_ffn_hidden is 0"},
      {experts.balance_sequences == 1 || experts.balance_loss > 0, "/experts/balance_sequences",
       "it is of an auxiliary loss, and balance_loss is 0"},
      {job.global_batch % experts.balance_sequences == 0, "/experts/balance_sequences",
       fmt::format("found {}; it must divide the global batch of {}", experts.balance_sequences,
                   job.global_batch)},
      {experts.count % experts.groups == 0, "/experts/groups",
       fmt::format("found {}; it must divide the {} experts", experts.groups, experts.count)},
      {experts.top_groups <= experts.groups, "/experts/top_groups",
       fmt::format("found {} of {} groups", experts.top_groups, experts.groups)},
      {experts.group_best <= each, "/experts/group_best",
       fmt::format("found {}; a group has {} experts", experts.group_best, each)},
      {experts.chosen <= experts.top_groups * each, "/experts/chosen",
       fmt::format("found {}; a token chooses among {} experts", experts.chosen,
                   experts.top_groups * each)},
  };
  for (const ExpertRule& rule : rules) {
    if (!rule.kept) throw InputError(file, rule.pointer, rule.message);
  }
}

MultiToken mtp_from(JsonObject object) {
  MultiToken mtp;
  integer(object, "depths", mtp.depths, 1, kMostDepths);
  number(object, "loss_weight", mtp.loss_weight);
  object.finish();
  return mtp;
}

Json mtp_json(const MultiToken& mtp) {
  return {{"depths", mtp.depths}, {"loss_weight", mtp.loss_weight}};
}

void check_mtp(const Job& job, const std::string& file) {
  if (job.mtp && job.family != Family::llama)
    throw InputError(file, "/mtp", "only family llama has MTP modules");
}

}  // namespace plimsoll
