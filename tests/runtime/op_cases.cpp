// The op cases: transformer ops, loss ops, data and optimizer ops, at the sizes asked for.
#include "tests/runtime/op_cases.h"

#include <algorithm>
#include <array>
#include <limits>
#include <random>

#include "graph/op_table.h"
#include "graph/op_types.h"
#include "runtime/half.h"
#include "tests/runtime/op_reference.h"
#include "tests/runtime/optimizer_cases.h"

namespace plimsoll {

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Random ids with the first and last row of the vocabulary and of its halves among them.
Operand token_ids(std::string name, std::int64_t count, std::int64_t below, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::int64_t half = (below + 1) / 2;
  Operand operand{std::move(name), {count}, {}, DType::i32};
  for (std::int64_t border : {std::int64_t{0}, half - 1, half, below - 1}) {
    operand.values.push_back(double(border));
  }
  while (std::int64_t(operand.values.size()) < count) {
    operand.values.push_back(double(random() % std::uint64_t(below)));
  }
  return operand;
}

Operand scalars(double step, double loss, double clip) {
  const std::vector<double> values = {step, loss, 0, double(float(clip)), 1, 0, 0, 0};
  return {"scalars", {kScalars}, values, DType::f32, TensorRole::scalar};
}

using Cases = std::vector<OpCase>;

void add_matmul(Cases& cases, std::string name, MatmulParams params, Shape a, Shape b, Shape c,
                std::int64_t bias = 0) {
  std::vector<Operand> inputs = {normal("a", std::move(a), 1), normal("b", std::move(b), 2)};
  if (bias > 0) inputs.push_back(normal("bias", {bias}, 3));
  const Operand out = params.accumulate ? normal("c", c, 4) : blank("c", c);
  cases.push_back(make_case("matmul/" + std::move(name), OpKind::matmul, params, inputs, {out}));
}

// Forward: x W + bias. Backward: dx = dy W^T, dW += x^T dy.
void add_linear_cases(Cases& cases, const OpSizes& z) {
  const std::int64_t n = z.tokens(), h = z.hidden(), f = z.ffn;
  const Shape qkv_weight = {h, 3, z.heads, z.depth}, qkv = {n, 3, z.heads, z.depth};
  add_matmul(cases, "fc1", {}, {n, h}, {h, f}, {n, f}, f);
  add_matmul(cases, "fc2", {}, {n, f}, {f, h}, {n, h});
  add_matmul(cases, "qkv", {}, {n, h}, qkv_weight, qkv, 3 * h);
  add_matmul(cases, "fc1_input_gradient", {.transpose_b = true}, {n, f}, {h, f}, {n, h});
  add_matmul(cases, "qkv_input_gradient", {.transpose_b = true}, qkv, qkv_weight, {n, h});
  add_matmul(cases, "fc1_weight_gradient", {.transpose_a = true, .accumulate = true}, {n, h},
             {n, f}, {h, f});
  add_matmul(cases, "qkv_weight_gradient", {.transpose_a = true, .accumulate = true}, {n, h}, qkv,
             qkv_weight);
  add_matmul(cases, "logits_tied", {.transpose_b = true}, {n, h}, {z.vocabulary, h},
             {n, z.vocabulary});
  add_matmul(cases, "both_transposed", {.transpose_a = true, .transpose_b = true}, {h, n}, {f, h},
             {n, f});
  add_matmul(cases, "scale_bias", {.scale = 0.25}, {n, h}, {h, f}, {n, f}, f);
  add_matmul(cases, "scale_bias_accumulate", {.accumulate = true, .scale = 0.25}, {n, h}, {h, f},
             {n, f}, f);
}

void add_attention_cases(Cases& cases, const OpSizes& z) {
  const Shape qkv = {z.tokens(), 3, z.heads, z.depth}, merged = {z.tokens(), z.hidden()};
  const Shape heads = {z.batch, z.heads, z.sequence, z.depth};
  const Shape scores = {z.batch, z.heads, z.sequence, z.sequence};
  const AttentionParams params{z.sequence, 1};
  const double scale = 0.125;
  add_matmul(cases, "scores", {.batch_dims = 2, .transpose_b = true, .scale = scale}, heads, heads,
             scores);
  add_matmul(cases, "context", {.batch_dims = 2}, scores, heads, heads);
  add_matmul(cases, "key_gradient", {.batch_dims = 2, .transpose_a = true, .scale = scale}, scores,
             heads, heads);
  add_matmul(cases, "batched_accumulate", {.batch_dims = 2, .accumulate = true}, scores, heads,
             heads);
  cases.push_back(make_case("split_heads", OpKind::split_heads, params, {normal("qkv", qkv, 1)},
                            {blank("q", heads), blank("k", heads), blank("v", heads)}));
  cases.push_back(
      make_case("split_heads_backward", OpKind::split_heads_backward, params,
                {normal("dq", heads, 1), normal("dk", heads, 2), normal("dv", heads, 3)},
                {blank("dqkv", qkv)}));
  cases.push_back(make_case("merge_heads", OpKind::merge_heads, params,
                            {normal("context", heads, 1)}, {blank("y", merged)}));
  cases.push_back(make_case("merge_heads_backward", OpKind::merge_heads_backward, params,
                            {normal("dy", merged, 1)}, {blank("dcontext", heads)}));
  cases.push_back(make_case("softmax", OpKind::softmax, params, {normal("scores", scores, 1, 3)},
                            {blank("p", scores)}));
  cases.push_back(make_case("softmax_backward", OpKind::softmax_backward, params,
                            {normal("dp", scores, 2), result(cases.back(), 0)},
                            {blank("dscores", scores)}));
}

void add_elementwise_cases(Cases& cases, const OpSizes& z) {
  const Shape x = {z.tokens(), z.hidden()}, wide = {z.tokens(), z.ffn};
  const Shape row = {z.hidden()}, column = {z.tokens()}, qkv = {z.tokens(), 3, z.heads, z.depth};
  cases.push_back(make_case("layer_norm", OpKind::layer_norm, NormParams{},
                            {normal("x", x, 1, 2), normal("gamma", row, 2), normal("beta", row, 3)},
                            {blank("y", x), blank("mean", column), blank("rstd", column)}));
  const OpCase norm = cases.back();
  cases.push_back(make_case("layer_norm_backward", OpKind::layer_norm_backward, NormParams{},
                            {normal("dy", x, 4), normal("x", x, 1, 2), normal("gamma", row, 2),
                             result(norm, 1), result(norm, 2)},
                            {blank("dx", x), normal("dgamma", row, 5), normal("dbeta", row, 6)}));
  cases.push_back(make_case("bias_add", OpKind::bias_add, {},
                            {normal("x", wide, 1), normal("bias", {z.ffn}, 2)},
                            {blank("y", wide)}));
  cases.push_back(make_case("bias_gradient", OpKind::bias_gradient, {}, {normal("dy", wide, 1)},
                            {normal("dbias", {z.ffn}, 2)}));
  cases.push_back(make_case("bias_gradient/qkv", OpKind::bias_gradient, {}, {normal("dy", qkv, 1)},
                            {normal("dbias", {3, z.heads, z.depth}, 2)}));
  cases.push_back(
      make_case("gelu", OpKind::gelu, {}, {normal("x", wide, 1, 2)}, {blank("y", wide)}));
  cases.push_back(make_case("gelu_backward", OpKind::gelu_backward, {},
                            {normal("dy", wide, 1), normal("x", wide, 2, 2)}, {blank("dx", wide)}));
  cases.push_back(make_case("squared_relu", OpKind::squared_relu, {}, {normal("x", wide, 1, 2)},
                            {blank("y", wide)}));
  cases.push_back(make_case("squared_relu_backward", OpKind::squared_relu_backward, {},
                            {normal("dy", wide, 1), normal("x", wide, 2, 2)}, {blank("dx", wide)}));
  cases.push_back(
      make_case("add", OpKind::add, {}, {normal("a", x, 1), normal("b", x, 2)}, {blank("y", x)}));
  cases.push_back(make_case("own_part", OpKind::own_part, {},
                            {normal("x", {3 * z.batch, z.ffn}, 1)},
                            {blank("y", {z.batch, z.ffn})}));
  cases.back().tensors[1].split = Split{0, Axis::mp, 3};
  cases.back().at[std::size_t(Axis::mp)] = 1;
  cases.push_back(make_case("fill/zero", OpKind::fill, FillParams{0}, {}, {blank("x", wide)}));
  cases.push_back(
      make_case("fill/flag", OpKind::fill, FillParams{0}, {}, {{"flag", {1}, {1}, DType::i32}}));
  cases.push_back(make_case("fill/value", OpKind::fill, FillParams{-2.5}, {}, {blank("x", wide)}));
}

void add_cast_cases(Cases& cases, const OpSizes& z) {
  const Shape shape = {z.tokens(), z.hidden()};
  const std::array<DType, 3> types = {DType::f32, DType::bf16, DType::f16};
  for (DType from : types) {
    for (DType to : types) {
      if (from == to) continue;
      Operand x = normal("x", shape, 1);
      x.dtype = from;
      Operand y = blank("y", shape);
      y.dtype = to;
      const std::string name = "cast/" + std::string(to_text(from)) + "_to_";
      cases.push_back(make_case(name + std::string(to_text(to)), OpKind::cast, {}, {x}, {y}));
      std::vector<double>& before = cases.back().before[0];
      before = rounded(before, from);
    }
  }
}

void add_embedding_cases(Cases& cases, const OpSizes& z) {
  const std::int64_t n = z.tokens(), h = z.hidden();
  const Operand tokens = token_ids("tokens", n, z.vocabulary, 7);
  for (std::int64_t degree : {1, 2}) {
    for (std::int64_t part = 0; part < degree; ++part) {
      const std::string suffix = degree == 1 ? "" : "/half_" + std::to_string(part);
      const VocabularyParams params{z.vocabulary, degree, 1};
      const Shape table = {(z.vocabulary + degree - 1) / degree, h};
      cases.push_back(make_case("embedding" + suffix, OpKind::embedding, params,
                                {tokens, normal("table", table, 1)}, {blank("x", {n, h})}));
      cases.back().at[std::size_t(Axis::mp)] = part;
      cases.push_back(make_case("embedding_backward" + suffix, OpKind::embedding_backward, params,
                                {normal("dx", {n, h}, 1), tokens}, {normal("dtable", table, 2)}));
      cases.back().at[std::size_t(Axis::mp)] = part;
    }
  }
  cases.push_back(make_case("position_add", OpKind::position_add, {},
                            {normal("x", {n, h}, 1), normal("table", {z.sequence, h}, 2)},
                            {blank("y", {n, h})}));
  cases.push_back(make_case("position_add_backward", OpKind::position_add_backward, {},
                            {normal("dy", {n, h}, 1)}, {normal("dtable", {z.sequence, h}, 2)}));
}

/// The four loss ops on one rank's columns; each feeds on the reference of the one before. With
/// more ranks the statistics are those of the rank alone, which the ops do not mind.
void add_loss_chain(Cases& cases, const OpSizes& z, const std::string& suffix,
                    const VocabularyParams& params, std::int64_t columns, std::int64_t part) {
  const std::int64_t n = z.tokens();
  const Operand logits = normal("logits", {n, columns}, 11, 3);
  const Operand targets = token_ids("targets", n, z.vocabulary, 12);
  const auto place = [&](OpCase c) {
    c.at[std::size_t(Axis::mp)] = part;
    return c;
  };
  const OpCase max = place(
      make_case("logits_max" + suffix, OpKind::logits_max, params, {logits}, {blank("max", {n})}));
  const OpCase sum = place(make_case("logits_sum_exp" + suffix, OpKind::logits_sum_exp, params,
                                     {logits, result(max, 0), targets}, {blank("stats", {n, 2})}));
  const Operand state = scalars(3, 0.5, 1);
  const OpCase loss =
      make_case("token_loss" + suffix, OpKind::token_loss, params,
                {result(max, 0), result(sum, 0), state}, {blank("log_sum_exp", {n}), state});
  cases.insert(cases.end(), {max, sum, loss});
  cases.push_back(
      place(make_case("cross_entropy_backward" + suffix, OpKind::cross_entropy_backward, params,
                      {logits, targets, result(loss, 0)}, {blank("dlogits", {n, columns})})));
  cases.push_back(
      place(make_case("cross_entropy_backward/scaled" + suffix, OpKind::cross_entropy_backward,
                      params, {logits, targets, result(loss, 0), {"loss_scale", {1}, {4096}}},
                      {blank("dlogits", {n, columns})})));
}

void add_loss_cases(Cases& cases, const OpSizes& z) {
  const double weight = 1.0 / double(4 * z.tokens());
  add_loss_chain(cases, z, "", {z.vocabulary, 1, weight}, z.vocabulary, 0);
  add_loss_chain(cases, z, "/padded", {z.vocabulary, 1, weight}, z.vocabulary + 3, 0);
  const std::int64_t half = (z.vocabulary + 1) / 2;
  add_loss_chain(cases, z, "/half_0", {z.vocabulary, 2, weight}, half, 0);
  add_loss_chain(cases, z, "/half_1", {z.vocabulary, 2, weight}, half, 1);
  // A shard of nothing but padding: its maximum is minus infinity, its sum and gradient 0.
  const VocabularyParams params{z.vocabulary, 2, weight};
  OpCase padding =
      make_case("logits_sum_exp/only_padding", OpKind::logits_sum_exp, params,
                {normal("logits", {z.tokens(), z.vocabulary}, 1), normal("max", {z.tokens()}, 2),
                 token_ids("targets", z.tokens(), z.vocabulary, 3)},
                {blank("stats", {z.tokens(), 2})});
  padding.at[std::size_t(Axis::mp)] = 1;
  cases.push_back(std::move(padding));
}

void add_data_cases(Cases& cases, const OpSizes& z) {
  for (OpKind kind : {OpKind::load_tokens, OpKind::load_targets}) {
    OpCase c = make_case(std::string(to_text(kind)), kind, DataParams{z.sequence}, {},
                         {{"ids", {z.tokens()}, {}, DType::i32}});
    c.program.grid.degree[std::size_t(Axis::dp)] = 2;
    c.program.grid.degree[std::size_t(Axis::sharding)] = 2;
    c.program.micro_batch = z.batch;
    c.program.micro_batches = 3;
    c.at[std::size_t(Axis::dp)] = 1;
    c.at[std::size_t(Axis::sharding)] = 1;
    c.position = {7, 2};
    c.global_batch = z.batch * 3 * 4;
    for (std::int64_t i = 0; i < 7 * z.sequence; ++i)
      c.text.push_back(std::byte((i * 37 + i / 11) % 251));
    cases.push_back(std::move(c));
  }
}

}  // namespace

