// Cases and references of the ops that work element by element, or add rows.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "models/job/philox.h"
#include "runtime/packed_weights.h"
#include "tests/runtime/op_families.h"

namespace plimsoll {

namespace {

using Cases = std::vector<OpCase>;

void add_elementwise_cases(Cases& cases, const OpSizes& z) {
  const Shape x = {z.tokens(), z.hidden()}, wide = {z.tokens(), z.ffn};
  const Shape qkv = {z.tokens(), 3, z.heads, z.depth};
  cases.push_back(make_case("bias_add", OpKind::bias_add, {},
                            {normal("x", wide, 1), normal("bias", {z.ffn}, 2)},
                            {blank("y", wide)}));
  cases.push_back(make_case("bias_gradient", OpKind::bias_gradient, {}, {normal("dy", wide, 1)},
                            {normal("dbias", {z.ffn}, 2)}));
  cases.push_back(make_case("bias_gradient/qkv", OpKind::bias_gradient, {}, {normal("dy", qkv, 1)},
                            {normal("dbias", {3, z.heads, z.depth}, 2)}));
  for (const bool exact : {false, true}) {
    const ActivationParams gelu{.exact = exact};
    const std::string suffix = exact ? "/exact" : "";
    cases.push_back(make_case("gelu" + suffix, OpKind::gelu, gelu, {normal("x", wide, 1, 2)},
                              {blank("y", wide)}));
    cases.push_back(make_case("gelu_backward" + suffix, OpKind::gelu_backward, gelu,
                              {normal("dy", wide, 1), normal("x", wide, 2, 2)},
                              {blank("dx", wide)}));
  }
  cases.push_back(make_case("multiply", OpKind::multiply, FactorParams{0.375},
                            {normal("x", wide, 1, 2)}, {blank("y", wide)}));
  for (const OpKind copy : {OpKind::copy_to_host, OpKind::copy_to_device}) {
    cases.push_back(make_case(std::string(to_text(copy)), copy, {}, {normal("x", wide, 1)},
                              {blank("y", wide)}));
  }
  for (const DType type : {DType::bf16, DType::f16}) {
    Operand x = normal("x", wide, 1), y = blank("y", wide);
    x.on_host = true;
    y.dtype = type;
    cases.push_back(make_case("copy_to_device/f32_to_" + std::string(to_text(type)),
                              OpKind::copy_to_device, {}, {x}, {y}));
  }
  cases.push_back(make_case("gate_values", OpKind::gate_values, {},
                            {normal("x", wide, 1, 2), normal("gate", wide, 2, 2)},
                            {blank("y", wide)}));
  cases.push_back(
      make_case("gate_values_backward", OpKind::gate_values_backward, {},
                {normal("dy", wide, 1), normal("x", wide, 2, 2), normal("gate", wide, 3, 2)},
                {blank("dx", wide), blank("dgate", wide)}));
  cases.push_back(make_case("squared_relu", OpKind::squared_relu, {}, {normal("x", wide, 1, 2)},
                            {blank("y", wide)}));
  cases.push_back(make_case("squared_relu_backward", OpKind::squared_relu_backward, {},
                            {normal("dy", wide, 1), normal("x", wide, 2, 2)}, {blank("dx", wide)}));
  const CapParams cap{1.5};
  cases.push_back(
      make_case("soft_cap", OpKind::soft_cap, cap, {normal("x", wide, 1, 2)}, {blank("y", wide)}));
  cases.push_back(make_case("soft_cap_backward", OpKind::soft_cap_backward, cap,
                            {normal("dy", wide, 2), result(cases.back(), 0)}, {blank("dx", wide)}));
  cases.push_back(
      make_case("add", OpKind::add, {}, {normal("a", x, 1), normal("b", x, 2)}, {blank("y", x)}));
  // Two rows of a and one of b for each token; and both in one row.
  const Shape rows = {2 * z.tokens(), z.hidden()};
  for (const Shape& whole :
       {Shape{3 * z.tokens(), z.hidden()}, Shape{z.tokens(), 3 * z.hidden()}}) {
    const std::string suffix = whole[0] == z.tokens() ? "/columns" : "/rows";
    cases.push_back(make_case("join_tokens" + suffix, OpKind::join_tokens, {},
                              {normal("a", rows, 1), normal("b", x, 2)}, {blank("y", whole)}));
    cases.push_back(make_case("part_tokens" + suffix, OpKind::part_tokens, {},
                              {normal("y", whole, 1)}, {blank("a", rows), blank("b", x)}));
  }
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

void add_gated(Cases& cases, const OpSizes& z) {
  const Shape gates = {z.tokens(), 2, z.ffn}, y = {z.tokens(), z.ffn};
  struct Form {
    const char* suffix;
    OpKind forward, backward;
    ActivationParams params = {};
  };
  for (const auto& [suffix, forward, backward, params] :
       {Form{"", OpKind::swiglu, OpKind::swiglu_backward},
        Form{"/clamped",
             OpKind::swiglu,
             OpKind::swiglu_backward,
             {.limit = 1.5, .sharpness = 1.7, .offset = 1}},
        Form{"", OpKind::geglu, OpKind::geglu_backward},
        Form{"/exact", OpKind::geglu, OpKind::geglu_backward, {.exact = true}}}) {
    cases.push_back(make_case(std::string(to_text(forward)) + suffix, forward, params,
                              {normal("x", gates, 1, 3)}, {blank("y", y)}));
    cases.push_back(make_case(std::string(to_text(backward)) + suffix, backward, params,
                              {normal("dy", y, 1), normal("x", gates, 2, 3)},
                              {blank("dx", gates)}));
    const Operand weights = normal("weights", {z.tokens()}, 4);
    cases.push_back(make_case(std::string(to_text(forward)) + suffix + "/weighted", forward, params,
                              {normal("x", gates, 1, 3), weights}, {blank("y", y)}));
    cases.push_back(make_case(std::string(to_text(backward)) + suffix + "/weighted", backward,
                              params, {normal("dy", y, 1), normal("x", gates, 2, 3), weights},
                              {blank("dx", gates), blank("dweights", {z.tokens()})}));
  }
}

void add_dropout(Cases& cases, const OpSizes& z) {
  const Shape x = {z.tokens(), z.hidden()};
  const Shape scores = {z.batch, z.heads, z.sequence, z.sequence};
  const DropoutParams params{0.3, 5, 2};
  const auto add = [&](const std::string& name, const Shape& shape, std::optional<Split> split) {
    OpCase c = make_case("dropout/" + name, OpKind::dropout, params, {normal("x", shape, 1)},
                         {blank("y", shape)});
    place_in_batch(c, z);
    for (Tensor& tensor : c.tensors) tensor.split = split;
    if (split) c.at[std::size_t(split->axis)] = split->degree - 1;
    cases.push_back(std::move(c));
  };
  add("activation", x, {});
  add("rows_split", x, Split{0, Axis::mp, 2});
  add("probabilities", scores, {});
  add("heads_split", scores, Split{1, Axis::mp, 3});
}

double gelu(double x, const ActivationParams& params) {
  if (params.exact) return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

double gelu_slope(double x, const ActivationParams& params) {
  if (params.exact)
    return 0.5 * std::erfc(-x / std::sqrt(2.0)) + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
  const double inner = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  const double inner_slope = std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
  return 0.5 * (1 + std::tanh(inner)) + 0.5 * x * inner_slope / std::pow(std::cosh(inner), 2);
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double silu(double x, const ActivationParams& params) {
  if (params.limit > 0) x = std::min(x, params.limit);
  return x * sigmoid(params.sharpness * x);
}

double silu_slope(double x, const ActivationParams& params) {
  if (params.limit > 0 && x > params.limit) return 0;
  const double s = sigmoid(params.sharpness * x);
  return s + params.sharpness * x * s * (1 - s);
}

/// The factor of a gate, and its slope.
double up_of(double up, const ActivationParams& params) {
  if (params.limit > 0) up = std::clamp(up, -params.limit, params.limit);
  return up + params.offset;
}
double up_slope(double up, const ActivationParams& params) {
  return params.limit > 0 && std::abs(up) > params.limit ? 0 : 1;
}

using Activate = double (*)(double, const ActivationParams&);

/// y = w f(gate) up, where w is 1 without weights.
template <Activate kFunction>
void gated(const Operands& o) {
  const std::size_t f = o.out_dim(0, 1);
  const bool weighted = o.c.op.inputs.size() > 1;
  const auto& params = o.params<ActivationParams>();
  for (std::size_t i = 0; i < o.out(0).size(); ++i) {
    const std::size_t at = i / f * 2 * f + i % f;
    const double weight = weighted ? o.in(1)[i / f] : 1;
    o.out(0)[i] = weight * kFunction(o.in(0)[at], params) * up_of(o.in(0)[at + f], params);
  }
}

template <Activate kFunction, Activate kSlope>
void gated_backward(const Operands& o) {
  const std::size_t f = o.in_dim(0, 1);
  const bool weighted = o.c.op.inputs.size() > 2;
  const auto& params = o.params<ActivationParams>();
  if (weighted) std::fill(o.out(1).begin(), o.out(1).end(), 0.0);
  for (std::size_t i = 0; i < o.in(0).size(); ++i) {
    const std::size_t at = i / f * 2 * f + i % f;
    const double gate = o.in(1)[at], up = o.in(1)[at + f];
    const double weight = weighted ? o.in(2)[i / f] : 1;
    const double value = kFunction(gate, params), factor = up_of(up, params);
    o.out(0)[at] = weight * o.in(0)[i] * factor * kSlope(gate, params);
    o.out(0)[at + f] = weight * o.in(0)[i] * value * up_slope(up, params);
    if (weighted) o.out(1)[i / f] += o.in(0)[i] * value * factor;
  }
}

/// One word per element of the whole tensor, which this part is cut out of dimension by dimension.
void dropout(const Operands& o) {
  const auto& params = o.params<DropoutParams>();
  const Tensor& tensor = o.c.input(0);
  Shape whole = tensor.shape;
  Shape first(whole.size(), 0);
  if (tensor.split) {
    const auto dim = std::size_t(tensor.split->dim);
    first[dim] = whole[dim] * o.c.at[std::size_t(tensor.split->axis)];
    whole[dim] *= tensor.split->degree;
  }
  const std::int64_t before = first_sequence(o.c) * elements(whole) / o.c.program.micro_batch;
  const PhiloxKey key = philox_key(params.seed, o.c.position.step, params.site);
  for (std::size_t i = 0; i < o.in(0).size(); ++i) {
    std::int64_t rest = std::int64_t(i), index = 0, stride = 1;
    for (std::size_t d = whole.size(); d-- > 0;) {
      index += (rest % tensor.shape[d] + first[d]) * stride;
      rest /= tensor.shape[d];
      stride *= whole[d];
    }
    index += before;
    const auto words = philox({std::uint32_t(index / 4), std::uint32_t(index / 4 >> 32),
                               std::uint32_t(o.c.position.layer), 0},
                              key);
    const double uniform = double(words[std::size_t(index % 4)]) / 0x1p32;
    o.out(0)[i] = uniform < params.rate ? 0 : o.in(0)[i] / (1 - params.rate);
  }
}

/// Weights in 4 bits; the last block is not full.
void add_packed(Cases& cases, const OpSizes& z) {
  for (const bool nested : {false, true}) {
    const std::int64_t count = z.hidden() * z.ffn + 7;
    const std::vector<double> drawn = normal_values(count, 1, 0.02);
    std::vector<std::byte> packed(std::size_t(packed_bytes(count, nested)));
    pack_weight(std::vector<float>(drawn.begin(), drawn.end()), nested, packed.data());
    Operand bytes{"packed", {std::int64_t(packed.size())}, {}, DType::u8};
    for (const std::byte byte : packed) bytes.values.push_back(std::to_integer<int>(byte));
    cases.push_back(make_case(nested ? "unpack_weight/nested" : "unpack_weight",
                              OpKind::unpack_weight, PackParams{nested}, {bytes},
                              {blank("weight", {count})}));
  }
}

/// 4 bits each, the first of two in the upper half; a scale for 64 elements; nested, 8 bits each
/// with an f32 for 256 of them and one for the mean.
void unpack_weight(const Operands& o) {
  const auto n = o.out(0).size(), blocks = (n + 63) / 64, scales = ((n + 1) / 2 + 3) / 4 * 4;
  const std::size_t outer = scales + (blocks + 3) / 4 * 4;
  const auto number = [&](std::size_t at) {
    std::uint32_t bits = 0;
    for (std::size_t i = 4; i-- > 0;) bits = bits << 8 | std::uint32_t(o.in(0)[at + i]);
    return double(std::bit_cast<float>(bits));
  };
  const auto scale = [&](std::size_t block) {
    if (!o.params<PackParams>().nested) return number(scales + 4 * block);
    const double steps = (o.in(0)[scales + block] - 128) / 127;
    return number(outer + (blocks + 255) / 256 * 4) + number(outer + block / 256 * 4) * steps;
  };
  each(o, [&](std::size_t i) {
    const int pair = int(o.in(0)[i / 2]), code = i % 2 == 0 ? pair / 16 : pair % 16;
    return double(kNormalFloat[std::size_t(code)]) * scale(i / 64);
  });
}

void own_part(const Operands& o) {
  const auto part = std::size_t(o.c.at[std::size_t(Axis::mp)]);
  const auto size = std::size_t(elements(o.c.output(0).shape));
  each(o, [&](std::size_t i) { return o.in(0)[part * size + i]; });
}

/// Visits the values of a, then those of b, of each token: visit(of b, index, index in the whole).
template <class Visit>
void each_of_tokens(std::size_t tokens, std::size_t a, std::size_t b, Visit visit) {
  for (std::size_t i = 0; i < tokens; ++i) {
    for (std::size_t j = 0; j < a; ++j) visit(false, i * a + j, i * (a + b) + j);
    for (std::size_t j = 0; j < b; ++j) visit(true, i * b + j, i * (a + b) + a + j);
  }
}

void join_tokens(const Operands& o) {
  const std::size_t n = o.in_dim(1, 0);
  each_of_tokens(n, o.in(0).size() / n, o.in(1).size() / n,
                 [&](bool b, std::size_t part, std::size_t whole) {
                   o.out(0)[whole] = o.in(b ? 1 : 0)[part];
                 });
}

void part_tokens(const Operands& o) {
  const std::size_t n = o.out_dim(1, 0);
  each_of_tokens(n, o.out(0).size() / n, o.out(1).size() / n,
                 [&](bool b, std::size_t part, std::size_t whole) {
                   o.out(b ? 1 : 0)[part] = o.in(0)[whole];
                 });
}

constexpr OpReference kReferences[] = {
    {OpKind::join_tokens, join_tokens},
    {OpKind::part_tokens, part_tokens},
    {OpKind::unpack_weight, unpack_weight},
    {OpKind::bias_add, add_row},
    {OpKind::bias_gradient, sum_over_rows},
    {OpKind::gelu,
     [](const Operands& o) {
       const auto& params = o.params<ActivationParams>();
       each(o, [&](std::size_t i) { return gelu(o.in(0)[i], params); });
     }},
    {OpKind::multiply,
     [](const Operands& o) {
       const double factor = o.params<FactorParams>().factor;
       each(o, [&](std::size_t i) { return factor * o.in(0)[i]; });
     }},
    {OpKind::gate_values,
     [](const Operands& o) {
       each(o, [&](std::size_t i) { return o.in(0)[i] * sigmoid(o.in(1)[i]); });
     }},
    {OpKind::gate_values_backward,
     [](const Operands& o) {
       each(o, [&](std::size_t i) {
         const double s = sigmoid(o.in(2)[i]);
         o.out(1)[i] = o.in(0)[i] * o.in(1)[i] * s * (1 - s);
         return o.in(0)[i] * s;
       });
     }},
    {OpKind::gelu_backward,
     [](const Operands& o) {
       const auto& params = o.params<ActivationParams>();
       each(o, [&](std::size_t i) { return o.in(0)[i] * gelu_slope(o.in(1)[i], params); });
     }},
    {OpKind::squared_relu,
     [](const Operands& o) {
       each(o, [&](std::size_t i) { return std::pow(std::max(o.in(0)[i], 0.0), 2); });
     }},
    {OpKind::squared_relu_backward,
     [](const Operands& o) {
       each(o, [&](std::size_t i) { return 2 * std::max(o.in(1)[i], 0.0) * o.in(0)[i]; });
     }},
    {OpKind::swiglu, gated<silu>},
    {OpKind::swiglu_backward, gated_backward<silu, silu_slope>},
    {OpKind::geglu, gated<gelu>},
    {OpKind::geglu_backward, gated_backward<gelu, gelu_slope>},
    {OpKind::soft_cap,
     [](const Operands& o) {
       const double limit = o.params<CapParams>().limit;
       each(o, [&](std::size_t i) { return limit * std::tanh(o.in(0)[i] / limit); });
     }},
    {OpKind::soft_cap_backward,
     [](const Operands& o) {
       const double limit = o.params<CapParams>().limit;
       each(o, [&](std::size_t i) { return o.in(0)[i] * (1 - std::pow(o.in(1)[i] / limit, 2)); });
     }},
    {OpKind::add,
     [](const Operands& o) { each(o, [&](std::size_t i) { return o.in(0)[i] + o.in(1)[i]; }); }},
    {OpKind::own_part, own_part},
    {OpKind::dropout, dropout},
    {OpKind::copy_to_host,
     [](const Operands& o) { each(o, [&](std::size_t i) { return o.in(0)[i]; }); }},
    {OpKind::copy_to_device,
     [](const Operands& o) { each(o, [&](std::size_t i) { return o.in(0)[i]; }); }},
    {OpKind::cast, [](const Operands& o) { each(o, [&](std::size_t i) { return o.in(0)[i]; }); }},
    {OpKind::fill,
     [](const Operands& o) { each(o, [&](std::size_t) { return o.params<FillParams>().value; }); }},
};

void add_cases(Cases& cases, const OpSizes& sizes) {
  add_elementwise_cases(cases, sizes);
  add_cast_cases(cases, sizes);
  add_gated(cases, sizes);
  add_packed(cases, sizes);
  add_dropout(cases, sizes);
}

}  // namespace

const OpFamily kElementwiseOps = {add_cases, kReferences};

}  // namespace plimsoll
