// The families' graphs are chosen by job, and their layers and FLOPs counted.
#include <cmath>

#include "base/error.h"
#include "graph/op_table.h"
#include "models/job/block_builder.h"
#include "models/job/causal_flops.h"
#include "models/job/examples.h"
#include "models/job/job.h"

namespace plimsoll {

static Graph build_family(const Job& job, std::int64_t micro_batch) {
  switch (job.family) {
    case Family::gpt:
      return build_gpt(job, micro_batch);
    case Family::llama:
      return build_llama(job, micro_batch);
    case Family::bert:
    case Family::ernie:
      return build_bert(job, micro_batch);
  }
  INVARIANT(false, "a job has a family");
}

bool has_frozen(const Job& job) { return job.adapters || !job.frozen.empty(); }

Graph build_forward(const Job& job, std::int64_t micro_batch) {
  Graph graph = build_family(job, micro_batch);
  const auto give = [&](const std::vector<std::string>& matches, TensorRole role) {
    const std::vector<bool> matched = matched_parameters(graph, matches);
    for (std::size_t i = 0; i < matched.size(); ++i) {
      if (matched[i]) graph.tensors[i].role = role;
    }
  };
  if (job.adapters) give(job.adapters->trained, TensorRole::parameter);
  if (!job.frozen.empty()) give(job.frozen, TensorRole::frozen_parameter);
  return graph;
}

std::int64_t head_width(const Job& job) {
  if (job.latent) return job.latent->nope + job.latent->rope;
  return job.head_size > 0 ? job.head_size : job.hidden / job.heads;
}

std::int64_t value_width(const Job& job) {
  return job.latent ? job.latent->value : head_width(job);
}

bool has_window(const Job& job, std::int64_t layer) {
  const std::vector<bool>& pattern = job.window_pattern;
  return job.window > 0 && (pattern.empty() || pattern[std::size_t(layer) % pattern.size()]);
}

bool has_experts(const Job& job, std::int64_t layer) {
  if (!job.experts || layer < job.experts->dense_layers) return false;
  const std::vector<bool>& pattern = job.experts->pattern;
  return pattern.empty() || pattern[std::size_t(layer) % pattern.size()];
}

bool has_rotary(const Job& job, std::int64_t layer) {
  if (job.alibi || job.learned_positions) return false;
  const std::vector<bool>& pattern = job.rotary.pattern;
  return pattern.empty() || pattern[std::size_t(layer) % pattern.size()];
}

double epsilon_of(const Job& job) {
  constexpr double kUsual = 1e-5;        // GPT-2 (openai/gpt-2 src/model.py), LLaMA 2 and 3
  constexpr double kOfEncoders = 1e-12;  // BERT (google-research/bert modeling.py, layer_norm)
  const bool encoder = job.family == Family::bert || job.family == Family::ernie;
  return job.norm_epsilon.value_or(encoder ? kOfEncoders : kUsual);
}

std::int64_t rotary_width(const Job& job) {
  if (job.latent) return job.latent->rope;
  return std::llround(double(head_width(job)) * job.rotary.fraction);
}

std::int64_t active_parameter_count(const Job& job) {
  const Graph graph = build_forward(job, 1);
  std::int64_t idle = 0;
  for (const Op& op : graph.ops) {
    const bool of_experts =
        op.kind == OpKind::grouped_matmul || op.kind == OpKind::grouped_bias_add;
    if (!of_experts) continue;
    const std::int64_t all = elements(graph.at(op.inputs[1]).shape), count = job.experts->count;
    idle += graph.at(*op.block).count * all / count * (count - job.experts->chosen);
  }
  return parameter_count(graph) - idle;
}

std::int64_t mtp_parameter_count(const Job& job) {
  if (!job.mtp) return 0;
  Job without = job;
  without.mtp.reset();
  return parameter_count(build_forward(job, 1)) - parameter_count(build_forward(without, 1));
}

std::int64_t expert_capacity(const Job& job) {
  if (!job.experts || job.experts->capacity == 0) return 0;
  const double even = double(job.sequence * job.experts->chosen) / double(job.experts->count);
  return std::int64_t(std::ceil(job.experts->capacity * even));
}

std::int64_t tokens_per_step(const Job& job) {
  const std::int64_t all = job.global_batch * job.sequence;
  return job.lengths.empty() ? all : std::llround(double(all) * share_of_tokens(job));
}

std::int64_t total_layers(const Job& job) {
  return dealt_layers(job) + (job.mtp ? job.mtp->depths : 0);
}

std::int64_t dealt_layers(const Job& job) {
  return job.layers + (job.branch ? job.branch->layers : 0);
}

/// Returns the sum over a sequence's products and attention for which `counts` returns true.
template <class Counts>
static double matmul_flops_if(const Job& job, Counts counts) {
  const Graph graph = build_forward(job, 1);
  const double tokens = share_of_tokens(job);
  double total = 0;
  for (const Op& op : graph.ops) {
    double one = 0;
    if (!counts(graph, op)) continue;
    if (op.kind == OpKind::linear || op.kind == OpKind::matmul) {
      const MatmulShape shape = matmul_shape(op, graph.tensors);
      one = 2.0 * double(shape.m) * double(shape.n) * double(shape.k) * tokens;
    } else if (op.kind == OpKind::grouped_matmul) {
      one = flops(op, graph.tensors).value() * tokens;
    } else {
      one = attention_flops(graph, op, job.sequence).value();
    }
    total += double(graph.at(*op.block).count) * one;
  }
  return total;
}

Flops forward_matmul_flops_per_sequence(const Job& job) {
  return Flops(matmul_flops_if(job, [](const Graph&, const Op&) { return true; }));
}

Flops training_matmul_flops_per_sequence(const Job& job) {
  const double frozen = matmul_flops_if(job, [](const Graph& graph, const Op& op) {
    return op.kind != OpKind::attention && op.inputs.size() > 1 &&
           graph.at(op.inputs[1]).role != TensorRole::parameter;
  });
  return 3.0 * forward_matmul_flops_per_sequence(job) - Flops(frozen);
}

Flops attention_flops(const Graph& graph, const Op& op, std::int64_t sequence) {
  if (op.kind != OpKind::attention) return {};
  const std::int64_t columns =  // q k^T and p v
      elements(graph.at(op.inputs[0]).shape) + elements(graph.at(op.outputs[0]).shape);
  return Flops(2.0 * double(columns) * double(sequence) *
               share_in_window(std::get<AttentionParams>(op.params)));
}

Flops masked_flops_per_sequence(const Job& job) {
  const Graph graph = build_forward(job, 1);
  double total = 0;
  for (const Op& op : graph.ops) {
    const auto* attention = std::get_if<AttentionParams>(&op.params);
    if (attention == nullptr || !attention->causal) continue;
    total +=
        double(graph.at(*op.block).count) * attention_flops(graph, op, job.sequence).value() / 2;
  }
  return Flops(total);
}

}  // namespace plimsoll