/// The values as a tensor of the type holds them.
std::vector<double> rounded(const std::vector<double>& values, DType type) {
  std::vector<float> floats(values.begin(), values.end());
  const auto count = std::int64_t(floats.size());
  std::vector<std::byte> stored(floats.size() * sizeof(float));
  from_f32(type, floats.data(), stored.data(), count);
  to_f32(type, stored.data(), floats.data(), count);
  return {floats.begin(), floats.end()};
}

Operand normal(std::string name, Shape shape, std::uint64_t seed, double deviation) {
  const std::int64_t count = elements(shape);
  return {std::move(name), std::move(shape), normal_values(count, seed, deviation)};
}

Operand blank(std::string name, Shape shape) { return {std::move(name), std::move(shape), {}}; }

Operand result(const OpCase& c, std::size_t i) {
  Values values = c.before;
  run_reference(c, values);
  Operand operand{c.output(i).name, c.output(i).shape, values[c.op.outputs[i].index()]};
  for (double& value : operand.values) value = double(float(value));
  return operand;
}

std::vector<double> normal_values(std::int64_t count, std::uint64_t seed, double deviation) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> draw(0, deviation);
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) value = double(float(draw(random)));
  return values;
}

OpCase make_case(std::string name, OpKind kind, OpParams params, const std::vector<Operand>& inputs,
                 const std::vector<Operand>& outputs) {
  OpCase c;
  c.name = std::move(name);
  c.op.kind = kind;
  c.op.params = std::move(params);
  const auto id_of = [&](const Operand& operand) {
    for (std::size_t i = 0; i < c.tensors.size(); ++i) {
      if (c.tensors[i].name == operand.name) return TensorId(i);
    }
    Tensor tensor;
    tensor.name = operand.name;
    tensor.dtype = operand.dtype;
    tensor.shape = operand.shape;
    tensor.role = operand.role;
    tensor.arena = operand.arena;
    c.tensors.push_back(tensor);
    c.before.push_back(operand.values);
    if (operand.values.empty()) {
      c.before.back().assign(std::size_t(elements(operand.shape)),
                             operand.dtype == DType::i32 ? -1 : kNaN);
    }
    return TensorId(c.tensors.size() - 1);
  };
  for (const Operand& operand : inputs) c.op.inputs.push_back(id_of(operand));
  for (const Operand& operand : outputs) c.op.outputs.push_back(id_of(operand));
  return c;
}

