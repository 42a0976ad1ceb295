// Ops of the IR: kind, parameters, operands, and when and where they run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "graph/grid.h"
#include "graph/tensor.h"

namespace plimsoll {

/// Every kind has one row in op_table.cpp that documents operands, flops, bytes and backward.
/// Shapes below: b micro-batch, s sequence, h hidden, n = b*s tokens, a local heads, d = h/heads,
/// v local vocabulary rows.
enum class OpKind : std::uint8_t {
  // Data. Reads this rank's sequences of the step and micro-batch from the training text.
  load_tokens,            ///< () -> tokens i32 [n]
  load_targets,           ///< () -> targets i32 [n], the tokens shifted by one
  load_masked_tokens,     ///< () -> tokens i32 [n], the predicted ones hidden, replaced or left
  load_masked_positions,  ///< () -> rows i32 [p] of the tokens that are predicted, ascending
  load_masked_targets,    ///< () -> targets i32 [p], the tokens there
  // Abstract ops, replaced by select_kernels.
  linear,     ///< (x [n,k], weight [k,m], bias [m]?) -> y [n,m]; the inner weight dims may be split
              ///< further
  attention,  ///< (q, k, v [b,a,s,d]) -> context [b,a,s,d]; with grouped queries q and context are
              ///< [b,kv,g*s,d], the same memory as [b,a,s,d] with a = kv*g, k and v [b,kv,s,d]
  // Compute.
  embedding,  ///< (tokens [n], table [v,h]) -> x [n,h]; rows outside [first, first+v) give 0
  embedding_backward,     ///< (dx [n,h], tokens) -> dtable [v,h] (accumulates)
  position_add,           ///< (x [n,h], table [s,h]) -> y [n,h]
  position_add_backward,  ///< (dy [n,h]) -> dtable [s,h] (accumulates)
  token_type_add,         ///< (x [n,h], table [t,h]) -> y [n,h]; a sequence's t equal parts have a
                          ///< row each
  token_type_add_backward,  ///< (dy [n,h]) -> dtable [t,h] (accumulates)
  layer_norm,               ///< (x [n,h], gamma [h], beta [h]) -> (y [n,h], mean [n], rstd [n])
  layer_norm_backward,      ///< (dy, x, gamma, mean, rstd) -> (dx, dgamma, dbeta) (the last two
                            ///< accumulate)
  rms_norm,                 ///< (x [n,h], gamma [h]) -> (y [n,h], rstd [n])
  rms_norm_backward,        ///< (dy, x, gamma, rstd) -> (dx, dgamma) (the last accumulates)
  matmul,         ///< (a, b, bias?) -> c = scale * op(a) op(b) + bias; leading dims are batch
  bias_add,       ///< (x [n,m], bias [m]) -> y [n,m]
  bias_gradient,  ///< (dy [n,m]) -> dbias [m] (accumulates)
  gelu,           ///< (x) -> y, tanh approximation
  gelu_backward,  ///< (dy, x) -> dx
  squared_relu,   ///< (x) -> y = max(x, 0)^2
  squared_relu_backward,  ///< (dy, x) -> dx = 2 max(x, 0) dy
  swiglu,                 ///< (x [n,2,f] = gate, up) -> y [n,f] = silu(gate) up
  swiglu_backward,        ///< (dy, x) -> dx
  add,                    ///< (a, b) -> a + b
  own_part,  ///< (x [n,...]) -> the rows of x that the output's split gives to this rank
  dropout,   ///< (x) -> y, elements zeroed or scaled by 1 / (1 - rate), the same ones in every run
             ///< of the op in a step: also the gradient, (dy) -> dx
  gather_rows,           ///< (x [n,h], rows i32 [p]) -> y [p,h]
  gather_rows_backward,  ///< (dy [p,h], rows) -> dx [n,h], 0 elsewhere
  rotary,                ///< (x [n,parts,a,d]) -> x with the first `rotated` parts turned, in place
  rotary_backward,       ///< (dx) -> dx, turned back
  split_heads,  ///< (x [n,parts,a,d]) -> parts tensors [b,a,s,d]: q, k and v; or q; or k and v
  split_heads_backward,  ///< (gradients [b,a,s,d] of the parts) -> dx [n,parts,a,d]
  merge_heads,           ///< (context [b,a,s,d]) -> y [n,a*d]
  merge_heads_backward,  ///< (dy [n,a*d]) -> dcontext [b,a,s,d]
  softmax,           ///< (scores [b,a,s,s]) -> probabilities; causal: 0 above the diagonal, where
                     ///< row r of [b,kv,g*s,s] is position r mod s
  softmax_backward,  ///< (dp, p) -> dscores
  // Kernels of other frameworks, and of GPUs: the cpu backend has few of them.
  flash_attention,  ///< (qkv [n,3,a,d]) or (q [n,1,a,d], kv [n,2,kv,d]) -> (y [n,a*d], log_sum_exp
                    ///< f32 [b,a,s]); the scores never reach memory (Dao et al. 2022, arXiv
                    ///< 2205.14135)
  flash_attention_backward,  ///< (dy, qkv or q, kv, y, log_sum_exp) -> dqkv or (dq, dkv); repeats
                             ///< the
                             ///< scores inside
  bias_gelu,                 ///< (x [n,m], bias [m]) -> gelu(x + bias)
  bias_gelu_backward,        ///< (dy, x, bias) -> dx; the gradient of the bias is its column sum
  bias_residual_add,         ///< (x [n,m], bias [m], residual [n,m]) -> x + bias + residual
  masked_dropout,            ///< (x) -> (dropout(x), mask u8)
  masked_dropout_backward,   ///< (dy, mask) -> dx
  bias_dropout_add,  ///< (x [n,m], residual [n,m], bias [m]?) -> (residual + dropout(x + bias),
                     ///< mask
                     ///< u8 [n,m])
  // 8-bit floating point: linear layers of other frameworks (passes/graph/fp8_linears.cpp).
  absolute_maximum,  ///< (x) -> max |x| f32 [1], which dynamic scaling divides by
  quantize,   ///< (x, maximum f32 [1]?) -> (x8, x8 transposed?) or the latter alone: x scaled
              ///< and rounded to e4m3 or e5m2
  transpose,  ///< (x8 [n,m]) -> x8 [m,n]
  // Context parallelism (passes/graph/context_exchange.cpp).
  split_parts,      ///< (qkv [n,3,a,d]) -> (q [n,1,a,d], kv [n,2,a,d])
  join_parts,       ///< (dq, dkv) -> dqkv, the backward of split_parts
  merge_attention,  ///< (y, log_sum_exp, other y, other log_sum_exp) -> (y, log_sum_exp) over the
                    ///< keys of both (Liu et al. 2023, arXiv 2310.01889)
  cast,             ///< (x) -> x in another floating-point type
  logits_max,       ///< (logits [n,v]) -> max [n] over real vocabulary columns
  logits_sum_exp,   ///< (logits, max, targets) -> stats [n,2] = {sum exp(l - max), target logit -
                    ///< max}
  token_loss,  ///< (max, stats, scalars) -> (log_sum_exp [n], scalars with loss += weighted sum)
  cross_entropy_backward,  ///< (logits, targets, log_sum_exp, loss scale [1]?) -> dlogits [n,v]
  // Conjugate pairs of tensor parallelism in a forward Graph; `backward` lowers them.
  copy_to_group,      ///< (x) -> x; its backward is an all-reduce
  reduce_from_group,  ///< (x) -> all-reduced x, in place; its backward is the identity
  // Communication; works in place on its operand, of which a rank's part is the 1/size at its
  // index.
  // Scatter and gather also have a form whose part is memory of its own (op_table.h, in_place).
  all_reduce,      ///< (x) -> x
  reduce_scatter,  ///< (x) -> x of which this rank's part is valid, or that part
  all_gather,      ///< (x of which this rank's part is valid, or that part) -> x
  reduce,          ///< (x) -> x, the reduction on the group's root, elsewhere this rank's own value
  broadcast,       ///< (x, valid on the group's root) -> x, in place or not
  ring_shift,      ///< (x) -> the x of the rank before this one on the group's ring, which goes
                   ///< either way
  all_to_all,      ///< (x) -> y of as many elements, 1/size of them from each rank
  send,            ///< (x) -> ()
  recv,            ///< () -> x
  // Once per step. `scalars` is the f32 [kScalars] tensor below; state tensors (scalars, arenas,
  // parameter gradients) appear as input and output under the same id.
  begin_step,    ///< (scalars) -> scalars: step += 1, loss = 0, loss_scale
  fill,          ///< () -> x = value
  squared_norm,  ///< (gradients) -> sum [1] over owned, clipped segments of norm weight * g^2; not
                 ///< finite where any gradient is not
  clip_factor,   ///< (sum [1], scalars) -> scalars: gradient_norm = sqrt(sum) / loss_scale, clip =
                 ///< min(1, limit/norm) / loss_scale; with loss scaling also what
                 ///< update_loss_scale does, for a sum that is not finite
  // Clipping and scaling piece by piece, as frameworks without these kernels run it.
  check_finite,  ///< (gradients, scalars) -> (gradients / loss_scale, flag i32 [1]: 1 where one
                 ///< is not finite)
  update_loss_scale,  ///< (flag i32 [1], scalars) -> scalars: found, good_steps, skipped, from
                      ///< which
                      ///< the next begin_step makes the scale; a step with `found` does not count
  square,             ///< (x) -> x^2
  reduce_sum,         ///< (x, ...) -> sum [1] over all of them; of a group's squares in an arena,
                      ///< with the norm weights of their segments
  square_root,        ///< (x) -> sqrt(x)
  maximum,            ///< (a, b) -> the larger
  divide,             ///< (a, b) -> a / b
  scale,              ///< (x, factor [1]) -> x * factor
  coalesce,  ///< (x) -> x, read and written: what copying tensors into one buffer costs once they
             ///< are slices of it (coalesce_tensor of Paddle)
  cast_parameters,  ///< (masters: arena of the owned elements) -> parameters arena, of which this
                    ///< rank's parts are written in its type
  // Updates of arenas (their segments have attributes of their own) or of one tensor, in place, of
  // parameters or masters p. A step with Scalar::found leaves everything as it is.
  adamw,       ///< (p, gradients, m, v, scalars) -> (p, m, v)
  sgd,         ///< (p, gradients, velocity, scalars) -> (p, velocity)
  lamb_norms,  ///< (p, gradients, m, v, scalars) -> (m, v, norms [2 t]): of each of t tensors the
               ///< squared norms of p and of its direction, on this rank
  lamb,        ///< (p, m, v, norms over all ranks, scalars) -> p
};
/// Elements of the per-step device scalars. `gradient_norm` is that of unscaled gradients.
enum class Scalar : std::uint8_t {
  step,
  loss,
  gradient_norm,
  clip,
  loss_scale,  ///< what the loss's gradient is multiplied by; 1 where nothing is scaled
  found,       ///< 1 when some gradient of the step is not finite: the update is skipped
  good_steps,  ///< in a row without `found`, since loss_scale last changed
  skipped,     ///< steps skipped so far
};
inline constexpr std::int64_t kScalars = 8;
inline constexpr std::size_t kOpKinds = std::size_t(OpKind::lamb) + 1;

/// When an op runs. `recompute` is forward work repeated inside backward; `backward_weight` leads
/// to gradients of parameters only and may run later than `backward` (Qi et al. 2023, arXiv
/// 2401.10241, where they are W and B).
enum class Phase : std::uint8_t { forward, recompute, backward, backward_weight, optimizer };

/// Streams of one rank. Ops of one stream run in issue order. Sends and receives use one stream
/// per directed peer: send_next/recv_previous carry activations, send_previous/recv_next gradients.
enum class Stream : std::uint8_t {
  compute,
  mp,
  data,
  world,
  context,  ///< between the ranks that share a sequence
  send_next,
  send_previous,
  recv_next,
  recv_previous,
};
inline constexpr std::size_t kStreams = 9;

enum class Reduction : std::uint8_t { sum, max };

// One parameter struct per family of kinds. Field names are the keys of the text form.
struct MatmulParams {  // matmul, linear
  /// Leading dimensions that are batch; of the rest, the first counts rows and the others fold into
  /// columns: a [b,a,s,d] with 2 is b*a matrices s x d, a weight [h,3,a,d] with 0 is h x 3ad.
  std::int64_t batch_dims = 0;
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;      ///< c += instead of c =
  bool scaled_by_rows = false;  ///< 8-bit operands: each of their rows has a scale of its own
  double scale = 1;
  bool operator==(const MatmulParams&) const = default;
};
struct NormParams {  // layer_norm, rms_norm and their backward
  double epsilon = 1e-5;
  bool operator==(const NormParams&) const = default;
};
struct AttentionParams {  // (flash_)attention, softmax, split/merge heads: to fold and unfold [b,s]
  std::int64_t sequence = 0;
  double scale = 1;    ///< (flash_)attention only
  bool causal = true;  ///< softmax, (flash_)attention
  double dropout = 0;  ///< of the probabilities, (flash_)attention only; as DropoutParams
  std::int64_t seed = 0, site = 0;
  bool operator==(const AttentionParams&) const = default;
};
struct VocabularyParams {         // embedding*, logits_max, logits_sum_exp, cross_entropy_backward,
                                  // token_loss
  std::int64_t vocabulary = 0;    ///< real global rows; columns at or above are masked
  std::int64_t split_degree = 1;  ///< mp degree of the vocabulary; first = mp coordinate * v
  double loss_weight = 1;  ///< 1 / tokens of the global batch (token_loss, cross_entropy_backward)
  bool operator==(const VocabularyParams&) const = default;
};
struct DropoutParams {  // dropout, masked_dropout and its backward, bias_dropout_add
  double rate = 0;      ///< share of the elements that are zeroed
  /// Philox key: seed, step, site (one per op of the job); counter: global element index, layer.
  std::int64_t seed = 0, site = 0;
  bool operator==(const DropoutParams&) const = default;
};
struct RotaryParams {  // rotary, rotary_backward
  std::int64_t sequence = 0, rotated = 0;
  double base = 10000;
  bool operator==(const RotaryParams&) const = default;
};
struct DataParams {  // load_*, token_type_add*
  std::int64_t sequence = 0;
  /// load_masked_*: predicted positions per sequence, real vocabulary rows, of which the last one
  /// is the mask token, and the seed of what is predicted.
  std::int64_t predicted = 0, vocabulary = 0, seed = 0;
  bool operator==(const DataParams&) const = default;
};
struct CollectiveParams {  // collectives, copy_to_group, reduce_from_group
  Group group;
  Reduction reduction = Reduction::sum;
  std::int64_t root = 0;  ///< reduce, broadcast: index in the group
  bool operator==(const CollectiveParams&) const = default;
};
struct TransferParams {  // send, recv: the peer is the rank at pp coordinate + stage_offset
  std::int64_t stage_offset = 0;
  bool operator==(const TransferParams&) const = default;
};
struct FillParams {
  double value = 0;
  bool operator==(const FillParams&) const = default;
};
struct FlatParams {         // squared_norm, square, reduce_sum, scale, coalesce, check_finite
  std::int64_t shards = 1;  ///< each rank owns 1/shards of the arena
  double weight = 1;        ///< of the sum: 1/mp where mp ranks hold equal copies of the tensor
  std::optional<std::int64_t> group =
      {};                     ///< of the arena, only the segments of this attribute group
  std::int64_t elements = 0;  ///< of the group on this rank, where there is one
  bool operator==(const FlatParams&) const = default;
};
struct ClipParams {
  double limit = 0;           ///< 0 = never clips, the norm is still computed
  bool loss_scaling = false;  ///< a sum that is not finite is `found`, as in update_loss_scale
  bool operator==(const ClipParams&) const = default;
};
/// The loss scale of a step: `backoff` times the last one after a step with `found`, `growth` times
/// after `growth_interval` steps in a row without.
struct StepParams {       // begin_step
  double loss_scale = 1;  ///< of the first step
  double growth = 1, backoff = 1;
  std::int64_t growth_interval = 0;  ///< 0: never grows
  bool operator==(const StepParams&) const = default;
};
struct AdamParams {  // adamw
  double learning_rate = 0, beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0;
  bool clipped = false;                    ///< gradients are unscaled and clipped already
  std::optional<std::int64_t> group = {};  ///< as in FlatParams
  std::int64_t elements = 0;
  bool operator==(const AdamParams&) const = default;
};
struct SgdParams {  // sgd
  double learning_rate = 0, momentum = 0, weight_decay = 0;
  bool clipped = false;
  std::optional<std::int64_t> group = {};
  std::int64_t elements = 0;
  bool operator==(const SgdParams&) const = default;
};
struct LambParams {  // lamb_norms, lamb
  double learning_rate = 0, beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0;
  bool clipped = false;
  std::optional<std::int64_t> group = {};
  std::int64_t elements = 0;
  bool operator==(const LambParams&) const = default;
};

using OpParams =
    std::variant<std::monostate, MatmulParams, NormParams, AttentionParams, DropoutParams,
                 RotaryParams, VocabularyParams, DataParams, CollectiveParams, TransferParams,
                 FillParams, FlatParams, ClipParams, StepParams, AdamParams, SgdParams, LambParams>;

struct Op {
  OpKind kind = OpKind::add;
  Phase phase = Phase::forward;
  Stream stream = Stream::compute;
  std::optional<BlockId> block;  ///< Graph only; absent for ops of the optimizer
  std::vector<TensorId> inputs, outputs;
  OpParams params;
  /// Routine only: earlier ops of the same routine on other streams that must have finished.
  std::vector<std::uint32_t> waits;
  bool operator==(const Op&) const = default;
};

std::string_view to_text(OpKind kind);
std::string_view to_text(Phase phase);
std::string_view to_text(Stream stream);
std::string_view to_text(Reduction reduction);
std::optional<OpKind> op_kind_from(std::string_view text);
std::optional<Phase> phase_from(std::string_view text);
std::optional<Stream> stream_from(std::string_view text);
std::optional<Reduction> reduction_from(std::string_view text);

}  // namespace plimsoll
