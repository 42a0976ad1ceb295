#include "graph/op_table.h"

#include <array>

namespace plimsoll {

namespace {

using Tensors = std::span<const Tensor>;

const Tensor& in(const Op& op, Tensors tensors, std::size_t i) {
  return tensors[op.inputs[i].index()];
}
const Tensor& out(const Op& op, Tensors tensors, std::size_t i) {
  return tensors[op.outputs[i].index()];
}

Verdict fine(const Op&, Tensors) { return Verdict::yes(); }

/// Every operand has the same number of elements and dtype.
Verdict elementwise(const Op& op, Tensors tensors) {
  const Tensor& first = out(op, tensors, 0);
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (elements(in(op, tensors, i).shape) != elements(first.shape)) {
      return Verdict::no("input " + std::to_string(i) + " and output 0 differ in size");
    }
    if (in(op, tensors, i).dtype != first.dtype) {
      return Verdict::no("input " + std::to_string(i) + " and output 0 differ in dtype");
    }
  }
  return Verdict::yes();
}

Verdict check_matmul(const Op& op, Tensors tensors) {
  const auto& params = std::get<MatmulParams>(op.params);
  const Shape& a = in(op, tensors, 0).shape;
  const Shape& b = in(op, tensors, 1).shape;
  const Shape& c = out(op, tensors, 0).shape;
  const auto least = std::size_t(params.batch_dims) + 2;
  if (params.batch_dims < 0 || a.size() < least || b.size() < least || c.size() < least) {
    return Verdict::no("operands need batch_dims + 2 dimensions");
  }
  for (std::size_t i = 0; i + 2 < least; ++i) {
    if (a[i] != b[i] || a[i] != c[i]) return Verdict::no("batch dimensions differ");
  }
  const auto rows = [&](const Shape& shape) { return shape[least - 2]; };
  const auto columns = [&](const Shape& shape) {
    std::int64_t product = 1;
    for (std::size_t i = least - 1; i < shape.size(); ++i) product *= shape[i];
    return product;
  };
  const std::int64_t m = params.transpose_a ? columns(a) : rows(a);
  const std::int64_t k = params.transpose_a ? rows(a) : columns(a);
  const std::int64_t k_of_b = params.transpose_b ? columns(b) : rows(b);
  const std::int64_t n = params.transpose_b ? rows(b) : columns(b);
  if (k != k_of_b) {
    return Verdict::no("inner dimensions differ: " + std::to_string(k) + " and " +
                       std::to_string(k_of_b));
  }
  if (rows(c) != m || columns(c) != n) return Verdict::no("output is not rows(a) x columns(b)");
  if (op.inputs.size() == 3 && elements(in(op, tensors, 2).shape) != n) {
    return Verdict::no("bias does not have one element per output column");
  }
  return Verdict::yes();
}

/// `whole` is rows x columns with one element of `row` per column.
Verdict row_fits(const Tensor& whole, const Tensor& row, const char* name) {
  if (!whole.shape.empty() && elements(row.shape) * whole.shape[0] == elements(whole.shape)) {
    return Verdict::yes();
  }
  return Verdict::no(std::string(name) + " does not have one element per column");
}

Verdict check_bias(const Op& op, Tensors tensors) {
  const bool gradient = op.kind == OpKind::bias_gradient;
  return row_fits(in(op, tensors, 0), gradient ? out(op, tensors, 0) : in(op, tensors, 1), "bias");
}

Verdict check_bias_residual(const Op& op, Tensors tensors) {
  if (elements(in(op, tensors, 2).shape) != elements(out(op, tensors, 0).shape)) {
    return Verdict::no("the residual and the output differ in size");
  }
  return row_fits(in(op, tensors, 0), in(op, tensors, 1), "bias");
}

Verdict check_bias_gelu(const Op& op, Tensors tensors) {
  const bool backward = op.kind == OpKind::bias_gelu_backward;
  const Tensor& x = in(op, tensors, backward ? 1 : 0);
  if (elements(x.shape) != elements(out(op, tensors, 0).shape)) {
    return Verdict::no("x and the output differ in size");
  }
  return row_fits(x, in(op, tensors, backward ? 2 : 1), "bias");
}

bool is_floating(const Tensor& tensor) { return tensor.dtype != DType::i32; }

Verdict check_cast(const Op& op, Tensors tensors) {
  const Tensor &x = in(op, tensors, 0), &y = out(op, tensors, 0);
  if (!is_floating(x) || !is_floating(y)) return Verdict::no("casts are between floating types");
  if (x.dtype == y.dtype) return Verdict::no("input and output have the same dtype");
  if (op.kind == OpKind::cast_parameters) {
    return elements(x.shape) <= elements(y.shape)
               ? Verdict::yes()
               : Verdict::no("masters are not a part of the parameters");
  }
  return elements(x.shape) == elements(y.shape) ? Verdict::yes()
                                                : Verdict::no("input and output differ in size");
}

/// Elements of qkv [n,3,a,d], y [n,a*d] and log_sum_exp [b,a,s] fit each other.
Verdict check_flash_attention(const Op& op, Tensors tensors) {
  const bool backward = op.kind == OpKind::flash_attention_backward;
  const Shape& qkv = in(op, tensors, backward ? 1 : 0).shape;
  const Tensor& y = backward ? in(op, tensors, 2) : out(op, tensors, 0);
  const Tensor& log_sum_exp = backward ? in(op, tensors, 3) : out(op, tensors, 1);
  if (qkv.size() != 4 || qkv[1] != 3) return Verdict::no("qkv is not [n,3,a,d]");
  if (qkv[0] % std::get<AttentionParams>(op.params).sequence != 0) {
    return Verdict::no("qkv is not whole sequences");
  }
  if (elements(y.shape) != qkv[0] * qkv[2] * qkv[3]) return Verdict::no("y is not [n,a*d]");
  if (elements(log_sum_exp.shape) != qkv[0] * qkv[2] || log_sum_exp.dtype != DType::f32) {
    return Verdict::no("log_sum_exp is not f32 [b,a,s]");
  }
  return Verdict::yes();
}

Verdict check_position(const Op& op, Tensors tensors) {
  const bool backward = op.kind == OpKind::position_add_backward;
  const Shape& x = in(op, tensors, 0).shape;
  const Shape& table = (backward ? out(op, tensors, 0) : in(op, tensors, 1)).shape;
  if (x.size() != 2 || table.size() != 2 || x[1] != table[1] || x[0] % table[0] != 0) {
    return Verdict::no("x is not whole sequences of the table's rows");
  }
  return Verdict::yes();
}

Verdict check_token_loss(const Op& op, Tensors tensors) {
  const std::int64_t tokens = elements(in(op, tensors, 0).shape);
  if (elements(in(op, tensors, 1).shape) != 2 * tokens ||
      elements(out(op, tensors, 0).shape) != tokens) {
    return Verdict::no("max, stats and log_sum_exp are not of the same tokens");
  }
  return Verdict::yes();
}

bool is_scalars(const Tensor& tensor) {
  return tensor.role == TensorRole::scalar && elements(tensor.shape) == kScalars;
}

Verdict check_begin_step(const Op& op, Tensors tensors) {
  return is_scalars(in(op, tensors, 0)) ? Verdict::yes() : Verdict::no("needs the step scalars");
}

Verdict check_clip(const Op& op, Tensors tensors) {
  if (elements(in(op, tensors, 0).shape) != 1)
    return Verdict::no("the squared norm is not one number");
  return is_scalars(in(op, tensors, 1)) ? Verdict::yes() : Verdict::no("needs the step scalars");
}

Verdict check_squared_norm(const Op& op, Tensors tensors) {
  if (elements(out(op, tensors, 0).shape) != 1)
    return Verdict::no("the squared norm is not one number");
  return std::get<FlatParams>(op.params).shards >= 1 ? Verdict::yes()
                                                     : Verdict::no("shards are not positive");
}

Verdict check_adamw(const Op& op, Tensors tensors) {
  const auto count = [&](std::size_t i) { return elements(in(op, tensors, i).shape); };
  const bool masters = in(op, tensors, 0).role == TensorRole::master_parameter;
  if (masters && count(0) != count(2)) return Verdict::no("masters and moments differ in size");
  if (!masters && count(0) != count(1))
    return Verdict::no("parameters and gradients differ in size");
  if (count(2) != count(3) || count(2) > count(1))
    return Verdict::no("moments are not one part of the parameters");
  return is_scalars(in(op, tensors, 4)) ? Verdict::yes() : Verdict::no("needs the step scalars");
}

Verdict check_layer_norm(const Op& op, Tensors tensors) {
  const bool backward = op.kind == OpKind::layer_norm_backward;
  const Shape& x = in(op, tensors, backward ? 1 : 0).shape;
  const Shape& gamma = in(op, tensors, backward ? 2 : 1).shape;
  if (x.size() != 2 || elements(gamma) != x[1])
    return Verdict::no("gamma does not match the rows of x");
  const Tensor& mean = backward ? in(op, tensors, 3) : out(op, tensors, 1);
  if (elements(mean.shape) != x[0]) return Verdict::no("mean does not have one element per row");
  return Verdict::yes();
}

Verdict check_embedding(const Op& op, Tensors tensors) {
  const bool backward = op.kind == OpKind::embedding_backward;
  const Tensor& tokens = in(op, tensors, backward ? 1 : 0);
  const Tensor& x = backward ? in(op, tensors, 0) : out(op, tensors, 0);
  const Tensor& table = backward ? out(op, tensors, 0) : in(op, tensors, 1);
  if (tokens.dtype != DType::i32) return Verdict::no("tokens are not i32");
  if (x.shape.size() != 2 || table.shape.size() != 2 || x.shape[0] != elements(tokens.shape) ||
      x.shape[1] != table.shape[1]) {
    return Verdict::no("x is not tokens x table columns");
  }
  return Verdict::yes();
}

Verdict check_heads(const Op& op, Tensors tensors) {
  const bool split = op.kind == OpKind::split_heads || op.kind == OpKind::merge_heads_backward;
  const Tensor& heads = split ? out(op, tensors, 0) : in(op, tensors, 0);
  if (heads.shape.size() != 4) return Verdict::no("heads are not [b,a,s,d]");
  if (heads.shape[2] != std::get<AttentionParams>(op.params).sequence) {
    return Verdict::no("sequence parameter does not match the shape");
  }
  std::int64_t inputs = 0, outputs = 0;
  for (TensorId id : op.inputs) inputs += elements(tensors[id.index()].shape);
  for (TensorId id : op.outputs) outputs += elements(tensors[id.index()].shape);
  return inputs == outputs ? Verdict::yes() : Verdict::no("inputs and outputs differ in size");
}

Verdict check_logits(const Op& op, Tensors tensors) {
  const Shape& logits = in(op, tensors, 0).shape;
  const auto& params = std::get<VocabularyParams>(op.params);
  if (logits.size() != 2) return Verdict::no("logits are not [n,v]");
  if (logits[1] * params.split_degree < params.vocabulary) {
    return Verdict::no("local vocabulary rows times split degree do not cover the vocabulary");
  }
  return Verdict::yes();
}

Verdict check_collective(const Op& op, Tensors tensors) {
  const auto& params = std::get<CollectiveParams>(op.params);
  if (params.group.axes.empty()) return Verdict::no("group has no axes");
  if (in(op, tensors, 0).dtype == DType::i32)
    return Verdict::no("collectives work on floating point");
  return elementwise(op, tensors);
}

Verdict check_transfer(const Op& op, Tensors) {
  return std::get<TransferParams>(op.params).stage_offset != 0
             ? Verdict::yes()
             : Verdict::no("peer is the rank itself");
}

Verdict check_tokens(const Op& op, Tensors tensors) {
  const Tensor& tokens = out(op, tensors, 0);
  if (tokens.dtype != DType::i32) return Verdict::no("tokens are not i32");
  if (elements(tokens.shape) % std::get<DataParams>(op.params).sequence != 0) {
    return Verdict::no("tokens are not whole sequences");
  }
  return Verdict::yes();
}

template <class Params>
constexpr std::size_t params_index() {
  return OpParams(Params{}).index();
}

constexpr std::size_t kNone = 0;
const std::size_t kMatmul = params_index<MatmulParams>();
const std::size_t kNorm = params_index<NormParams>();
const std::size_t kAttention = params_index<AttentionParams>();
const std::size_t kVocabulary = params_index<VocabularyParams>();
const std::size_t kData = params_index<DataParams>();
const std::size_t kCollective = params_index<CollectiveParams>();
const std::size_t kTransfer = params_index<TransferParams>();
const std::size_t kFill = params_index<FillParams>();
const std::size_t kFlat = params_index<FlatParams>();
const std::size_t kClip = params_index<ClipParams>();
const std::size_t kAdam = params_index<AdamParams>();

using enum OpKind;
constexpr OpClass abstract = OpClass::abstract, memory_bound = OpClass::memory_bound,
                  collective = OpClass::collective, point_to_point = OpClass::point_to_point;

// kind, class, inputs (least, most), outputs, params, in place, accumulating outputs, legality
const std::array<OpRow, kOpKinds> kTable = {{
    {load_tokens, memory_bound, 0, 0, 1, kData, -1, 0, check_tokens},
    {load_targets, memory_bound, 0, 0, 1, kData, -1, 0, check_tokens},
    {linear, abstract, 2, 3, 1, kMatmul, -1, 0, check_matmul},
    {attention, abstract, 3, 3, 1, kAttention, -1, 0, fine},
    {embedding, memory_bound, 2, 2, 1, kVocabulary, -1, 0, check_embedding},
    {embedding_backward, memory_bound, 2, 2, 1, kVocabulary, -1, 1, check_embedding},
    {position_add, memory_bound, 2, 2, 1, kNone, -1, 0, check_position},
    {position_add_backward, memory_bound, 1, 1, 1, kNone, -1, 1, check_position},
    {layer_norm, memory_bound, 3, 3, 3, kNorm, -1, 0, check_layer_norm},
    {layer_norm_backward, memory_bound, 5, 5, 3, kNorm, -1, 0b110, check_layer_norm},
    {OpKind::matmul, OpClass::matmul, 2, 3, 1, kMatmul, -1, 0, check_matmul},
    {bias_add, memory_bound, 2, 2, 1, kNone, 0, 0, check_bias},
    {bias_gradient, memory_bound, 1, 1, 1, kNone, -1, 1, check_bias},
    {gelu, memory_bound, 1, 1, 1, kNone, -1, 0, elementwise},
    {gelu_backward, memory_bound, 2, 2, 1, kNone, -1, 0, elementwise},
    {add, memory_bound, 2, 2, 1, kNone, -1, 0, elementwise},
    {split_heads, memory_bound, 1, 1, 3, kAttention, -1, 0, check_heads},
    {split_heads_backward, memory_bound, 3, 3, 1, kAttention, -1, 0, check_heads},
    {merge_heads, memory_bound, 1, 1, 1, kAttention, -1, 0, check_heads},
    {merge_heads_backward, memory_bound, 1, 1, 1, kAttention, -1, 0, check_heads},
    {causal_softmax, memory_bound, 1, 1, 1, kNone, -1, 0, elementwise},
    {causal_softmax_backward, memory_bound, 2, 2, 1, kNone, -1, 0, elementwise},
    {flash_attention, OpClass::attention, 1, 1, 2, kAttention, -1, 0, check_flash_attention},
    {flash_attention_backward, OpClass::attention, 4, 4, 1, kAttention, -1, 0,
     check_flash_attention},
    {bias_gelu, memory_bound, 2, 2, 1, kNone, -1, 0, check_bias_gelu},
    {bias_gelu_backward, memory_bound, 3, 3, 1, kNone, -1, 0, check_bias_gelu},
    {bias_residual_add, memory_bound, 3, 3, 1, kNone, -1, 0, check_bias_residual},
    {OpKind::cast, memory_bound, 1, 1, 1, kNone, -1, 0, check_cast},
    {logits_max, memory_bound, 1, 1, 1, kVocabulary, -1, 0, check_logits},
    {logits_sum_exp, memory_bound, 3, 3, 1, kVocabulary, -1, 0, check_logits},
    {token_loss, memory_bound, 3, 3, 2, kVocabulary, -1, 0, check_token_loss},
    {cross_entropy_backward, memory_bound, 3, 3, 1, kVocabulary, -1, 0, check_logits},
    {copy_to_group, abstract, 1, 1, 1, kCollective, -1, 0, check_collective},
    {reduce_from_group, abstract, 1, 1, 1, kCollective, 0, 0, check_collective},
    {all_reduce, collective, 1, 1, 1, kCollective, 0, 0, check_collective},
    {reduce_scatter, collective, 1, 1, 1, kCollective, 0, 0, check_collective},
    {all_gather, collective, 1, 1, 1, kCollective, 0, 0, check_collective},
    {send, point_to_point, 1, 1, 0, kTransfer, -1, 0, check_transfer},
    {recv, point_to_point, 0, 0, 1, kTransfer, -1, 0, check_transfer},
    {begin_step, memory_bound, 1, 1, 1, kNone, -1, 0, check_begin_step},
    {fill, memory_bound, 0, 0, 1, kFill, -1, 0, fine},
    {squared_norm, memory_bound, 1, 1, 1, kFlat, -1, 0, check_squared_norm},
    {clip_factor, memory_bound, 2, 2, 1, kClip, -1, 0, check_clip},
    {cast_parameters, memory_bound, 1, 1, 1, kNone, -1, 0, check_cast},
    {adamw, memory_bound, 5, 5, 3, kAdam, -1, 0, check_adamw},
}};

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
    if (is_floating(tensors[id.index()])) return tensors[id.index()].dtype;
  }
  return tensors[(op.outputs.empty() ? op.inputs.at(0) : op.outputs[0]).index()].dtype;
}

