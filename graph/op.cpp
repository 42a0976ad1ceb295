#include "graph/op.h"

#include "graph/names.h"

namespace plimsoll {

namespace {
constexpr std::array<std::string_view, kOpKinds> kKinds = {"load_tokens",
                                                           "load_targets",
                                                           "load_masked_tokens",
                                                           "load_masked_positions",
                                                           "load_masked_targets",
                                                           "linear",
                                                           "attention",
                                                           "embedding",
                                                           "embedding_backward",
                                                           "position_add",
                                                           "position_add_backward",
                                                           "token_type_add",
                                                           "token_type_add_backward",
                                                           "layer_norm",
                                                           "layer_norm_backward",
                                                           "rms_norm",
                                                           "rms_norm_backward",
                                                           "matmul",
                                                           "bias_add",
                                                           "bias_gradient",
                                                           "gelu",
                                                           "gelu_backward",
                                                           "squared_relu",
                                                           "squared_relu_backward",
                                                           "swiglu",
                                                           "swiglu_backward",
                                                           "add",
                                                           "own_part",
                                                           "dropout",
                                                           "gather_rows",
                                                           "gather_rows_backward",
                                                           "rotary",
                                                           "rotary_backward",
                                                           "split_heads",
                                                           "split_heads_backward",
                                                           "merge_heads",
                                                           "merge_heads_backward",
                                                           "softmax",
                                                           "softmax_backward",
                                                           "flash_attention",
                                                           "flash_attention_backward",
                                                           "bias_gelu",
                                                           "bias_gelu_backward",
                                                           "bias_residual_add",
                                                           "masked_dropout",
                                                           "masked_dropout_backward",
                                                           "bias_dropout_add",
                                                           "absolute_maximum",
                                                           "quantize",
                                                           "transpose",
                                                           "split_parts",
                                                           "join_parts",
                                                           "merge_attention",
                                                           "cast",
                                                           "logits_max",
                                                           "logits_sum_exp",
                                                           "token_loss",
                                                           "cross_entropy_backward",
                                                           "copy_to_group",
                                                           "reduce_from_group",
                                                           "all_reduce",
                                                           "reduce_scatter",
                                                           "all_gather",
                                                           "reduce",
                                                           "broadcast",
                                                           "ring_shift",
                                                           "all_to_all",
                                                           "send",
                                                           "recv",
                                                           "begin_step",
                                                           "fill",
                                                           "squared_norm",
                                                           "clip_factor",
                                                           "check_finite",
                                                           "update_loss_scale",
                                                           "square",
                                                           "reduce_sum",
                                                           "square_root",
                                                           "maximum",
                                                           "divide",
                                                           "scale",
                                                           "coalesce",
                                                           "cast_parameters",
                                                           "adamw",
                                                           "sgd",
                                                           "lamb_norms",
                                                           "lamb"};
constexpr std::array<std::string_view, 5> kPhases = {"forward", "recompute", "backward",
                                                     "backward_weight", "optimizer"};
constexpr std::array<std::string_view, kStreams> kStreamNames = {
    "compute",       "mp",        "data",         "world", "context", "send_next",
    "send_previous", "recv_next", "recv_previous"};
constexpr std::array<std::string_view, 2> kReductions = {"sum", "max"};
}  // namespace

std::string_view to_text(OpKind kind) { return kKinds[std::size_t(kind)]; }
std::string_view to_text(Phase phase) { return kPhases[std::size_t(phase)]; }
std::string_view to_text(Stream stream) { return kStreamNames[std::size_t(stream)]; }
std::string_view to_text(Reduction reduction) { return kReductions[std::size_t(reduction)]; }
std::optional<OpKind> op_kind_from(std::string_view text) {
  return enumerator_from<OpKind>(kKinds, text);
}
std::optional<Phase> phase_from(std::string_view text) {
  return enumerator_from<Phase>(kPhases, text);
}
std::optional<Stream> stream_from(std::string_view text) {
  return enumerator_from<Stream>(kStreamNames, text);
}
std::optional<Reduction> reduction_from(std::string_view text) {
  return enumerator_from<Reduction>(kReductions, text);
}

}  // namespace plimsoll
