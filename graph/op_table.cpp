#include "graph/op_table.h"

#include <algorithm>
#include <array>

#include "graph/op_checks.h"

namespace plimsoll {

namespace {

using Tensors = std::span<const Tensor>;

const Tensor& in(const Op& op, Tensors tensors, std::size_t i) {
  return tensors[op.inputs[i].index()];
}
const Tensor& out(const Op& op, Tensors tensors, std::size_t i) {
  return tensors[op.outputs[i].index()];
}

template <class Params>
constexpr std::size_t params_index() {
  return OpParams(Params{}).index();
}

constexpr std::size_t kNone = 0;
const std::size_t kMatmul = params_index<MatmulParams>();
const std::size_t kNorm = params_index<NormParams>();
const std::size_t kAttention = params_index<AttentionParams>();
const std::size_t kDropout = params_index<DropoutParams>();
const std::size_t kRotary = params_index<RotaryParams>();
const std::size_t kVocabulary = params_index<VocabularyParams>();
const std::size_t kData = params_index<DataParams>();
const std::size_t kCollective = params_index<CollectiveParams>();
const std::size_t kTransfer = params_index<TransferParams>();
const std::size_t kFill = params_index<FillParams>();
const std::size_t kFlat = params_index<FlatParams>();
const std::size_t kClip = params_index<ClipParams>();
const std::size_t kStep = params_index<StepParams>();
const std::size_t kAdam = params_index<AdamParams>();
const std::size_t kSgd = params_index<SgdParams>();
const std::size_t kLamb = params_index<LambParams>();
/// A sum of several values has as many inputs as there are attribute groups.
constexpr int kMostSummands = 1024;

using enum OpKind;
constexpr OpClass abstract = OpClass::abstract, memory_bound = OpClass::memory_bound,
                  collective = OpClass::collective, point_to_point = OpClass::point_to_point;

// kind, class, inputs (least, most), outputs (least, most), params, in place, accumulating outputs,
// legality
const std::array<OpRow, kOpKinds> kTable = {{
    {load_tokens, memory_bound, 0, 0, 1, 1, kData, -1, 0, check_tokens},
    {load_targets, memory_bound, 0, 0, 1, 1, kData, -1, 0, check_tokens},
    {load_masked_tokens, memory_bound, 0, 0, 1, 1, kData, -1, 0, check_tokens},
    {load_masked_positions, memory_bound, 0, 0, 1, 1, kData, -1, 0, check_predicted},
    {load_masked_targets, memory_bound, 0, 0, 1, 1, kData, -1, 0, check_predicted},
    {linear, abstract, 2, 3, 1, 1, kMatmul, -1, 0, check_matmul},
    {attention, abstract, 3, 3, 1, 1, kAttention, -1, 0, fine},
    {embedding, memory_bound, 2, 2, 1, 1, kVocabulary, -1, 0, check_embedding},
    {embedding_backward, memory_bound, 2, 2, 1, 1, kVocabulary, -1, 1, check_embedding},
    {position_add, memory_bound, 2, 2, 1, 1, kNone, -1, 0, check_position},
    {position_add_backward, memory_bound, 1, 1, 1, 1, kNone, -1, 1, check_position},
    {token_type_add, memory_bound, 2, 2, 1, 1, kData, -1, 0, check_token_types},
    {token_type_add_backward, memory_bound, 1, 1, 1, 1, kData, -1, 1, check_token_types},
    {layer_norm, memory_bound, 3, 3, 3, 3, kNorm, -1, 0, check_layer_norm},
    {layer_norm_backward, memory_bound, 5, 5, 3, 3, kNorm, -1, 0b110, check_layer_norm},
    {rms_norm, memory_bound, 2, 2, 2, 2, kNorm, -1, 0, check_rms_norm},
    {rms_norm_backward, memory_bound, 4, 4, 2, 2, kNorm, -1, 0b10, check_rms_norm},
    {OpKind::matmul, OpClass::matmul, 2, 3, 1, 1, kMatmul, -1, 0, check_matmul},
    {bias_add, memory_bound, 2, 2, 1, 1, kNone, 0, 0, check_bias},
    {bias_gradient, memory_bound, 1, 1, 1, 1, kNone, -1, 1, check_bias},
    {gelu, memory_bound, 1, 1, 1, 1, kNone, -1, 0, elementwise},
    {gelu_backward, memory_bound, 2, 2, 1, 1, kNone, -1, 0, elementwise},
    {squared_relu, memory_bound, 1, 1, 1, 1, kNone, -1, 0, elementwise},
    {squared_relu_backward, memory_bound, 2, 2, 1, 1, kNone, -1, 0, elementwise},
    {swiglu, memory_bound, 1, 1, 1, 1, kNone, -1, 0, check_swiglu},
    {swiglu_backward, memory_bound, 2, 2, 1, 1, kNone, -1, 0, check_swiglu},
    {add, memory_bound, 2, 2, 1, 1, kNone, -1, 0, elementwise},
    {own_part, memory_bound, 1, 1, 1, 1, kNone, -1, 0, check_own_part},
    {dropout, memory_bound, 1, 1, 1, 1, kDropout, -1, 0, check_dropout},
    {gather_rows, memory_bound, 2, 2, 1, 1, kNone, -1, 0, check_gather},
    {gather_rows_backward, memory_bound, 2, 2, 1, 1, kNone, -1, 0, check_gather},
    {rotary, memory_bound, 1, 1, 1, 1, kRotary, 0, 0, check_rotary},
    {rotary_backward, memory_bound, 1, 1, 1, 1, kRotary, 0, 0, check_rotary},
    {split_heads, memory_bound, 1, 1, 1, 3, kAttention, -1, 0, check_heads},
    {split_heads_backward, memory_bound, 1, 3, 1, 1, kAttention, -1, 0, check_heads},
    {merge_heads, memory_bound, 1, 1, 1, 1, kAttention, -1, 0, check_heads},
    {merge_heads_backward, memory_bound, 1, 1, 1, 1, kAttention, -1, 0, check_heads},
    {softmax, memory_bound, 1, 1, 1, 1, kAttention, -1, 0, check_softmax},
    {softmax_backward, memory_bound, 2, 2, 1, 1, kAttention, -1, 0, check_softmax},
    {flash_attention, OpClass::attention, 1, 2, 2, 2, kAttention, -1, 0, check_flash_attention},
    {flash_attention_backward, OpClass::attention, 4, 5, 1, 2, kAttention, -1, 0,
     check_flash_attention},
    {bias_gelu, memory_bound, 2, 2, 1, 1, kNone, -1, 0, check_bias_gelu},
    {bias_gelu_backward, memory_bound, 3, 3, 1, 1, kNone, -1, 0, check_bias_gelu},
    {bias_residual_add, memory_bound, 3, 3, 1, 1, kNone, -1, 0, check_bias_residual},
    {masked_dropout, memory_bound, 1, 1, 2, 2, kDropout, -1, 0, check_masked_dropout},
    {masked_dropout_backward, memory_bound, 2, 2, 1, 1, kDropout, -1, 0, check_masked_dropout},
    {bias_dropout_add, memory_bound, 2, 3, 2, 2, kDropout, -1, 0, check_bias_dropout_add},
    {absolute_maximum, memory_bound, 1, 1, 1, 1, kNone, -1, 0, check_absolute_maximum},
    {quantize, memory_bound, 1, 2, 1, 2, kNone, -1, 0, check_quantize},
    {transpose, memory_bound, 1, 1, 1, 1, kNone, -1, 0, check_transpose},
    {split_parts, memory_bound, 1, 1, 2, 2, kNone, -1, 0, check_parts},
    {join_parts, memory_bound, 2, 2, 1, 1, kNone, -1, 0, check_parts},
    {merge_attention, memory_bound, 4, 4, 2, 2, kNone, 0, 0, check_merge_attention},
    {OpKind::cast, memory_bound, 1, 1, 1, 1, kNone, -1, 0, check_cast},
    {logits_max, memory_bound, 1, 1, 1, 1, kVocabulary, -1, 0, check_logits},
    {logits_sum_exp, memory_bound, 3, 3, 1, 1, kVocabulary, -1, 0, check_logits},
    {token_loss, memory_bound, 3, 3, 2, 2, kVocabulary, -1, 0, check_token_loss},
    {cross_entropy_backward, memory_bound, 3, 4, 1, 1, kVocabulary, -1, 0, check_logits},
    {copy_to_group, abstract, 1, 1, 1, 1, kCollective, -1, 0, check_collective},
    {reduce_from_group, abstract, 1, 1, 1, 1, kCollective, 0, 0, check_collective},
    {all_reduce, collective, 1, 1, 1, 1, kCollective, 0, 0, check_collective},
    {reduce_scatter, collective, 1, 1, 1, 1, kCollective, 0, 0, check_collective},
    {all_gather, collective, 1, 1, 1, 1, kCollective, 0, 0, check_collective},
    {reduce, collective, 1, 1, 1, 1, kCollective, 0, 0, check_collective},
    {broadcast, collective, 1, 1, 1, 1, kCollective, 0, 0, check_collective},
    {ring_shift, collective, 1, 1, 1, 1, kCollective, -1, 0, check_collective},
    {all_to_all, collective, 1, 1, 1, 1, kCollective, -1, 0, check_collective},
    {send, point_to_point, 1, 1, 0, 0, kTransfer, -1, 0, check_transfer},
    {recv, point_to_point, 0, 0, 1, 1, kTransfer, -1, 0, check_transfer},
    {begin_step, memory_bound, 1, 1, 1, 1, kStep, -1, 0, check_begin_step},
    {fill, memory_bound, 0, 0, 1, 1, kFill, -1, 0, fine},
    {squared_norm, memory_bound, 1, 1, 1, 1, kFlat, -1, 0, check_squared_norm},
    {clip_factor, memory_bound, 2, 2, 1, 1, kClip, -1, 0, check_clip},
    {check_finite, memory_bound, 2, 2, 2, 2, kFlat, -1, 0, check_check_finite},
    {update_loss_scale, memory_bound, 2, 2, 1, 1, kNone, -1, 0, check_update_loss_scale},
    {square, memory_bound, 1, 1, 1, 1, kFlat, -1, 0, check_flat},
    {reduce_sum, memory_bound, 1, kMostSummands, 1, 1, kFlat, -1, 0, check_squared_norm},
    {square_root, memory_bound, 1, 1, 1, 1, kNone, -1, 0, elementwise},
    {maximum, memory_bound, 2, 2, 1, 1, kNone, -1, 0, elementwise},
    {divide, memory_bound, 2, 2, 1, 1, kNone, -1, 0, elementwise},
    {scale, memory_bound, 2, 2, 1, 1, kFlat, -1, 0, check_flat},
    {coalesce, memory_bound, 1, 1, 1, 1, kFlat, -1, 0, check_flat},
    {cast_parameters, memory_bound, 1, 1, 1, 1, kNone, -1, 0, check_cast},
    {adamw, memory_bound, 5, 5, 3, 4, kAdam, -1, 0, check_update},
    {sgd, memory_bound, 4, 4, 2, 3, kSgd, -1, 0, check_update},
    {lamb_norms, memory_bound, 5, 5, 3, 3, kLamb, -1, 0, check_update},
    {lamb, memory_bound, 5, 5, 1, 2, kLamb, -1, 0, check_lamb},
}};

/// By an update of masters: as many as there are of them.
Bytes parameters_written(const Op& op, Tensors tensors) {
  if (int(op.outputs.size()) == row(op.kind).least_outputs) return Bytes(0);
  return elements(in(op, tensors, 0).shape) * bytes_of(tensors[op.outputs.back().index()].dtype);
}

/// Elements of a group of segments, or of those a rank owns, or of everything that input `i` holds.
/// A rank that owns nothing has no such op without a group (passes/schedule/update_calls.cpp).
template <class Params>
std::int64_t worked_on(const Op& op, Tensors tensors, std::size_t i) {
  const auto& params = std::get<Params>(op.params);
  return params.group || params.elements > 0 ? params.elements : elements(in(op, tensors, i).shape);
}

std::int64_t total_bytes(const std::vector<TensorId>& ids, Tensors tensors) {
  std::int64_t total = 0;
  for (TensorId id : ids) total += bytes_of(tensors[id.index()]).count();
  return total;
}

}  // namespace

const OpRow& row(OpKind kind) {
  const OpRow& found = kTable[std::size_t(kind)];
  INVARIANT(found.kind == kind, "op table is out of order");
  return found;
}

bool communicates(OpKind kind) {
  const OpClass op_class = row(kind).op_class;
  return op_class == OpClass::collective || op_class == OpClass::point_to_point;
}

int in_place(const Op& op, Tensors tensors) {
  const int storage = row(op.kind).in_place;
  if (op.kind == OpKind::broadcast && op.inputs != op.outputs) return -1;
  if (op.kind != OpKind::reduce_scatter && op.kind != OpKind::all_gather) return storage;
  const auto elements_of = [](const Tensor& tensor) { return elements(tensor.shape); };
  const bool whole = elements_of(in(op, tensors, 0)) == elements_of(out(op, tensors, 0));
  return whole ? storage : -1;
}

bool may_write_parameters(OpKind kind) {
  return kind == OpKind::adamw || kind == OpKind::sgd || kind == OpKind::lamb;
}

bool accumulates(const Op& op, std::size_t i) {
  if (const auto* params = std::get_if<MatmulParams>(&op.params)) return params->accumulate;
  return (row(op.kind).accumulates >> i & 1u) != 0;
}

MatmulShape matmul_shape(const Op& op, Tensors tensors) {
  const Verdict verdict = check_matmul(op, tensors);
  INVARIANT(bool(verdict), "matmul: " + verdict.reason());
  const auto& params = std::get<MatmulParams>(op.params);
  const Shape& a = in(op, tensors, 0).shape;
  const Shape& c = out(op, tensors, 0).shape;
  MatmulShape shape;
  const auto batch_dims = std::size_t(params.batch_dims);
  for (std::size_t i = 0; i < batch_dims; ++i) shape.batch *= c[i];
  shape.m = c[batch_dims];
  shape.n = elements(c) / (shape.batch * shape.m);
  shape.k = elements(a) / (shape.batch * shape.m);
  return shape;
}

DType compute_dtype(const Op& op, Tensors tensors) {
  for (TensorId id : op.inputs) {
    if (is_floating(tensors[id.index()].dtype)) return tensors[id.index()].dtype;
  }
  return tensors[(op.outputs.empty() ? op.inputs.at(0) : op.outputs[0]).index()].dtype;
}

Flops flops(const Op& op, Tensors tensors) {
  if (row(op.kind).op_class == OpClass::attention) {
    const bool backward = op.kind == OpKind::flash_attention_backward;
    const double y = double(elements((backward ? in(op, tensors, 0) : out(op, tensors, 0)).shape));
    const double product = 2 * y * double(std::get<AttentionParams>(op.params).sequence);
    return Flops((backward ? 5 : 2) * product);
  }
  if (row(op.kind).op_class != OpClass::matmul) return Flops(0);
  const MatmulShape shape = matmul_shape(op, tensors);
  return Flops(2.0 * double(shape.batch) * double(shape.m) * double(shape.n) * double(shape.k));
}

Bytes bytes_moved(const Op& op, Tensors tensors) {
  switch (op.kind) {
    case OpKind::embedding: {  // only the rows that occur are read
      return bytes_of(in(op, tensors, 0)) + 2 * bytes_of(out(op, tensors, 0));
    }
    case OpKind::embedding_backward: {  // rows are read, added to the table's and written there
      const Tensor& dx = in(op, tensors, 0);
      const Bytes rows = elements(dx.shape) * bytes_of(out(op, tensors, 0).dtype);
      return bytes_of(in(op, tensors, 1)) + bytes_of(dx) + 2 * rows;
    }
    case OpKind::own_part:
      return 2 * bytes_of(out(op, tensors, 0));
    case OpKind::gather_rows:  // only the rows asked for are read
      return bytes_of(in(op, tensors, 1)) + 2 * bytes_of(out(op, tensors, 0));
    case OpKind::squared_norm:
      return worked_on<FlatParams>(op, tensors, 0) / std::get<FlatParams>(op.params).shards *
             bytes_of(in(op, tensors, 0).dtype);
    case OpKind::reduce_sum:
      if (op.inputs.size() == 1 && std::get<FlatParams>(op.params).group)
        return worked_on<FlatParams>(op, tensors, 0) * bytes_of(in(op, tensors, 0).dtype);
      break;
    case OpKind::square:
    case OpKind::scale:
    case OpKind::coalesce:
    case OpKind::check_finite:  // read and written
      return 2 * worked_on<FlatParams>(op, tensors, 0) * bytes_of(in(op, tensors, 0).dtype);
    // Updates count owned elements only: parameters and state are read and written, gradients read.
    case OpKind::adamw: {
      const auto type = [&](std::size_t i) { return bytes_of(in(op, tensors, i).dtype); };
      return worked_on<AdamParams>(op, tensors, 2) * (2 * (type(0) + type(2) + type(3)) + type(1)) +
             parameters_written(op, tensors);
    }
    case OpKind::sgd:
      return 5 * worked_on<SgdParams>(op, tensors, 2) * bytes_of(DType::f32) +
             parameters_written(op, tensors);
    case OpKind::lamb_norms:  // writes the moments only
      return 6 * worked_on<LambParams>(op, tensors, 2) * bytes_of(DType::f32);
    case OpKind::lamb:  // writes the parameters only
      return 4 * worked_on<LambParams>(op, tensors, 1) * bytes_of(DType::f32) +
             parameters_written(op, tensors);
    case OpKind::cast_parameters: {
      const Tensor& masters = in(op, tensors, 0);
      return bytes_of(masters) + elements(masters.shape) * bytes_of(out(op, tensors, 0).dtype);
    }
    default:
      break;
  }
  if (communicates(op.kind)) {  // of a part and the whole, the whole
    return Bytes(std::max(total_bytes(op.inputs, tensors), total_bytes(op.outputs, tensors)));
  }
  std::int64_t total = total_bytes(op.inputs, tensors) + total_bytes(op.outputs, tensors);
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    if (accumulates(op, i)) total += bytes_of(out(op, tensors, i)).count();
  }
  return Bytes(total);
}

}  // namespace plimsoll
