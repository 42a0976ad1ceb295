// The optimizer and loss scaling of a job file: keys, limits, canonical form.
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "base/error.h"
#include "models/job/job_parts_json.h"

namespace plimsoll {

namespace {

constexpr std::array<std::string_view, 3> kOptimizers = {"adamw", "sgd", "lamb"};
constexpr double kMostRate = 1e3, kMostDecay = 1e3, kMostScale = 0x1p100;
constexpr std::int64_t kMostInterval = 1'000'000'000;

void number(JsonObject& object, const char* key, double& value, double least, double most) {
  if (object.has(key)) value = object.number(key, least, most);
}

ParameterGroup group_from(JsonObject object) {
  ParameterGroup group;
  group.match = object.text("match");
  if (object.has("weight_decay")) group.weight_decay = object.number("weight_decay", 0, kMostDecay);
  if (object.has("clip")) group.clip = object.boolean("clip");
  if (object.has("learning_rate_factor"))
    group.learning_rate_factor = object.number("learning_rate_factor", 0, kMostRate);
  object.finish();
  return group;
}

Json group_json(const ParameterGroup& group) {
  Json json = {{"match", group.match}};
  if (group.weight_decay) json["weight_decay"] = *group.weight_decay;
  if (group.clip) json["clip"] = *group.clip;
  if (group.learning_rate_factor) json["learning_rate_factor"] = *group.learning_rate_factor;
  return json;
}

}  // namespace

Optimizer optimizer_from(JsonObject object) {
  Optimizer optimizer;
  if (object.has("kind")) optimizer.kind = OptimizerKind(object.choice("kind", kOptimizers));
  number(object, "learning_rate", optimizer.learning_rate, 0, kMostRate);
  if (optimizer.kind == OptimizerKind::sgd) {
    number(object, "momentum", optimizer.momentum, 0, 1);
  } else {
    number(object, "beta1", optimizer.beta1, 0, 1);
    number(object, "beta2", optimizer.beta2, 0, 1);
    number(object, "epsilon", optimizer.epsilon, 0, 1);
  }
  number(object, "weight_decay", optimizer.weight_decay, 0, kMostDecay);
  if (object.has("groups")) {
    for (JsonObject& group : object.objects("groups"))
      optimizer.groups.push_back(group_from(std::move(group)));
  }
  object.finish();
  return optimizer;
}

LossScale loss_scale_from(JsonObject object) {
  LossScale scale;
  number(object, "initial", scale.initial, 1, kMostScale);
  number(object, "growth", scale.growth, 1, kMostRate);
  number(object, "backoff", scale.backoff, 0, 1);
  if (object.has("growth_interval"))
    scale.growth_interval = object.integer("growth_interval", 1, kMostInterval);
  object.finish();
  return scale;
}

Json optimizer_json(const Optimizer& optimizer) {
  Json json = {{"kind", kOptimizers[std::size_t(optimizer.kind)]},
               {"learning_rate", optimizer.learning_rate}};
  if (optimizer.kind == OptimizerKind::sgd) {
    json["momentum"] = optimizer.momentum;
  } else {
    json["beta1"] = optimizer.beta1;
    json["beta2"] = optimizer.beta2;
    json["epsilon"] = optimizer.epsilon;
  }
  json["weight_decay"] = optimizer.weight_decay;
  if (!optimizer.groups.empty()) {
    Json groups = Json::array();
    for (const ParameterGroup& group : optimizer.groups) groups.push_back(group_json(group));
    json["groups"] = std::move(groups);
  }
  return json;
}

Json loss_scale_json(const LossScale& scale) {
  return {{"initial", scale.initial},
          {"growth", scale.growth},
          {"backoff", scale.backoff},
          {"growth_interval", scale.growth_interval}};
}

void check_optimizer(const Job& job, const std::string& file) {
  const Optimizer& optimizer = job.optimizer;
  const auto within = [&](const std::string& key, double value, double least, double most) {
    if (value >= least && value <= most) return;
    throw InputError(
        file, key, fmt::format("found {}; a number from {} to {} is required", value, least, most));
  };
  within("/optimizer/learning_rate", optimizer.learning_rate, 0, kMostRate);
  within("/optimizer/beta1", optimizer.beta1, 0, 1);
  within("/optimizer/beta2", optimizer.beta2, 0, 1);
  const auto below_one = [&](const char* key, double value) {
    if (value == 1) throw InputError(file, key, "must be less than 1");
  };
  below_one("/optimizer/beta1", optimizer.beta1);
  below_one("/optimizer/beta2", optimizer.beta2);
  within("/optimizer/epsilon", optimizer.epsilon, 0, 1);
  within("/optimizer/momentum", optimizer.momentum, 0, 1);
  within("/optimizer/weight_decay", optimizer.weight_decay, 0, kMostDecay);
  within("/clip_norm", job.clip_norm, 0, 1e9);
}

}  // namespace plimsoll
