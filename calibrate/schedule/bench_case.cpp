// Operands of every kind of op are sized by bytes, from the signatures of the op table.
#include "calibrate/schedule/bench_case.h"

#include <algorithm>
#include <map>
#include <string>
#include <type_traits>

#include "base/error.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kVocabulary = 256;  // of embeddings: bytes
constexpr std::int64_t kAlphabet = 64;     // of them, the ones that a text uses
constexpr std::int64_t kSequence = 128;
constexpr std::int64_t kHidden = 256;  // of ops without rows
constexpr std::int64_t kHeadWidth = 64;
constexpr std::int64_t kPredicted = 19;  // of 128 positions, 15 %

/// The lengths that the symbols of signatures stand for: n tokens, rows, matrices or elements, in
/// rows of length r where the op has rows.
std::map<char, std::int64_t> lengths_of(std::int64_t n, std::int64_t row) {
  const std::int64_t s = std::min(n, kSequence);
  return {{'n', n},
          {'r', row},
          {'s', s},
          {'b', n / s},
          {'h', kHidden},
          {'a', kHidden / kHeadWidth},
          {'d', kHeadWidth},
          {'v', kVocabulary},
          {'t', std::min<std::int64_t>(2, s)},
          {'p', std::min(kPredicted, s)}};
}

/// One dimension of a shape: a product of numbers and symbols, as in 2n or b*p; behind it /k where
/// the tensor is one of k tensor-parallel parts.
struct Extent {
  std::int64_t length = 1, parts = 1;
};

std::int64_t product_of(std::string_view text, const std::map<char, std::int64_t>& lengths) {
  std::int64_t product = 1, number = 0;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    number = digit ? 10 * number + (c - '0') : number;
    if (digit) continue;
    product *= std::max<std::int64_t>(number, 1);
    number = 0;
    if (c == '*') continue;
    INVARIANT(lengths.contains(c), "no length for " + std::string(text));
    product *= lengths.at(c);
  }
  return product * std::max<std::int64_t>(number, 1);
}

Extent extent_of(std::string_view text, const std::map<char, std::int64_t>& lengths) {
  const std::size_t end = std::min(text.find('/'), text.size());
  const std::string_view parts = text.substr(std::min(end + 1, text.size()));
  const Extent whole{product_of(text.substr(0, end), lengths), product_of(parts, lengths)};
  return {whole.length / whole.parts, whole.parts};
}

TensorId add_operand(BenchCase& into, const SignatureOperand& operand,
                     const std::map<char, std::int64_t>& lengths) {
  const bool scalars = operand.name == "scalars";
  const bool ids = operand.type == OperandType::i32;
  const TensorId id = add_tensor(into, {}, ids ? DType::i32 : DType::f32);
  Tensor& tensor = into.tensors.back();
  if (scalars) tensor.role = TensorRole::scalar;
  if (scalars) tensor.shape = {kScalars};
  for (std::string_view rest = operand.shape; !rest.empty();) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    const Extent extent = extent_of(rest.substr(0, end), lengths);
    if (extent.parts > 1)
      tensor.split = Split{std::int64_t(tensor.shape.size()), Axis::mp, extent.parts};
    tensor.shape.push_back(extent.length);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  // A text uses a part of the vocabulary.
  if (!operand.below.empty())
    into.ids = operand.below == "v" ? kAlphabet : extent_of(operand.below, lengths).length;
  return id;
}

void add_operands(BenchCase& into, const std::map<char, std::int64_t>& lengths) {
  const OpRow& own = row(into.op.kind);
  const Signature signature =
      own.bench.operands.empty() ? own.operands : Signature::read(own.bench.operands);
  const auto is_there = [&](const SignatureOperand& operand) {
    return own.bench.with_optional || !operand.optional;
  };
  for (std::size_t i = 0; i < signature.inputs.count; ++i) {
    if (is_there(signature.inputs[i]))
      into.op.inputs.push_back(add_operand(into, signature.inputs[i], lengths));
  }
  for (std::size_t i = 0; i < signature.outputs.count; ++i) {
    const SignatureOperand& operand = signature.outputs[i];
    if (!is_there(operand)) continue;
    const auto same = signature.inputs.find(operand.name);
    into.op.outputs.push_back(same ? into.op.inputs[*same] : add_operand(into, operand, lengths));
  }
}

