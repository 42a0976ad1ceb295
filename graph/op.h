// An op has a kind, parameters and operands, and says when and where it runs.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "graph/grid.h"
#include "graph/tensor.h"

namespace plimsoll {

/// The kinds of ops. Every kind has one row in graph/ops.def, which documents it.
enum class OpKind : std::uint8_t {
#define PLIMSOLL_OP(op, ...) op,
#include "graph/ops.def"
};
/// The names of the kinds are the words of the text form.
inline constexpr auto kOpNames = std::to_array<std::string_view>({
#define PLIMSOLL_OP(op, ...) #op,
#include "graph/ops.def"
});
inline constexpr std::size_t kOpKinds = kOpNames.size();

/// A Scalar is an element of the step's scalars, an f32 tensor [kScalars] on the device.
/// `gradient_norm` is the norm of unscaled gradients.
enum class Scalar : std::uint8_t {
  step,
  loss,
  gradient_norm,
  clip,
  loss_scale,  ///< the factor of the loss's gradient; 1 where nothing is scaled
  found,       ///< 1 when some gradient of the step is not finite: the update is skipped
  good_steps,  ///< in a row without `found`, since loss_scale last changed
  skipped,     ///< steps skipped so far
};
inline constexpr std::int64_t kScalars = 8;

/// The phase in which an op runs. `recompute` is forward work repeated inside backward.
/// `backward_weight` leads only to gradients of parameters and may run later than `backward` (Qi et
/// al. 2023, arXiv 2401.10241, where they are W and B).
enum class Phase : std::uint8_t { forward, recompute, backward, backward_weight, optimizer };

/// The streams of one rank. Ops of one stream run in issue order. Sends and receives use one stream
/// for each peer and direction: send_next and recv_previous carry activations, send_previous and
/// recv_next gradients.
enum class Stream : std::uint8_t {
  compute,
  mp,
  data,
  world,
  context,    ///< between the ranks that share a sequence
  experts,    ///< between the ranks that share out experts
  to_host,    ///< copies to the host's memory, while the host works on what it has
  to_device,  ///< copies of activations back from there
  host,       ///< the host's own processors, which update parameters whose state is there
  send_next,
  send_previous,
  recv_next,
  recv_previous,
};
inline constexpr std::size_t kStreams = 13;

enum class Reduction : std::uint8_t { sum, max };

// Each family of kinds has one parameter struct. Field names are the keys of the text form.
struct MatmulParams {  // matmul, linear
  /// The number of leading dimensions that are batch. The first dimension after them counts rows,
  /// and the others fold into columns. A tensor [b,a,s,d] with batch_dims 2 is b*a matrices s x d;
  /// a weight [h,3,a,d] with 0 is h x 3ad.
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
  /// of causal ones, the keys that a query sees, its own among them; 0: all before it
  std::int64_t window = 0;
  double dropout = 0;  ///< of the probabilities, (flash_)attention only; as DropoutParams
  std::int64_t seed = 0, site = 0;
  // flash_attention, where ranks of cp share each sequence (runtime/sequence_part.h):
  std::int64_t key_ranks = 1;  ///< the ranks whose keys these are: one of them, or all
  std::int64_t round = 0;      ///< where it is one: it is so many before this rank on the ring
  /// (flash_)attention: a scaled score x becomes soft_cap tanh(x / soft_cap); 0: it stays
  double soft_cap = 0;
  /// The sequence is cut into chunks as long as the window, and a query sees none of another chunk.
  bool chunks = false;
  /// softmax, (flash_)attention: the scores of a head of so many in the model have ALiBi, a linear
  /// bias by distance (runtime/sequence_part.h); 0: none
  std::int64_t alibi_heads = 0;
  double alibi_scale = 1;  ///< factor of these biases
  /// softmax, (flash_)attention: sequences consist of examples, and a token sees its own alone
  /// (models/job/examples.h). This share of a whole sequence's scores is expected; 0: a sequence is
  /// one example.
  double within_examples = 0;
  bool operator==(const AttentionParams&) const = default;
};
/// Returns the columns of a value in flash_attention, whose queries, keys and values are in so many
/// operands. `last` is the one with the values: [n,3,a,d]; [n,2,kv,d]; [n,1,kv,e]; or with the key
/// side by side in each head, [n,1,kv,d+e].
inline std::int64_t value_width(std::size_t operands, const Shape& queries, const Shape& last) {
  return operands == 2 && last[1] == 1 ? last[3] - queries[3] : last[3];
}
struct VocabularyParams {         // embedding*, logits_max, logits_sum_exp, cross_entropy_backward,
                                  // token_loss
  std::int64_t vocabulary = 0;    ///< real global rows; columns at or above are masked
  std::int64_t split_degree = 1;  ///< mp degree of the vocabulary; first = mp coordinate * v
  double loss_weight = 1;  ///< 1 / tokens of the global batch (token_loss, cross_entropy_backward)
  /// token_loss, cross_entropy_backward: each token has so many rows, one behind another. Rows but
  /// the first are predictions of MTP modules, whose loss counts by depth_weight if their target is
  /// in the sequence (runtime/row_shares.h), of which the rank has `sequence` tokens. These are
  /// stated where there are modules, or examples.
  std::int64_t depths = 1;
  double depth_weight = 1;
  std::int64_t sequence = 0;
  bool operator==(const VocabularyParams&) const = default;
};
struct DropoutParams {  // dropout, masked_dropout and its backward, bias_dropout_add
  double rate = 0;      ///< share of the elements that are zeroed
  /// The Philox key is seed, step and site (one site for each op of the job). The Philox counter is
  /// the global element index and the layer.
  std::int64_t seed = 0, site = 0;
  bool operator==(const DropoutParams&) const = default;
};
/// How the angles of rotary embeddings are made smaller for sequences longer than those that a
/// model saw first (runtime/rotary_angles.h).
enum class RotaryScaling : std::uint8_t { none, linear, llama3, yarn };
inline constexpr std::array<std::string_view, 4> kRotaryScalings = {"none", "linear", "llama3",
                                                                    "yarn"};
struct RotaryScale {
  RotaryScaling kind = RotaryScaling::none;
  double factor = 1;  ///< by which slow angles are divided; linear: all
  /// llama3, yarn: angles that turn less than `low` times in `original` tokens are slow, those that
  /// turn `high` times or more are left, and others are in between.
  std::int64_t original = 0;
  double low = 0, high = 0;
  bool whole_columns = true;  ///< yarn: the columns where this begins and ends are rounded outwards
  double amplitude = 1;       ///< what is turned is multiplied by it
  bool operator==(const RotaryScale&) const = default;
};
/// Queries at position p are multiplied by 1 + factor log(1 + floor((p + ahead) / span)) (Llama 4,
/// transformers models/llama4, attn_temperature_tuning: ahead 1; Ministral 3, models/ministral3:
/// 0). span 0: they are not.
struct QueryGrowth {
  double factor = 0;
  std::int64_t span = 0, ahead = 0;  ///< tokens
  bool operator==(const QueryGrowth&) const = default;
};
struct RotaryParams {  // rotary, rotary_backward
  std::int64_t sequence = 0, rotated = 0;
  std::int64_t width = 0;  ///< the leading columns of a head that are turned; 0: all
  double base = 10000;
  RotaryScale scale = {};
  QueryGrowth growth = {};  ///< of the first part; with rotated 0 nothing is turned
  bool operator==(const RotaryParams&) const = default;
};
struct ActivationParams {  // (bias_)gelu, swiglu, geglu and their backward
  bool exact = false;      ///< GELU by erf; else the tanh approximation
  /// swiglu: y = g sigmoid(sharpness g) (u + offset), where g is the gate, at most `limit`, and u
  /// is up, within +- limit (GPT-OSS, arXiv 2508.10925, section 2); 0: no limit.
  double limit = 0, sharpness = 1, offset = 0;
  bool operator==(const ActivationParams&) const = default;
};
struct FactorParams {  // multiply
  double factor = 1;
  bool operator==(const FactorParams&) const = default;
};
struct PackParams {     // unpack_weight
  bool nested = false;  ///< scales of blocks are in 8 bits themselves
  bool operator==(const PackParams&) const = default;
};
struct CapParams {  // soft_cap, soft_cap_backward
  double limit = 1;
  bool operator==(const CapParams&) const = default;
};
struct DataParams {  // load_*, token_type_add*
  std::int64_t sequence = 0;
  /// load_masked_* only: the predicted positions per sequence, the real rows of the vocabulary (the
  /// last one is the mask token), and the seed of the predictions.
  std::int64_t predicted = 0, vocabulary = 0, seed = 0;
  /// load_targets only: each position has `depths` targets, one behind another. The first is so
  /// many tokens ahead.
  std::int64_t ahead = 1, depths = 1;
  /// load_targets only: a call has one of `parts` equal parts of the micro-batch's tokens
  /// (Call::part). Each of `ranks` ranks of mp has as many of them, one rank behind another.
  std::int64_t parts = 1, ranks = 1;
  bool operator==(const DataParams&) const = default;
};
/// How a router scores experts and chooses among them. Scores are softmax(logits), or
/// sigmoid(logits). With groups of experts, the best `top_groups` of them are taken first, each by
/// the sum of its `group_best` highest scores; the experts are chosen among theirs. A chosen
/// expert's weight is its score, divided by the sum of the chosen ones if `normalized`, times
/// scale.
struct RouteParams {  // route, route_backward
  bool sigmoid = false, normalized = false;
  double scale = 1;
  std::int64_t groups = 1, top_groups = 1, group_best = 1;
  bool operator==(const RouteParams&) const = default;
};
/// The losses of a router. Their gradients are those of the global batch's sums over its tokens.
struct BalanceParams {  // balance_experts and its backward
  std::int64_t sequence = 0;
  std::int64_t sequences = 1;  ///< consecutive ones, which have one auxiliary loss together
  bool sigmoid = false;        ///< of the router's scores, as in RouteParams
  /// The factor of the auxiliary loss of these sequences, over the number of such losses in the
  /// global batch. The loss is the mean over experts of (share of the choices) x (mean score),
  /// times experts squared.
  double balance_weight = 0;
  double z_weight = 0;  ///< of the squared log-sum-exp of a token's logits
  bool operator==(const BalanceParams&) const = default;
};
/// A step moves the bias of an expert by `step`: up where it was chosen less often than `even`
/// times, and down where more often.
struct SelectionParams {  // move_selection_bias
  double step = 0, even = 0;
  bool operator==(const SelectionParams&) const = default;
};
struct LimitParams {  // limit_choices
  std::int64_t sequence = 0;
  std::int64_t capacity = 0;  ///< rows that a sequence has at an expert; 0: as many as it chose
  /// The tokens are those of so many ranks of cp, one after the other (runtime/sequence_part.h).
  std::int64_t ranks = 1;
  bool operator==(const LimitParams&) const = default;
};
struct PlaceParams {       // place_choices, received_ends
  std::int64_t parts = 1;  ///< this rank has 1/parts of the experts: those at its ep coordinate
  std::int64_t rows = 0;   ///< the most that its experts may have together
  bool drops = false;      ///< rows behind these are dropped; else they end the run
  bool operator==(const PlaceParams&) const = default;
};
struct GroupedBiasParams {  // grouped_bias_add and its backward
  /// Ranks that have partial sums of the rows, of which each adds its part of the bias.
  std::int64_t ranks = 1;
  bool operator==(const GroupedBiasParams&) const = default;
};
struct CollectiveParams {  // collectives, copy_to_group, reduce_from_group
  Group group;
  Reduction reduction = Reduction::sum;
  std::int64_t root = 0;   ///< reduce, broadcast: index in the group
  std::int64_t shift = 1;  ///< ring_shift: the rank it comes from is so many before this one
  bool operator==(const CollectiveParams&) const = default;
};
/// send, recv: the peer is pipeline_peer(grid, rank, stage_offset). 0 stands for the same stage of
/// the other half of the data ranks.
struct TransferParams {
  std::int64_t stage_offset = 0;
  bool operator==(const TransferParams&) const = default;
};
struct FillParams {
  double value = 0;
  bool operator==(const FillParams&) const = default;
};
struct FlatParams {         // squared_norm, square, reduce_sum, scale, coalesce, check_finite
  std::int64_t shards = 1;  ///< each rank owns 1/shards of the arena
  double weight = 1;  ///< factor of the sum: 1/mp where mp ranks hold equal copies of the tensor
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
/// The parameters of begin_step, which sets the loss scale of a step. After a step with `found` the
/// scale is `backoff` times the last one. After `growth_interval` steps in a row without `found` it
/// is `growth` times the last one.
struct StepParams {       // begin_step
  double loss_scale = 1;  ///< of the first step
  double growth = 1, backoff = 1;
  std::int64_t growth_interval = 0;  ///< 0: never grows
  bool operator==(const StepParams&) const = default;
};
struct AdamParams {  // adamw, adamw_8bit
  double learning_rate = 0, beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0;
  bool clipped = false;                    ///< gradients are unscaled and clipped already
  std::optional<std::int64_t> group = {};  ///< as in FlatParams
  std::int64_t elements = 0;
  /// 16-bit parameters are rounded up or down at random, so that their mean is the value. The
  /// Philox key is seed, update and tensor, its counter the index in the whole tensor and the
  /// layer.
  bool stochastic = false;
  std::int64_t seed = 0;
  /// The elements of the arenas that are updated; end 0: all. Gradients are of these alone.
  std::int64_t begin = 0, end = 0;
  bool operator==(const AdamParams&) const = default;
};
struct SgdParams {  // sgd
  double learning_rate = 0, momentum = 0, weight_decay = 0;
  bool clipped = false;
  std::optional<std::int64_t> group = {};
  std::int64_t elements = 0;
  std::int64_t begin = 0, end = 0;  ///< as in AdamParams
  bool operator==(const SgdParams&) const = default;
};
struct LambParams {  // lamb_norms, lamb
  double learning_rate = 0, beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0;
  bool clipped = false;
  std::optional<std::int64_t> group = {};
  std::int64_t elements = 0;
  bool operator==(const LambParams&) const = default;
};

/// The parameters of the ops of Adafactor (Shazeer & Stern 2018, arXiv 1804.04235, algorithm 4,
/// without its relative step sizes), on one tensor, which is a matrix of its first dimension by the
/// others. A rank may have a part of the rows or of the columns.
struct AdafactorParams {  // adafactor_sums, adafactor_norm, adafactor
  double learning_rate = 0, weight_decay = 0;
  bool clipped = false;                ///< gradients are unscaled and clipped already
  std::int64_t rows = 0, columns = 0;  ///< of the whole
  std::int64_t copies = 1;             ///< ranks that have the same part
  bool operator==(const AdafactorParams&) const = default;
};

using OpParams =
    std::variant<std::monostate, MatmulParams, NormParams, AttentionParams, DropoutParams,
                 RotaryParams, ActivationParams, FactorParams, VocabularyParams, DataParams,
                 CollectiveParams, TransferParams, FillParams, FlatParams, ClipParams, StepParams,
                 AdamParams, SgdParams, LambParams, AdafactorParams, RouteParams, BalanceParams,
                 LimitParams, PlaceParams, CapParams, GroupedBiasParams, SelectionParams,
                 PackParams>;

/// A weight in 4 bits: elements that share a scale, the largest absolute value among them; and
/// scales that share an outer scale, if they are in 8 bits ("double quantization", Dettmers et al.
/// 2023, arXiv 2305.14314, section 3).
inline constexpr std::int64_t kPackedBlock = 64, kOuterBlock = 256;
/// Where the parts of a packed weight begin, in bytes: two elements in each byte, the first in its
/// upper half; then the scales, one f32 for each block. Nested, a scale is one byte q, which stands
/// for mean + outer (q - 128) / 127: the outer scales follow in f32, and behind them the mean of
/// all scales.
struct PackedLayout {
  std::int64_t scales = 0, outer = 0, mean = 0;
  std::int64_t bytes = 0;  ///< of the whole
  bool nested = false;
};
PackedLayout packed_layout(std::int64_t elements, bool nested);
/// Returns the bytes of a weight with `elements` elements.
inline std::int64_t packed_bytes(std::int64_t elements, bool nested) {
  return packed_layout(elements, nested).bytes;
}

/// Elements of a moment in 8 bits that share a scale (bitsandbytes optim/optimizer.py; 2048 in
/// Dettmers et al. 2022, arXiv 2110.02861, section 2.1).
inline constexpr std::int64_t kMomentBlock = 256;
/// Returns the scales of a moment with `elements` elements.
inline std::int64_t moment_blocks(std::int64_t elements) {
  return (elements + kMomentBlock - 1) / kMomentBlock;
}

/// Returns the causal scores of s tokens within the window, which are s (s + 1) / 2 without one,
/// and w s - w (w - 1) / 2 with a window of w. In chunks of w tokens they are the triangles of all
/// chunks.
double causal_scores(std::int64_t tokens, const AttentionParams& params);
/// Returns the scores within the window and within examples, as a share of all causal ones.
double share_in_window(const AttentionParams& params);

struct Op {
  OpKind kind = OpKind::add;
  Phase phase = Phase::forward;
  Stream stream = Stream::compute;
  std::optional<BlockId> block;  ///< Graph only; absent for ops of the optimizer
  std::vector<TensorId> inputs, outputs;
  OpParams params;
  /// In a Routine only: the indices of earlier ops of the same routine, on other streams, that must
  /// have finished.
  std::vector<std::uint32_t> waits;
  bool operator==(const Op&) const = default;
};

std::string_view to_text(OpKind kind);
std::string_view to_text(Phase phase);
std::string_view to_text(Stream stream);
std::string_view to_text(Reduction reduction);
std::string_view to_text(RotaryScaling scaling);
std::optional<OpKind> op_kind_from(std::string_view text);

}  // namespace plimsoll