std::optional<OpCase> in_type(const OpCase& c, DType type, bool gradients) {
  OpCase result = c;
  result.name += "/" + std::string(to_text(type)) + (gradients ? "/gradients" : "");
  std::vector<bool> stays(c.tensors.size());
  bool any = false;
  for (std::size_t i = 0; i < c.op.inputs.size(); ++i) {
    if (input_is_f32(c.op, i)) stays[c.op.inputs[i].index()] = true;
  }
  for (std::size_t i = 0; i < c.op.outputs.size(); ++i) {
    const bool gradient = accumulates(c.op, i);
    if (gradients && gradient) any = true;
    if (output_is_f32(c.op, i) && !(gradients && gradient)) stays[c.op.outputs[i].index()] = true;
  }
  if (gradients && !any) return std::nullopt;
  bool changed = false;
  for (std::size_t i = 0; i < c.tensors.size(); ++i) {
    if (stays[i] || c.tensors[i].dtype != DType::f32) continue;
    result.tensors[i].dtype = type;
    changed = true;
    result.before[i] = rounded(c.before[i], type);
  }
  return changed ? std::optional(result) : std::nullopt;
}

std::vector<OpCase> op_cases(const OpSizes& sizes) {
  Cases cases;
  add_data_cases(cases, sizes);
  add_embedding_cases(cases, sizes);
  add_elementwise_cases(cases, sizes);
  add_cast_cases(cases, sizes);
  add_linear_cases(cases, sizes);
  add_attention_cases(cases, sizes);
  add_loss_cases(cases, sizes);
  for (OpCase& c : optimizer_cases(sizes)) cases.push_back(std::move(c));
  add_family_cases(cases, sizes);
  return cases;
}

}  // namespace plimsoll
