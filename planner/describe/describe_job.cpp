// Describes a job: exact parameters, work of a step, and bytes that last between steps.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "graph/graph.h"
#include "models/job/examples.h"
#include "passes/pipeline.h"
#include "passes/strategy/strategy_fields.h"
#include "planner/describe/describe_input.h"
#include "reports/numbers.h"
#include "reports/plan_words.h"

namespace plimsoll {
namespace {

Section choice_section(const Strategy& strategy) {
  Section section{"strategy", "strategy"};
  for (const StrategyField& field : shown_fields(strategy)) {
    section.add(std::string(field.key),
                fmt::format("{:<12} {}", field.value, meaning_of(field.key, field.value)),
                field.value);
  }
  return section;
}

/// Adds all that a job file states, by its keys. Those of an inner object follow its key.
void add_stated(const Json& object, const std::string& before, Section& section) {
  for (const auto& [key, value] : object.items()) {
    const std::string label = before + with_blanks(key);
    if (value.is_object()) {
      add_stated(value, label + " ", section);
    } else if (label != "name") {
      section.add(label, value_words(value), value);
    }
  }
}

/// Returns the keys of the job's file with their values, and the columns of a head.
Section stated_section(const Job& job) {
  Section section{"in canonical form", "stated"};
  add_stated(Json::parse(job_text(job)), "", section);
  section.add_count("columns of a head", head_width(job));
  return section;
}

/// Returns how many parameters the kinds of an optimizer's groups match, and each block has.
Section parameter_section(const Job& job) {
  const Graph graph = build_forward(job, 1);
  Section section{"parameters", "parameters"};
  section.add_count("all", parameter_count(graph));
  if (has_frozen(job)) section.add_count("trained", trained_parameter_count(graph));
  if (job.mtp) {
    section.add_count("without MTP modules", parameter_count(graph) - mtp_parameter_count(job));
    section.add_count("in MTP modules", mtp_parameter_count(job));
  }
  if (job.experts) section.add_count("of one token", active_parameter_count(job));
  const auto sum = [&](const auto& counts) {
    std::int64_t count = 0;
    for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
      const Tensor& tensor = graph.tensors[i];
      if (!is_one_parameter(tensor) || tensor.tied_to || !counts(i)) continue;
      count += parameter_elements(tensor) * graph.at(*tensor.block).count;
    }
    return count;
  };
  // "embedding" is also the name of a block, which may have a norm.
  const std::vector<bool> in_norms = matched_parameters(graph, {"norm"});
  constexpr std::pair<const char*, const char*> kKinds[] = {
      {"embedding", "embeddings"}, {"weight", "weights of linear layers"}, {"bias", "biases"}};
  for (const auto& [match, label] : kKinds) {
    const std::vector<bool> matched = matched_parameters(graph, {match});
    section.add_count(label, sum([&](std::size_t i) { return matched[i] && !in_norms[i]; }));
  }
  section.add_count("norms", sum([&](std::size_t i) { return bool(in_norms[i]); }));
  for (std::size_t b = 0; b < graph.blocks.size(); ++b) {
    const Block& block = graph.blocks[b];
    const std::int64_t all =
        sum([&](std::size_t i) { return graph.tensors[i].block == BlockId(b); });
    section.add(fmt::format("in {}", block.name),
                block.count == 1
                    ? grouped(all)
                    : fmt::format("{} in each of {}", grouped(all / block.count), block.count),
                all / block.count);
  }
  return section;
}

Section work_section(const Job& job) {
  Section work{"work of a step", "work"};
  const std::int64_t tokens = tokens_per_step(job);
  const double all = training_matmul_flops_per_sequence(job).value();
  work.add_count("sequence", job.sequence);
  work.add_count("global batch", job.global_batch);
  work.add("tokens", grouped(tokens), tokens);
  const double per_token = all / (double(job.sequence) * share_of_tokens(job));
  work.add(
      "FLOPs per token",
      fmt::format("{:.4g}, forward and backward: products count, attention in full", per_token),
      per_token);
  work.add("FLOPs", fmt::format("{:.4g}", per_token * double(tokens)), per_token * double(tokens));
  return work;
}

/// Returns the bytes of parameters, gradients and optimizer state where one rank has all of them.
/// They are those of the lowered job.
Section state_section(const Job& job) {
  Job one = job;
  one.global_batch = 1;  // no byte here depends on it
  const Strategy strategy;
  const Graph graph = lower_graph({one, strategy, bundled_framework()}, {}, Proof::none);
  BytesByRole by_role{};
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.arena) by_role[std::size_t(tensor.role)] += bytes_of(tensor);
    if (tensor.role == TensorRole::frozen_parameter && !tensor.tied_to)
      by_role[std::size_t(tensor.role)] += graph.at(*tensor.block).count * bytes_of(tensor);
  }
  Section section{"memory of the model on one rank, without sharding", "memory"};
  Bytes all;
  for (const auto& [role, label] : {std::pair(TensorRole::parameter, "parameters"),
                                    std::pair(TensorRole::frozen_parameter, "frozen parameters"),
                                    std::pair(TensorRole::master_parameter, "fp32 masters"),
                                    std::pair(TensorRole::gradient, "gradients"),
                                    std::pair(TensorRole::optimizer_state, "optimizer state")}) {
    const Bytes bytes = by_role[std::size_t(role)];
    if (role == TensorRole::frozen_parameter && !has_frozen(job)) continue;
    all += bytes;
    section.add_bytes(label, bytes);
  }
  section.add_bytes("all", all);
  const double parameters = double(parameter_count(build_forward(job, 1)));
  section.add("bytes per parameter", fmt::format("{:.4g}", double(all.count()) / parameters),
              double(all.count()) / parameters);
  return section;
}

}  // namespace

Description describe_strategy(const Strategy& strategy, const std::string& name) {
  Description description{"strategy", name, {choice_section(strategy)}};
  Section ranks{"ranks", "ranks"};
  ranks.add_count("devices", grid_of(strategy).world_size());
  ranks.add_count("shards of the optimizer", optimizer_shards(strategy));
  description.sections.push_back(std::move(ranks));
  return description;
}

Description describe_plan(const Plan& plan) {
  Section origin{"made", "made"};
  origin.add("by", fmt::format("planner {}", printable(plan.origin.version)));
  if (!plan.origin.command.empty()) origin.add("with", printable(plan.origin.command, 1000));
  origin.add("calibration", plan.origin.calibration_provenance);
  origin.add("interval", plan.origin.interval_basis);
  Section target{"for", "for"};
  target.add("job", plan.job.name);
  target.add_count("parameters", parameter_count(plan));
  target.add_count("global batch", plan.job.global_batch);
  target.add_count("devices", plan.devices);
  target.add("cluster", plan.cluster_name);
  target.add("framework", plan.framework.name);
  target.add_bytes("kept free", plan.reserve);
  return {"plan", plan.job.name, {origin, target, choice_section(plan.strategy)}};
}

Description describe_job(const Job& job) {
  return {"job",
          job.name,
          {stated_section(job), parameter_section(job), work_section(job), state_section(job)}};
}

}  // namespace plimsoll
