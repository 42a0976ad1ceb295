// Describes a job: exact parameters, work of a step, and bytes that last between steps.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "models/job/job_words.h"
#include "passes/pipeline.h"
#include "planner/describe/describe_input.h"
#include "reports/numbers.h"

namespace plimsoll {
namespace {

std::string_view family_words(const Job& job) {
  switch (job.family) {
    case Family::gpt:
      return "gpt: a decoder with learned positions, layer norm before each block, GELU and biases";
    case Family::llama:
      return "llama: a decoder with rotary embeddings";
    case Family::bert:
      return "bert: an encoder with learned positions, layer norm after each block and GELU; "
             "masked words are predicted";
    case Family::ernie:
      return "ernie: layers of bert shared between tasks, and a narrower branch behind them";
  }
  return "";
}

std::string_view activation_words(Activation activation) {
  switch (activation) {
    case Activation::swiglu:
      return "SwiGLU";
    case Activation::squared_relu:
      return "squared ReLU";
    case Activation::geglu:
      return "GeGLU";
    case Activation::gelu:
      return "GELU";
  }
  return "";
}

std::string norm_words(const Job& job) {
  std::string words = job.norm == NormKind::rms_norm ? "RMS norms " : "layer norms ";
  switch (job.norm_place) {
    case NormPlace::before:
      words += "before attention and MLP";
      break;
    case NormPlace::around:
      words += "before and behind attention and MLP";
      break;
    case NormPlace::after:
      words += "behind attention and MLP";
      break;
  }
  if (job.norm == NormKind::layer_norm && !job.norm_bias) words += ", without biases";
  if (job.embedding_norm) words += "; behind the embedding";
  if (job.qk_l2_norm) words += "; of each head's query and key, without weights";
  if (!job.qk_norm) return words;
  return words + (job.qk_norm_across_heads ? "; RMS norms of all heads' queries and keys"
                                           : "; RMS norms of each head's query and key");
}

std::string mlp_words(const Job& job) {
  const std::string_view activation = activation_words(job.activation);
  switch (job.mlp_input) {
    case MlpInput::attended:
      return fmt::format("{}, behind attention", activation);
    case MlpInput::own_norm:
      return fmt::format("{}, in parallel to attention, with a separate norm", activation);
    case MlpInput::shared_norm:
      return fmt::format("{}, in parallel to attention, behind the same norm", activation);
  }
  return "";
}

std::string bias_words(const Job& job) {
  std::vector<std::string_view> of;
  if (job.qkv_bias) of.push_back("query, key and value");
  if (job.out_bias) of.push_back("the projection behind attention");
  if (job.mlp_bias) of.push_back("the MLP");
  if (job.experts && job.experts->bias) of.push_back("the experts");
  if (job.experts && job.experts->router_bias) of.push_back("the router");
  if (job.head_bias) of.push_back("the logits");
  return of.empty() ? "none" : fmt::format("of {}", fmt::join(of, "; "));
}

std::string expert_words(const Job& job) {
  const Experts& experts = *job.experts;
  std::string words = fmt::format("{} of {} for each token, {} wide", experts.chosen, experts.count,
                                  experts.ffn_hidden);
  if (experts.shared_ffn_hidden > 0)
    words += fmt::format("; one of {} for all tokens{}", experts.shared_ffn_hidden,
                         experts.shared_gate ? ", times a sigmoid" : "");
  if (experts.latent_hidden > 0)
    words += fmt::format("; they work on {} columns of a token", experts.latent_hidden);
  if (experts.dense_ffn_hidden > 0)
    words += fmt::format("; in addition to an MLP of {}", experts.dense_ffn_hidden);
  if (experts.scaled_input) words += "; weights multiply what they read";
  if (experts.dense_layers > 0)
    words += fmt::format("; none in the first {} layers", experts.dense_layers);
  if (!experts.pattern.empty()) {
    std::int64_t layers = 0;
    for (std::int64_t layer = 0; layer < job.layers; ++layer) layers += has_experts(job, layer);
    words += fmt::format("; in {} layers", layers);
  }
  if (experts.capacity > 0)
    words += fmt::format("; at most {} rows of a sequence at each", expert_capacity(job));
  if (experts.drop_overflow) words += "; rows without memory are dropped";
  if (experts.balance_sequences > 1)
    words += fmt::format("; one auxiliary loss of {} sequences", experts.balance_sequences);
  return words;
}

void add_llama(const Job& job, Section& shape) {
  shape.add("norms", norm_words(job));
  shape.add("MLP", mlp_words(job));
  if (job.experts) shape.add("experts", expert_words(job), job.experts->count);
  if (job.experts && job.experts->selection_bias > 0) {
    shape.add("selection biases",
              fmt::format("moved by {:g} in a step", job.experts->selection_bias),
              job.experts->selection_bias);
  }
  if (job.mtp) {
    shape.add("MTP modules",
              fmt::format("{}, whose loss counts {:g}", job.mtp->depths, job.mtp->loss_weight),
              job.mtp->depths);
  }
  shape.add("biases", bias_words(job));
  if (job.latent) {
    const Latent& latent = *job.latent;
    const std::string queries =
        latent.q_rank > 0 ? fmt::format("queries of {}, ", latent.q_rank) : std::string();
    shape.add("latents",
              fmt::format("{}keys and values of {}; a head's value has {} columns", queries,
                          latent.kv_rank, latent.value),
              latent.kv_rank);
  }
  if (job.window > 0) shape.add_count(job.window_chunks ? "chunk" : "window", job.window);
  if (!job.window_pattern.empty()) {
    std::int64_t windowed = 0;
    for (std::int64_t i = 0; i < job.layers; ++i) windowed += has_window(job, i);
    shape.add_count("layers with the window", windowed);
  }
  if (job.score_cap > 0) shape.add("score cap", fmt::format("{:g}", job.score_cap));
  if (job.logit_cap > 0) shape.add("logit cap", fmt::format("{:g}", job.logit_cap));
  if (job.sinks) shape.add("sinks", "a logit of each head in the sum of its softmax");
  if (job.alibi) {
    shape.add("positions", "ALiBi, a linear bias of scores by distance");
    return;
  }
  shape.add("rotary",
            fmt::format("{} of {} columns of a head, base {:g}", rotary_width(job), head_width(job),
                        job.rotary_base),
            rotary_width(job));
}

std::string_view optimizer_words(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::adamw:
      return "AdamW";
    case OptimizerKind::sgd:
      return "SGD with momentum";
    case OptimizerKind::lamb:
      return "LAMB";
  }
  return "";
}

Section shape_section(const Job& job) {
  Section shape{"shape", "shape"};
  shape.add("family", std::string(family_words(job)));
  shape.add_count("layers", job.layers);
  shape.add_count("hidden", job.hidden);
  shape.add(
      "heads",
      fmt::format(
          "{} of {} columns{}", job.heads, head_width(job),
          job.kv_heads == job.heads ? "" : fmt::format("; {} of keys and values", job.kv_heads)),
      job.heads);
  shape.add_count("kv heads", job.kv_heads);
  shape.add_count("ffn hidden", job.ffn_hidden);
  if (job.family == Family::llama) add_llama(job, shape);
  if (job.branch) {
    shape.add("branch",
              fmt::format("{} layers of {} columns, {} heads, ffn {}", job.branch->layers,
                          job.branch->hidden, job.branch->heads, job.branch->ffn_hidden),
              job.branch->layers, "layers");
  }
  shape.add_count("vocabulary", job.vocab);
  shape.add("tied embeddings",
            job.tied_embeddings ? "yes: the head uses the embedding's table"
                                : "no: the head has a separate table",
            job.tied_embeddings);
  return shape;
}

/// Returns how many parameters the kinds of an optimizer's groups match, and each block has.
Section parameter_section(const Job& job) {
  const Graph graph = build_forward(job, 1);
  Section section{"parameters", "parameters"};
  section.add_count("all", parameter_count(graph));
  if (job.mtp) {
    section.add_count("without MTP modules", parameter_count(graph) - mtp_parameter_count(job));
    section.add_count("in MTP modules", mtp_parameter_count(job));
  }
  if (job.experts) section.add_count("of one token", active_parameter_count(job));
  const auto sum = [&](const auto& counts) {
    std::int64_t count = 0;
    for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
      const Tensor& tensor = graph.tensors[i];
      if (tensor.role != TensorRole::parameter || tensor.tied_to || !counts(i)) continue;
      count += elements(tensor.shape) * graph.at(*tensor.block).count;
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
  const double tokens = double(job.global_batch) * double(job.sequence);
  const double forward = forward_matmul_flops_per_sequence(job).value();
  work.add_count("sequence", job.sequence);
  work.add_count("global batch", job.global_batch);
  work.add("tokens", grouped(job.global_batch * job.sequence), job.global_batch * job.sequence);
  const double per_token = 3 * forward / double(job.sequence);
  work.add(
      "FLOPs per token",
      fmt::format("{:.4g}, forward and backward: products count, attention in full", per_token),
      per_token);
  work.add("FLOPs", fmt::format("{:.4g}", per_token * tokens), per_token * tokens);
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
  }
  Section section{"memory of the model on one rank, without sharding", "memory"};
  Bytes all;
  for (const auto& [role, label] : {std::pair(TensorRole::parameter, "parameters"),
                                    std::pair(TensorRole::master_parameter, "fp32 masters"),
                                    std::pair(TensorRole::gradient, "gradients"),
                                    std::pair(TensorRole::optimizer_state, "optimizer state")}) {
    const Bytes bytes = by_role[std::size_t(role)];
    all += bytes;
    section.add_bytes(label, bytes);
  }
  section.add_bytes("all", all);
  const double parameters = double(parameter_count(build_forward(job, 1)));
  section.add("bytes per parameter", fmt::format("{:.4g}", double(all.count()) / parameters),
              double(all.count()) / parameters);
  return section;
}

Section training_section_of(const Job& job) {
  Section training{"training", "training"};
  const std::string precision = job.precision == DType::f32   ? "fp32"
                                : job.precision == DType::f16 ? "fp16"
                                                              : "bf16";
  training.add("precision",
               job.precision == DType::f32
                   ? precision
                   : precision + ", with fp32 masters, gradients and optimizer state",
               precision);
  training.add(
      "optimizer",
      fmt::format("{}, learning rate {:g}, weight decay {:g}", optimizer_words(job.optimizer.kind),
                  job.optimizer.learning_rate, job.optimizer.weight_decay),
      std::string(optimizer_words(job.optimizer.kind)));
  training.add("gradient norm",
               job.clip_norm == 0 ? "not clipped" : fmt::format("clipped at {:g}", job.clip_norm),
               job.clip_norm);
  training.add("dropout", fmt::format("{:g}", job.dropout), job.dropout);
  return training;
}

}  // namespace

Description describe_job(const Job& job) {
  return {"job",
          job.name,
          {shape_section(job), parameter_section(job), work_section(job), state_section(job),
           training_section_of(job)}};
}

}  // namespace plimsoll
