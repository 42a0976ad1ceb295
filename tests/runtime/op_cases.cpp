// Makes op cases of operands, and puts the cases of all families together.
#include "tests/runtime/op_cases.h"

#include <limits>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "graph/op_table.h"
#include "runtime/half.h"
#include "tests/runtime/op_families.h"
#include "tests/runtime/op_reference.h"
#include "tests/runtime/optimizer_cases.h"

namespace plimsoll {

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

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

// Many cases draw the same: drawing takes longer than all else about them.
std::vector<double> normal_values(std::int64_t count, std::uint64_t seed, double deviation) {
  static std::map<std::pair<std::uint64_t, double>, std::vector<double>> drawn;
  std::vector<double>& values = drawn[{seed, deviation}];
  if (std::int64_t(values.size()) < count) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> draw(0, deviation);
    values.resize(static_cast<std::size_t>(count));
    for (double& value : values) value = double(float(draw(random)));
  }
  return {values.begin(), values.begin() + count};
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
    tensor.on_host = operand.on_host;
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
  const bool casts_copy =
      c.op.kind == OpKind::copy_to_device && c.input(0).dtype != c.output(0).dtype;
  if (casts_copy) return std::nullopt;
  OpCase result = c;
  result.name += "/" + std::string(to_text(type)) + (gradients ? "/gradients" : "");
  std::vector<bool> stays(c.tensors.size());
  bool any = false;
  for (std::size_t i = 0; i < c.op.inputs.size(); ++i) {
    if (input_is_f32(c.op, i)) stays[c.op.inputs[i].index()] = true;
  }
  for (std::size_t i = 0; i < c.op.outputs.size(); ++i) {
    const bool counts = c.op.kind == OpKind::count_choices;  // which are no gradients
    const bool gradient = accumulates(c.op, i) && !counts;
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
  std::vector<OpCase> cases;
  for (const OpFamily* family : {&kDataOps, &kElementwiseOps, &kNormOps, &kMatmulOps, &kHeadOps,
                                 &kContextOps, &kLossOps, &kRouterOps, &kExpertOps}) {
    if (family == &kMatmulOps && !sizes.products) continue;
    family->add_cases(cases, sizes);
  }
  for (OpCase& c : optimizer_cases(sizes)) cases.push_back(std::move(c));
  return cases;
}

}  // namespace plimsoll
