// The operands of every kind of op, sized by bytes.
#include "calibrate/schedule/bench_case.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "calibrate/schedule/bench_operands.h"
#include "graph/op_types.h"

namespace plimsoll {
namespace {

/// A state tensor: input and output under one id.
void state(BenchCase& into, Shape shape) {
  input(into, std::move(shape));
  into.op.outputs.push_back(into.op.inputs.back());
}

/// The step scalars, as an input.
void scalars(BenchCase& into) {
  input(into, {kScalars});
  into.tensors.back().role = TensorRole::scalar;
}

void add_token_ops(BenchCase& into, std::int64_t n, std::int64_t row) {
  switch (into.op.kind) {
    case OpKind::load_tokens:
    case OpKind::load_targets:
      into.op.params = DataParams{std::min(n, kSequence)};
      into.program.micro_batch = n / std::min(n, kSequence);
      return output(into, {n}, DType::i32);
    case OpKind::embedding:
      into.op.params = VocabularyParams{kVocabulary, 1, 1};
      input(into, {n}, DType::i32);
      input(into, {kVocabulary, row});
      return output(into, {n, row});
    case OpKind::embedding_backward:
      into.op.params = VocabularyParams{kVocabulary, 1, 1};
      input(into, {n, row});
      input(into, {n}, DType::i32);
      return output(into, {kVocabulary, row});
    case OpKind::position_add:
      input(into, {n, kHidden});
      input(into, {std::min(n, kSequence), kHidden});
      return output(into, {n, kHidden});
    case OpKind::position_add_backward:
      input(into, {n, kHidden});
      return output(into, {std::min(n, kSequence), kHidden});
    default:
      INVARIANT(false, "not an op over tokens");
  }
}

void add_row_ops(BenchCase& into, std::int64_t n, std::int64_t row) {
  switch (into.op.kind) {
    case OpKind::layer_norm:
      into.op.params = NormParams{};
      input(into, {n, row}), input(into, {row}), input(into, {row});
      return output(into, {n, row}), output(into, {n}), output(into, {n});
    case OpKind::layer_norm_backward:
      into.op.params = NormParams{};
      input(into, {n, row}), input(into, {n, row}), input(into, {row});
      input(into, {n}), input(into, {n});
      return output(into, {n, row}), output(into, {row}), output(into, {row});
    case OpKind::bias_add:
      input(into, {n, row}), input(into, {row});
      return output(into, {n, row});
    case OpKind::bias_gradient:
      input(into, {n, row});
      return output(into, {row});
    case OpKind::logits_max:
      into.op.params = VocabularyParams{row, 1, 1};
      input(into, {n, row});
      return output(into, {n});
    case OpKind::logits_sum_exp:
      into.op.params = VocabularyParams{row, 1, 1};
      input(into, {n, row}), input(into, {n}), input(into, {n}, DType::i32);
      return output(into, {n, 2});
    case OpKind::cross_entropy_backward:
      into.op.params = VocabularyParams{row, 1, 1.0 / double(n)};
      input(into, {n, row}), input(into, {n}, DType::i32), input(into, {n});
      return output(into, {n, row});
    default:
      INVARIANT(false, "not an op over rows");
  }
}

void add_attention_ops(BenchCase& into, std::int64_t n, std::int64_t row) {
  const std::int64_t s = std::min(n, kSequence), heads = kHidden / kHeadWidth;
  const Shape split = {n / s, heads, s, kHeadWidth};
  const Shape joined = {n, kHidden}, packed = {n, 3, heads, kHeadWidth};
  switch (into.op.kind) {
    case OpKind::split_heads:
      input(into, packed);
      output(into, split), output(into, split), output(into, split);
      break;
    case OpKind::split_heads_backward:
      input(into, split), input(into, split), input(into, split);
      output(into, packed);
      break;
    case OpKind::merge_heads:
      input(into, split), output(into, joined);
      break;
    case OpKind::merge_heads_backward:
      input(into, joined), output(into, split);
      break;
    case OpKind::softmax:
      into.op.params = AttentionParams{row};
      input(into, {n, 1, row, row});
      return output(into, {n, 1, row, row});
    case OpKind::softmax_backward:
      into.op.params = AttentionParams{row};
      input(into, {n, 1, row, row}), input(into, {n, 1, row, row});
      return output(into, {n, 1, row, row});
    default:
      INVARIANT(false, "not an op of attention");
  }
  into.op.params = AttentionParams{s};
}

/// Updates beside AdamW, and what the update runs where it is not fused. False for other kinds.
bool add_update_ops(BenchCase& into, std::int64_t n) {
  const auto written = [&](std::size_t i) { into.op.outputs.push_back(into.op.inputs[i]); };
  switch (into.op.kind) {
    case OpKind::sgd:
      into.op.params = SgdParams{1e-3, 0.9, 0.1};
      state(into, {n}), input(into, {n}), state(into, {n}), scalars(into);
      return true;
    case OpKind::lamb_norms:
      into.op.params = LambParams{1e-3, 0.9, 0.95, 1e-8, 0.1};
      input(into, {n}), input(into, {n}), state(into, {n}), state(into, {n}), scalars(into);
      output(into, {2});
      return true;
    case OpKind::lamb:
      into.op.params = LambParams{1e-3, 0.9, 0.95, 1e-8, 0.1};
      state(into, {n}), input(into, {n}), input(into, {n}), input(into, {2}), scalars(into);
      return true;
    case OpKind::square:
    case OpKind::reduce_sum:
      into.op.params = FlatParams{};
      input(into, {n}), output(into, {into.op.kind == OpKind::square ? n : 1});
      return true;
    case OpKind::scale:
      into.op.params = FlatParams{};
      input(into, {n}), input(into, {1}), output(into, {n});
      return true;
    case OpKind::coalesce:
      into.op.params = FlatParams{};
      state(into, {n});
      return true;
    case OpKind::square_root:
      input(into, {n}), output(into, {n});
      return true;
    case OpKind::maximum:
    case OpKind::divide:
      input(into, {n}), input(into, {n}), output(into, {n});
      return true;
    case OpKind::check_finite:
      into.op.params = FlatParams{};
      input(into, {n}), scalars(into), written(0), output(into, {1}, DType::i32);
      return true;
    case OpKind::update_loss_scale:
      input(into, {1}, DType::i32), scalars(into), written(1);
      return true;
    default:
      return false;
  }
}

void add_flat_ops(BenchCase& into, std::int64_t n) {
  if (add_update_ops(into, n)) return;
  switch (into.op.kind) {
    case OpKind::gelu:
    case OpKind::squared_relu:
      return input(into, {n}), output(into, {n});
    case OpKind::own_part:
      input(into, {2 * n, 1}), output(into, {n, 1});
      into.tensors.back().split = Split{0, Axis::mp, 2};
      return;
    case OpKind::gelu_backward:
    case OpKind::squared_relu_backward:
    case OpKind::add:
      return input(into, {n}), input(into, {n}), output(into, {n});
    case OpKind::token_loss:
      into.op.params = VocabularyParams{kVocabulary, 1, 1.0 / double(n)};
      input(into, {n}), input(into, {n, 2}), scalars(into);
      output(into, {n});
      return into.op.outputs.push_back(into.op.inputs.back());
    case OpKind::begin_step:
      into.op.params = StepParams{};
      scalars(into);
      return into.op.outputs.push_back(into.op.inputs.back());
    case OpKind::fill:
      into.op.params = FillParams{0};
      return output(into, {n});
    case OpKind::squared_norm:
      into.op.params = FlatParams{1};
      return input(into, {n}), output(into, {1});
    case OpKind::clip_factor:
      into.op.params = ClipParams{1};
      input(into, {1}), scalars(into);
      return into.op.outputs.push_back(into.op.inputs.back());
    case OpKind::adamw: {
      into.op.params = AdamParams{1e-3, 0.9, 0.95, 1e-8, 0.1};
      state(into, {n}), input(into, {n}), state(into, {n}), state(into, {n});
      return scalars(into);
    }
    default:
      INVARIANT(add_family_operands(into, n, into.row),
                std::string(to_text(into.op.kind)) + " is not a memory-bound op");
  }
}

/// One segment and one bucket over an arena of n elements.
void add_arena(Program& program, std::int64_t n) {
  Segment segment;
  segment.parameter = "all";
  segment.shape = {n};
  segment.elements = n;
  segment.decay = true;
  program.segments = {segment};
  program.buckets = {{0, n}};
}

/// Which inputs of a memory-bound op are fresh: see BenchCase::fresh.
std::vector<std::size_t> fresh_inputs(OpKind kind) {
  switch (kind) {
    case OpKind::fill:
    case OpKind::load_tokens:
    case OpKind::load_targets:
    case OpKind::load_masked_tokens:
    case OpKind::load_masked_positions:
    case OpKind::load_masked_targets:
    case OpKind::squared_norm:  // gradients of the whole step
    case OpKind::adamw:
    case OpKind::sgd:
    case OpKind::lamb_norms:
    case OpKind::lamb:
    case OpKind::square:
    case OpKind::reduce_sum:
    case OpKind::scale:
    case OpKind::coalesce:
    case OpKind::check_finite:
      return {};
    case OpKind::split_heads_backward:
    case OpKind::logits_sum_exp:
    case OpKind::token_loss:
    case OpKind::cross_entropy_backward:
      return {0, 1, 2};
    case OpKind::softmax_backward:  // the gradient of v has just read the probabilities
      return {0, 1};
    default:
      return {0};
  }
}

/// Whether an op's outputs are temporaries: see BenchCase::in_frame.
bool works_in_frame(OpKind kind) {
  switch (kind) {
    case OpKind::layer_norm_backward:
    case OpKind::rms_norm_backward:
    case OpKind::gelu_backward:
    case OpKind::squared_relu_backward:
    case OpKind::swiglu_backward:
    case OpKind::rotary_backward:
    case OpKind::gather_rows_backward:
    case OpKind::split_heads_backward:
    case OpKind::merge_heads_backward:
    case OpKind::softmax_backward:
    case OpKind::cross_entropy_backward:
      return true;
    default:
      return false;
  }
}

/// Gives the values of an op another type.
BenchCase in_type(BenchCase made, DType dtype) {
  std::vector<bool> stays(made.tensors.size());
  for (std::size_t i = 0; i < made.op.inputs.size(); ++i) {
    if (input_is_f32(made.op, i)) stays[made.op.inputs[i].index()] = true;
  }
  for (std::size_t i = 0; i < made.op.outputs.size(); ++i) {
    if (output_is_f32(made.op, i)) stays[made.op.outputs[i].index()] = true;
  }
  for (std::size_t i = 0; i < made.tensors.size(); ++i) {
    Tensor& tensor = made.tensors[i];
    if (tensor.dtype == DType::f32 && !stays[i]) tensor.dtype = dtype;
  }
  return made;
}

/// n: tokens, rows, matrices or elements, whatever the kind is made of.
BenchCase sized_case(OpKind kind, std::int64_t n, std::int64_t row) {
  BenchCase result;
  result.op.kind = kind;
  result.row = has_rows(kind) ? row : 0;
  result.fresh = fresh_inputs(kind);
  result.in_frame = works_in_frame(kind);
  add_arena(result.program, n);
  switch (kind) {
    case OpKind::load_tokens:
    case OpKind::load_targets:
    case OpKind::embedding:
    case OpKind::embedding_backward:
    case OpKind::position_add:
    case OpKind::position_add_backward:
      result.ids = kAlphabet;
      add_token_ops(result, n, row);
      break;
    case OpKind::layer_norm:
    case OpKind::layer_norm_backward:
    case OpKind::bias_add:
    case OpKind::bias_gradient:
    case OpKind::logits_max:
    case OpKind::logits_sum_exp:
    case OpKind::cross_entropy_backward:
      result.ids = row;
      add_row_ops(result, n, row);
      break;
    case OpKind::split_heads:
    case OpKind::split_heads_backward:
    case OpKind::merge_heads:
    case OpKind::merge_heads_backward:
    case OpKind::softmax:
    case OpKind::softmax_backward:
      add_attention_ops(result, n, row);
      break;
    default:
      add_flat_ops(result, n);
  }
  return result;
}

/// Has values of the type, and is neither the loss, which is computed in f32, nor the zeroing of
/// gradients, which are f32.
bool runs_on(DType dtype, OpKind kind) {
  switch (kind) {
    case OpKind::logits_max:
    case OpKind::logits_sum_exp:
    case OpKind::cross_entropy_backward:
    case OpKind::fill:
      return false;
    default:
      const BenchCase made = in_type(sized_case(kind, kSequence, kHeadWidth), dtype);
      return compute_dtype(made.op, made.tensors) == dtype;
  }
}

}  // namespace

std::vector<OpKind> memory_bound_kinds(DType dtype) {
  constexpr OpKind kOfOtherFrameworks[] = {
      OpKind::bias_gelu,         OpKind::bias_gelu_backward,
      OpKind::bias_residual_add, OpKind::cast,
      OpKind::masked_dropout,    OpKind::masked_dropout_backward,
      OpKind::bias_dropout_add,  OpKind::cast_parameters,
      OpKind::absolute_maximum,  OpKind::quantize,
      OpKind::transpose,         OpKind::split_parts,
      OpKind::join_parts,        OpKind::merge_attention};
  std::vector<OpKind> kinds;
  for (std::size_t i = 0; i < kOpKinds; ++i) {
    const OpKind kind{static_cast<std::uint8_t>(i)};
    if (std::find(std::begin(kOfOtherFrameworks), std::end(kOfOtherFrameworks), kind) !=
        std::end(kOfOtherFrameworks)) {
      continue;
    }
    if (row(kind).op_class != OpClass::memory_bound) continue;
    if (dtype == DType::f32 || runs_on(dtype, kind)) kinds.push_back(kind);
  }
  return kinds;
}

BenchCase memory_case(OpKind kind, Bytes moved, std::int64_t row, DType dtype) {
  // Bytes grow linearly with n: two cases give constant and slope. Sequences must come out whole.
  const BenchCase one = in_type(sized_case(kind, kSequence, row), dtype);
  const BenchCase two = in_type(sized_case(kind, 2 * kSequence, row), dtype);
  const std::int64_t at_one = bytes_moved(one.op, one.tensors).count();
  const std::int64_t slope = bytes_moved(two.op, two.tensors).count() - at_one;
  if (slope == 0) return one;  // begin_step, clip_factor
  const double wanted = double(kSequence) * (1 + double(moved.count() - at_one) / double(slope));
  auto n = std::max(std::int64_t{1}, std::int64_t(wanted + 0.5));
  if (n > kSequence && !has_rows(kind)) n -= n % kSequence;
  return in_type(sized_case(kind, n, row), dtype);
}

BenchCase matmul_case(const MatmulShape& shape, const MatmulPoint& form) {
  BenchCase result;
  result.op.kind = OpKind::matmul;
  MatmulParams params;
  params.batch_dims = shape.batch > 1 ? 1 : 0;
  params.transpose_a = form.transpose_a;
  params.transpose_b = form.transpose_b;
  params.accumulate = form.accumulate;
  // Products of attention are scaled, those of weights are not.
  if (shape.batch > 1) params.scale = 0.125;
  result.op.params = params;
  const auto matrix = [&](std::int64_t rows, std::int64_t columns, bool transposed) {
    Shape dims;
    if (shape.batch > 1) dims.push_back(shape.batch);
    dims.push_back(transposed ? columns : rows);
    dims.push_back(transposed ? rows : columns);
    return dims;
  };
  input(result, matrix(shape.m, shape.k, form.transpose_a));
  input(result, matrix(shape.k, shape.n, form.transpose_b));
  if (form.bias) input(result, {shape.n});
  output(result, matrix(shape.m, shape.n, false));
  // y = x w and dx = dy w^T: the activation is fresh. dw = x^T dy: x was saved, dy is fresh.
  result.fresh = {form.transpose_a ? std::size_t{1} : std::size_t{0}};
  return in_type(std::move(result), form.dtype);
}

}  // namespace plimsoll
