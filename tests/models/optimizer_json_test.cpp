// Optimizers, parameter groups and loss scaling of job files: exact round trips and refusals.
#include <gtest/gtest.h>

#include "base/error.h"
#include "models/job/job.h"

namespace plimsoll {
namespace {

std::string job_with(const std::string& keys) {
  return R"({"name": "j", "family": "gpt", "layers": 2, "hidden": 8, "heads": 2, "vocab": 16,
             "sequence": 4, "tied_embeddings": true, "global_batch": 4, "precision": "fp32", )" +
         keys + "}";
}

void expect_refused(const std::string& keys, const std::string& pointer, const std::string& part) {
  try {
    parse_job(job_with(keys), "job.json");
    ADD_FAILURE() << keys << " was read";
  } catch (const InputError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find(pointer), std::string::npos) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

TEST(OptimizerJson, EveryKindComesBackAsItWas) {
  for (const std::string keys :
       {R"("optimizer": {"kind": "adamw", "beta1": 0.8, "epsilon": 1e-6})",
        R"("optimizer": {"kind": "lamb", "learning_rate": 0.01, "weight_decay": 0.02})",
        R"("optimizer": {"kind": "sgd", "momentum": 0.5})",
        R"("optimizer": {"kind": "adafactor", "learning_rate": 0.01, "weight_decay": 0})",
        R"("optimizer": {"groups": [{"match": "bias", "clip": false},
            {"match": "layer.fc1.weight", "weight_decay": 0, "learning_rate_factor": 0.5}]})",
        R"("fp32_parameters": ["norm", "layer.fc1.bias"])",
        R"("loss_scale": {"initial": 1024, "growth_interval": 7, "backoff": 0.25, "growth": 4})"}) {
    const Job job = parse_job(job_with(keys), "job.json");
    EXPECT_EQ(parse_job(job_text(job), "copy.json"), job) << keys;
  }
  const Job job = parse_job(job_with(R"("optimizer": {"kind": "sgd", "momentum": 0.5})"), "j");
  EXPECT_EQ(job.optimizer.kind, OptimizerKind::sgd);
  EXPECT_EQ(job.optimizer.momentum, 0.5);
  EXPECT_FALSE(job.loss_scale);
}

TEST(OptimizerJson, RefusesWhatAKindDoesNotHave) {
  expect_refused(R"("optimizer": {"kind": "sgd", "beta1": 0.9})", "/optimizer/beta1", "");
  expect_refused(R"("optimizer": {"momentum": 0.9})", "/optimizer/momentum", "");
  expect_refused(R"("optimizer": {"kind": "adafactor", "beta2": 0.9})", "/optimizer/beta2", "");
  expect_refused(R"("optimizer": {"kind": "adafactor", "momentum": 0})", "/optimizer/momentum", "");
  expect_refused(R"("optimizer": {"kind": "adam"})", "/optimizer/kind", "lamb");
  expect_refused(R"("loss_scale": {"backoff": 2})", "/loss_scale/backoff", "");
  expect_refused(R"("loss_scale": {"growth_interval": 0})", "/loss_scale/growth_interval", "");
}

TEST(ParameterGroups, NameWhatThereIsWhenTheyMatchNothing) {
  expect_refused(R"("optimizer": {"groups": [{"match": "biases"}]})", "/optimizer/groups/0/match",
                 "known: weight, bias, norm, embedding, embedding");
  expect_refused(R"("fp32_parameters": ["norm", "norms"])", "/fp32_parameters/1",
                 "known: weight, bias, norm, embedding, embedding");
}

TEST(ParameterGroups, MatchByKindBlockAndNameAndTheLastOneWins) {
  const Job job = parse_job(job_with(R"("optimizer": {"groups": [
      {"match": "layer", "learning_rate_factor": 0.5}, {"match": "norm", "weight_decay": 0.25},
      {"match": "bias", "clip": false}, {"match": "embedding", "clip": false},
      {"match": "layer.fc2.bias", "clip": true}]})"),
                            "job.json");
  Graph graph = build_forward(job, 1);
  apply_parameter_groups(graph, job);
  int seen = 0;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.role != TensorRole::parameter || tensor.tied_to) continue;
    const std::string block = graph.at(*tensor.block).name;
    EXPECT_EQ(tensor.rate, block == "layer" ? 0.5 : 1) << tensor.name;
    const bool norm = tensor.name.ends_with("gamma") || tensor.name.ends_with("beta");
    EXPECT_EQ(tensor.weight_decay.has_value(), norm) << tensor.name;
    const bool bias = tensor.name.ends_with(".bias") && tensor.name != "layer.fc2.bias";
    EXPECT_EQ(tensor.clip, !bias && block != "embedding") << tensor.name;
    ++seen;
  }
  EXPECT_EQ(seen, 16);
}

}  // namespace
}  // namespace plimsoll
