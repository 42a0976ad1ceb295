// Jobs are drawn at random, with every field that families have.
#include "tests/passes/random_jobs.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"

namespace plimsoll {
namespace {

/// Latent attention has fields of its own in place of those of heads.
void draw_latent(Random& random, Job& job) {
  job.kv_heads = job.heads;
  job.head_size = 0;
  job.qkv_bias = job.out_bias = job.qk_norm = job.qk_norm_across_heads = job.qk_l2_norm = false;
  job.rotary.fraction = 1;
  job.latent = Latent{one_of<std::int64_t>(random, {0, 6, 12}),
                      one_of<std::int64_t>(random, {5, 8}), one_of<std::int64_t>(random, {3, 4}),
                      one_of<std::int64_t>(random, {2, 4}), one_of<std::int64_t>(random, {3, 8})};
}

/// Draws the fields in which families differ. Heads are an even number of elements wide.
void draw_family(Random& random, Job& job) {
  job.family =
      one_of(random, {Family::gpt, Family::llama, Family::llama, Family::bert, Family::ernie});
  if (job.family == Family::llama || (job.family == Family::gpt && coin(random))) {
    do job.kv_heads = std::int64_t(1 + random() % std::uint64_t(job.heads));
    while (job.heads % job.kv_heads != 0);
  }
  if (job.family == Family::llama) {
    job.qkv_bias = coin(random);
    job.out_bias = coin(random);
    job.mlp_bias = coin(random);
    job.qk_norm = coin(random);
    job.activation = one_of(random, {Activation::swiglu, Activation::squared_relu,
                                     Activation::geglu, Activation::gelu});
    job.norm = one_of(random, {NormKind::rms_norm, NormKind::layer_norm});
    job.norm_place = one_of(random, {NormPlace::before, NormPlace::around, NormPlace::after});
    job.mlp_input = one_of(random, {MlpInput::attended, MlpInput::own_norm, MlpInput::shared_norm});
    if (job.norm_place != NormPlace::before && job.mlp_input == MlpInput::shared_norm)
      job.mlp_input = MlpInput::own_norm;
    if (job.norm_place == NormPlace::after) job.mlp_input = MlpInput::attended;
    if (coin(random)) job.head_size = one_of<std::int64_t>(random, {4, 8, 12});
    if (head_width(job) % 4 == 0 && coin(random)) job.rotary.fraction = 0.5;
    job.window = one_of<std::int64_t>(random, {0, 0, 3, 7});
    job.window_chunks = job.window > 0 && random() % 4 == 0;
    if (job.window > 0 && coin(random)) {
      job.window_pattern = one_of<std::vector<bool>>(
          random, {{true, false}, {false, true, true}, {false}, {true, true, true, false}});
      if (coin(random)) job.rotary.window_base = 100;
    }
    job.qk_norm_across_heads = job.qk_norm && random() % 4 == 0;
    job.head_bias = coin(random);
    job.score_cap = one_of(random, {0.0, 0.0, 2.0});
    job.logit_cap = one_of(random, {0.0, 0.0, 3.0});
    job.qk_l2_norm = !job.qk_norm && random() % 4 == 0;
    job.sinks = random() % 3 == 0;
    job.norm_bias = job.norm == NormKind::rms_norm || coin(random);
    job.embedding_norm = random() % 4 == 0;
    if (random() % 4 == 0) {
      draw_latent(random, job);
    } else if (coin(random)) {
      job.alibi = true;
      job.rotary.fraction = 1;
      job.rotary.window_base = 0;
    }
    if (random() % 4 == 0)
      job.mtp = MultiToken{one_of<std::int64_t>(random, {1, 1, 2}), one_of(random, {0.1, 0.6})};
  }
  if (job.family == Family::bert || job.family == Family::ernie) {
    job.token_types = one_of<std::int64_t>(random, {0, 2});
    job.pooler = job.family == Family::bert && coin(random);
  }
  if (job.family == Family::ernie) {
    job.tied_embeddings = false;
    job.branch = Branch{std::int64_t(1 + random() % 3), job.heads * 4, job.heads, job.heads * 6};
  }
}

/// Draws further fields from a generator of their own, so that the strategies of earlier draws stay
/// as they are. What overflows is never dropped in draws, whose ranks have memory for all rows.
void draw_experts_more(const Job& job, Experts& experts) {
  Random random(std::uint64_t(job.seed));
  if (random() % 4 == 0) experts.dense_ffn_hidden = job.heads * 4;
  // Initial values of experts behind one more product are below the range of fp16.
  const bool narrow = random() % 4 == 0 && job.precision != DType::f16;
  if (narrow) experts.latent_hidden = one_of<std::int64_t>(random, {4, 6, 10});
  if (experts.balance_loss > 0 && coin(random))
    experts.balance_sequences = one_of<std::int64_t>(random, {2, 4});
  experts.drop_overflow = coin(random);
}

/// As draw_experts_more().
void draw_layers_more(Job& job) {
  Random random(std::uint64_t(job.seed) + 1);
  if (random() % 4 == 0) job.norm_epsilon = 1e-3;
  const bool exact = coin(random), gelu = job.family != Family::llama ||
                                          job.activation == Activation::gelu ||
                                          job.activation == Activation::geglu;
  job.activation_params.exact = exact && gelu;
  if (job.family != Family::llama) return;
  if (job.activation == Activation::swiglu && coin(random))
    job.activation_params = {.limit = 0.05, .sharpness = 1.7, .offset = 1};
  if (random() % 3 == 0)
    job.factors = {.embedding = 3, .branch = 0.7, .scores = 0.8, .logits = 0.5};
  job.attention_gate = random() % 3 == 0;
  if (job.alibi) {
    job.alibi_scaled = coin(random);
    if (!job.mtp && coin(random)) {
      job.alibi = job.alibi_scaled = false;
      job.learned_positions = true;
    }
    return;
  }
  if (!job.latent && random() % 3 == 0) job.rotary.pattern = {true, false};
  if (job.seed % 3 == 0) job.rotary.growth = {.factor = 0.5, .span = 5, .ahead = job.seed % 2};
  RotaryScale& scale = job.rotary.scale;
  scale.kind = one_of(random, {RotaryScaling::none, RotaryScaling::linear, RotaryScaling::llama3,
                               RotaryScaling::yarn});
  scale.amplitude = one_of(random, {1.0, 1.2});
  if (scale.kind == RotaryScaling::none) return;
  scale.factor = 4;
  if (scale.kind == RotaryScaling::linear) return;
  scale.original = 16;
  scale.low = 1;
  scale.high = 4;
}

/// In most layers of some jobs there are experts, whose choices are dropped or not.
void draw_experts(Random& random, Job& job) {
  const bool gated = job.activation == Activation::swiglu || job.activation == Activation::geglu;
  if (job.family != Family::llama || !gated) return;
  job.mlp_bias = false;
  Experts experts;
  experts.count = one_of<std::int64_t>(random, {2, 4, 6, 8});
  experts.groups = experts.count % 4 == 0 ? one_of<std::int64_t>(random, {1, 2}) : 1;
  experts.top_groups = one_of<std::int64_t>(random, {1, experts.groups});
  const std::int64_t open = experts.count / experts.groups * experts.top_groups;
  experts.group_best = std::min<std::int64_t>(2, experts.count / experts.groups);
  experts.chosen = std::min(open, one_of<std::int64_t>(random, {1, 2, 3}));
  experts.ffn_hidden = job.heads * one_of<std::int64_t>(random, {2, 4});
  if (coin(random)) experts.shared_ffn_hidden = job.heads * 4;
  experts.dense_layers =
      std::int64_t(random() % std::uint64_t(std::min<std::int64_t>(job.layers, 3)));
  experts.shared_gate = experts.shared_ffn_hidden > 0 && coin(random);
  experts.bias = coin(random);
  experts.router_bias = coin(random);
  experts.scaled_input = random() % 3 == 0;
  if (job.layers > experts.dense_layers + 1)  // two layers in a row, of which one has experts
    experts.pattern = one_of<std::vector<bool>>(random, {{}, {true, false}, {false, true}});
  experts.score = one_of(random, {RouterScore::softmax, RouterScore::sigmoid});
  experts.normalized = experts.chosen > 1 && coin(random);  // one weight of 1 has no gradient
  experts.scale = one_of(random, {1.0, 2.5});
  experts.capacity = one_of(random, {0.0, 0.0, 0.75, 1.5});
  experts.balance_loss = one_of(random, {0.0, 0.01});
  experts.z_loss = one_of(random, {0.0, 0.001});
  experts.selection_bias = one_of(random, {0.0, 0.02});
  draw_experts_more(job, experts);
  experts.load = 1;  // then the FLOPs of a step are those of the model
  // With 16 bits, roundings decide between experts whose scores are nearly equal. So all are taken.
  if (job.precision != DType::f32) {
    experts.groups = experts.top_groups = experts.group_best = 1;
    experts.chosen = experts.count;
  }
  job.experts = experts;
}

void draw_optimizer(Random& random, Job& job) {
  Optimizer& optimizer = job.optimizer;
  optimizer.kind = one_of(random, {OptimizerKind::adamw, OptimizerKind::sgd, OptimizerKind::lamb});
  optimizer.learning_rate = optimizer.kind == OptimizerKind::adamw ? 1e-3 : 1e-2;
  job.clip_norm = one_of(random, {0.0, 0.5, 1.0});
  if (coin(random)) optimizer.groups.push_back({"bias", {}, coin(random), 0.5});
  if (coin(random)) optimizer.groups.push_back({"embedding", 0.01, coin(random), {}});
  if (coin(random)) job.loss_scale = LossScale{1024, 2, 0.5, 2};
}

/// As draw_experts_more(), half of the time.
void draw_latent_targets(const Job& job, Adapters& adapters) {
  using enum AdapterTarget;
  Random random(std::uint64_t(job.seed) + 2);
  if (coin(random)) return;
  adapters.targets =
      one_of<SetOf<AdapterTarget>>(random, {{kv_down}, {kv_down, kv_up, out}, {kv_up, up, down}});
  const bool narrow = job.latent->q_rank > 0;
  for (const AdapterTarget target : {narrow ? query_down : query, narrow ? query_up : query})
    if (coin(random)) adapters.targets.add(target);
}

}  // namespace

Job draw_job(Random& random) {
  Job job;
  job.name = "drawn";
  job.layers = one_of<std::int64_t>(random, {1, 2, 3, 4, 5, 6, 6, 8});
  job.heads = job.kv_heads = one_of<std::int64_t>(random, {2, 4, 6, 8});
  job.hidden = job.heads * one_of<std::int64_t>(random, {4, 8});
  job.ffn_hidden = job.heads * one_of<std::int64_t>(random, {8, 20});
  job.vocab = one_of<std::int64_t>(random, {256, 257, 259});  // padded under mp
  job.sequence = one_of<std::int64_t>(random, {8, 12, 16});
  job.tied_embeddings = coin(random);
  job.dropout = one_of(random, {0.0, 0.0, 0.2});
  draw_family(random, job);
  job.global_batch = one_of<std::int64_t>(random, {8, 12, 16, 24});
  draw_optimizer(random, job);
  job.seed = std::int64_t(random() % 1000);
  job.precision = one_of(random, {DType::f32, DType::f32, DType::bf16, DType::f16});
  // A norm behind a branch enlarges its gradients as much as it enlarges the branch, whose initial
  // values are small. No loss scale then keeps all gradients within the range of fp16, and
  // roundings of bf16 are enlarged as much.
  if (job.norm_place != NormPlace::before) job.precision = DType::f32;
  draw_experts(random, job);
  draw_layers_more(job);
  if (job.precision == DType::f16 && !job.loss_scale) job.loss_scale = LossScale{1024, 2, 0.5, 2};
  if (job.precision != DType::f32 && coin(random))
    job.fp32_parameters = {one_of<std::string>(random, {"weight", "bias", "norm", "embedding"})};
  check_job(job, "drawn job");
  return job;
}

void draw_frozen(Random& random, Job& job) {
  Job frozen = job;
  if (random() % 3 == 0) {
    frozen.frozen = one_of<std::vector<std::string>>(
        random, {{"embedding"}, {"norm"}, {"embedding", "norm"}, {"bias"}});
  } else {
    using enum AdapterTarget;
    frozen.adapters = Adapters{.rank = one_of<std::int64_t>(random, {2, 4}),
                               .scale = one_of(random, {1.0, 2.5}),
                               .dropout = one_of(random, {0.0, 0.0, 0.25})};
    frozen.adapters->targets =
        one_of<SetOf<AdapterTarget>>(random, {{qkv},
                                              {qkv, out, up, down},
                                              {qkv, out, gate_up, down},
                                              {query, value},
                                              {out},
                                              {query, key, value, out, gate, up, down},
                                              {out, gate},
                                              {key, out}});
    if (job.latent) draw_latent_targets(job, *frozen.adapters);
    if (random() % 3 == 0) frozen.adapters->trained = {"norm"};
    frozen.frozen_weights = one_of(random, {FrozenWeights::computed, FrozenWeights::computed,
                                            FrozenWeights::nf4, FrozenWeights::nf4_nested});
  }
  try {
    check_job(frozen, "drawn job");
    job = frozen;
  } catch (const InputError&) {  // it has no such layer
  }
}

void draw_lengths(Random& random, Job& job) {
  Job with = job;
  with.lengths = one_of<std::vector<LengthShare>>(random, {{{1, 1}, {3, 2}, {6, 1}, {40, 1}},
                                                           {{5, 1}},
                                                           {{2, 1}, {12, 3}},
                                                           {{4, 2}, {8, 1}},
                                                           {{12, 1}}});
  with.packing = one_of(random, {Packing::packed, Packing::packed, Packing::padded});
  with.balanced = one_of(random, {false, true});
  try {
    check_job(with, "drawn job");
    job = with;
  } catch (const InputError&) {  // it counts padding
  }
}

}  // namespace plimsoll
