// One table of op cases: compared with the float64 reference, differentiated by finite differences,
// and timed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/job/examples.h"
#include "runtime/backend.h"

namespace plimsoll {

/// Values of every tensor of a case, by tensor index; i32 tensors hold whole numbers.
using Values = std::vector<std::vector<double>>;

/// One op with operands and everything a kernel may know.
struct OpCase {
  std::string name;
  Op op;
  std::vector<Tensor> tensors;
  Values before;  ///< exact in f32; NaN in outputs that the op must overwrite
  Program program;
  Coordinates at = {};
  RunPosition position;
  std::vector<std::byte> text;
  std::int64_t global_batch = 0;
  std::shared_ptr<const ExampleRows> examples;  ///< null: sequences are whole

  const Tensor& input(std::size_t i) const { return tensors[op.inputs[i].index()]; }
  const Tensor& output(std::size_t i) const { return tensors[op.outputs[i].index()]; }
  const std::vector<double>& input_values(std::size_t i) const {
    return before[op.inputs[i].index()];
  }
};

/// Sizes the table is made for.
struct OpSizes {
  std::int64_t batch, sequence, heads, depth, ffn;
  std::int64_t vocabulary;      ///< real; the padded cases add columns to it
  std::int64_t arena_elements;  ///< of the optimizer cases
  bool products = true;         ///< with products of matrices, which are most of all values
  std::int64_t tokens() const { return batch * sequence; }
  std::int64_t hidden() const { return heads * depth; }
};
inline constexpr OpSizes kTestSizes{2, 5, 3, 8, 40, 37, 230};
/// A transformer of the size that the demo trains.
inline constexpr OpSizes kBenchSizes{4, 256, 6, 64, 1536, 256, 4'000'000};

/// At least one case of every op kind the CPU backend supports.
std::vector<OpCase> op_cases(const OpSizes& sizes);

/// The case with its values in another type, rounded to it; what is f32 by rule stays. Nothing for
/// ops without values of that kind. `gradients`: what the op adds to has that type, too; nothing
/// for ops that add to nothing.
std::optional<OpCase> in_type(const OpCase& c, DType type, bool gradients = false);

/// One operand of a case to be made. Outputs named like an input are the same tensor.
struct Operand {
  std::string name;
  Shape shape;
  std::vector<double> values;  ///< empty: NaN
  DType dtype = DType::f32;
  TensorRole role = TensorRole::activation;
  bool arena = false, on_host = false;
};
Operand normal(std::string name, Shape shape, std::uint64_t seed, double deviation = 1);
Operand blank(std::string name, Shape shape);
/// Output `i` of the case by the reference, as an operand of another case.
Operand result(const OpCase& c, std::size_t i);
OpCase make_case(std::string name, OpKind kind, OpParams params, const std::vector<Operand>& inputs,
                 const std::vector<Operand>& outputs);

/// Values as they are stored in a type.
std::vector<double> rounded(const std::vector<double>& values, DType type);

/// Normal deviates, rounded to f32; the same for the same seed.
std::vector<double> normal_values(std::int64_t count, std::uint64_t seed, double deviation = 1);

}  // namespace plimsoll