/// Parameters that training has, too.
OpParams measured_params(OpKind kind, const std::map<char, std::int64_t>& lengths) {
  const OpRows rows = row(kind).rows;
  const std::int64_t sequence = lengths.at('s'), length = lengths.at('r');
  OpParams result = default_params(kind);
  std::visit(
      [&](auto& params) {
        using Params = std::decay_t<decltype(params)>;
        if constexpr (std::is_same_v<Params, AttentionParams>)
          params.sequence = rows == OpRows::scores ? length : sequence;
        if constexpr (std::is_same_v<Params, DataParams>)
          params = {sequence, lengths.at('p'), kVocabulary, 1};
        if constexpr (std::is_same_v<Params, VocabularyParams>)
          params = {rows == OpRows::logits ? length : kVocabulary, 1,
                    1.0 / double(lengths.at('n'))};
        if constexpr (std::is_same_v<Params, DropoutParams>) params = {0.1, 1, 0};
        if constexpr (std::is_same_v<Params, RotaryParams>)
          params = {.sequence = sequence, .rotated = 2};
        if constexpr (std::is_same_v<Params, ClipParams>) params.limit = 1;
        if constexpr (std::is_same_v<Params, AdamParams>) params = {1e-3, 0.9, 0.95, 1e-8, 0.1};
        if constexpr (std::is_same_v<Params, SgdParams>) params = {1e-3, 0.9, 0.1};
        if constexpr (std::is_same_v<Params, LambParams>) params = {1e-3, 0.9, 0.95, 1e-8, 0.1};
      },
      result);
  return result;
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

/// Returns a case with `n` tokens, rows, matrices or elements, depending on the kind.
BenchCase sized_case(OpKind kind, std::int64_t n, std::int64_t row_length) {
  const OpRow& own = row(kind);
  const auto lengths = lengths_of(n, row_length);
  BenchCase result;
  result.op.kind = kind;
  result.op.params = measured_params(kind, lengths);
  result.row = own.rows == OpRows::none ? 0 : row_length;
  result.in_frame = own.bench.in_frame;
  add_operands(result, lengths);
  for (std::size_t i = 0; i < result.op.inputs.size(); ++i) {
    if ((own.bench.fresh >> i & 1u) != 0) result.fresh.push_back(i);
  }
  add_arena(result.program, n);
  const bool loads = result.op.inputs.empty() && own.params == kParams<DataParams>;
  if (loads) result.program.micro_batch = lengths.at('b');
  return result;
}

bool runs_on(DType dtype, OpKind kind) {
  // Unless a job is in 16 bits alone, the norm and the update read f32 gradients and masters.
  if (row(kind).bench.f32_only || row(kind).writes_parameters || kind == OpKind::squared_norm)
    return false;
  const BenchCase made = in_type(sized_case(kind, kSequence, kHeadWidth), dtype);
  return compute_dtype(made.op, made.tensors) == dtype;
}

}  // namespace

std::vector<OpKind> memory_bound_kinds(DType dtype) {
  std::vector<OpKind> kinds;
  for (std::size_t i = 0; i < kOpKinds; ++i) {
    const OpRow& own = row(OpKind(i));
    const bool executed = own.op_class == OpClass::memory_bound && !own.simulated_only;
    if (!executed || !own.bench.measured) continue;
    if (dtype == DType::f32 || runs_on(dtype, own.kind)) kinds.push_back(own.kind);
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
  const std::int64_t step = n > kSequence && !has_rows(kind) ? kSequence : 1;
  n -= n % step;
  // Bytes of few rows do not grow evenly. The nearest size is found, so that a case that is asked
  // for by its own bytes is the same case.
  const auto error = [&](std::int64_t of) {
    const BenchCase built = in_type(sized_case(kind, of, row), dtype);
    return std::abs((bytes_moved(built.op, built.tensors) - moved).count());
  };
  while (n > step && error(n - step) < error(n)) n -= step;
  while (error(n + step) < error(n)) n += step;
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
  add_input(result, matrix(shape.m, shape.k, form.transpose_a));
  add_input(result, matrix(shape.k, shape.n, form.transpose_b));
  if (form.bias) add_input(result, {shape.n});
  add_output(result, matrix(shape.m, shape.n, false));
  // y = x w and dx = dy w^T: the activation is fresh. dw = x^T dy: x was saved, dy is fresh.
  result.fresh = {form.transpose_a ? std::size_t{1} : std::size_t{0}};
  return in_type(std::move(result), form.dtype);
}

}  // namespace plimsoll