Flops flops(const Op& op, Tensors tensors) {
  if (row(op.kind).op_class == OpClass::attention) {
    const bool backward = op.kind == OpKind::flash_attention_backward;
    const double qkv = double(elements(in(op, tensors, backward ? 1 : 0).shape));  // 3 n a d
    const double product = 2 * qkv / 3 * double(std::get<AttentionParams>(op.params).sequence);
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
    case OpKind::squared_norm: {
      const std::int64_t shards = std::get<FlatParams>(op.params).shards;
      return Bytes(bytes_of(in(op, tensors, 0)).count() / shards);
    }
    case OpKind::adamw:  // parameters, m and v read and written, gradients read: owned elements
                         // only
      return 7 * bytes_of(in(op, tensors, 2));
    case OpKind::cast_parameters: {
      const Tensor& masters = in(op, tensors, 0);
      return bytes_of(masters) + elements(masters.shape) * bytes_of(out(op, tensors, 0).dtype);
    }
    default:
      break;
  }
  if (communicates(op.kind)) {
    return Bytes(op.inputs.empty() ? total_bytes(op.outputs, tensors)
                                   : total_bytes(op.inputs, tensors));
  }
  std::int64_t total = total_bytes(op.inputs, tensors) + total_bytes(op.outputs, tensors);
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    if (accumulates(op, i)) total += bytes_of(out(op, tensors, i)).count();
  }
  return Bytes(total);
}

}  // namespace plimsoll
