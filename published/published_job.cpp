// Jobs of published runs, and the FLOPs that their sources count.
#include "published/published_job.h"

namespace plimsoll {

namespace {

/// Returns the FLOPs of one sequence's forward pass as the source counts them.
Flops counted_flops(const Job& job, CountedAttention attention) {
  const Flops all = forward_matmul_flops_per_sequence(job);
  if (attention == CountedAttention::whole) return all;
  const double scores = 2.0 * double(job.layers * job.heads) *
                        double(head_width(job) + value_width(job)) * double(job.sequence) *
                        double(job.sequence);
  return all - Flops(scores / 2);
}

/// Gives a job the biases, sinks and windows of another.
void take_attributes(const Job& from, Job& job) {
  job.qkv_bias = from.qkv_bias;
  job.out_bias = from.out_bias;
  job.sinks = from.sinks;
  job.window = from.window;
  job.window_pattern = from.window_pattern;
  if (!job.experts || !from.experts) return;
  job.experts->bias = from.experts->bias;
  job.experts->router_bias = from.experts->router_bias;
}

}  // namespace

Job published_job(const PublishedRun& run, std::int64_t global_batch) {
  Job job;
  job.name = "published";
  job.family = run.architecture;
  if (run.activation) job.activation = *run.activation;
  if (run.norm) job.norm = *run.norm;
  job.layers = *run.layers;
  job.hidden = *run.hidden;
  job.heads = *run.heads;
  job.kv_heads = run.kv_heads.value_or(job.heads);
  job.ffn_hidden = run.ffn_hidden.value_or(4 * job.hidden);
  job.vocab = *run.vocab;
  job.sequence = *run.sequence;
  job.global_batch = global_batch;
  job.precision = *run.precision;
  const bool own_heads = run.head_size && *run.head_size * job.heads != job.hidden;
  const bool plain_llama = job.family == Family::llama && !run.latent;
  if (own_heads && plain_llama) job.head_size = *run.head_size;
  job.qk_norm = run.qk_norm && plain_llama;
  job.experts = run.experts;
  job.latent = run.latent;
  if (run.predicted_ahead > 0) job.mtp = MultiToken{.depths = run.predicted_ahead};
  job.tied_embeddings = run.tied_embeddings.value_or(job.family != Family::llama);
  job.dropout = run.dropout;
  job.adapters = run.adapters;
  job.frozen_weights = run.frozen_weights;
  if (run.clip_norm) job.clip_norm = *run.clip_norm;
  if (run.attributes) take_attributes(*run.attributes, job);
  if (job.precision == DType::f16) job.loss_scale = LossScale{};
  return job;
}

std::optional<Seconds> step_time_of(const PublishedRun& run, FlopsPerSecond rate,
                                    CountedAttention attention) {
  const bool sized = run.hidden && run.layers && run.heads && run.vocab && run.sequence &&
                     run.precision && run.global_batch && run.gpus > 0;
  if (!sized) return std::nullopt;
  const Job job = published_job(run, *run.global_batch);
  try {
    check_job(job, run.id);
  } catch (const InputError&) {
    return std::nullopt;  // published_target() states what is wrong
  }
  const Flops spared = 3.0 * forward_matmul_flops_per_sequence(job) -
                       training_matmul_flops_per_sequence(job);  // of frozen weights
  const Flops step = (counted_flops(job, attention) * 3.0 - spared) * double(*run.global_batch);
  return step / (rate * double(run.gpus));
}

}  // namespace plimsoll
