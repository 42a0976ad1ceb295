// These functions add operands to a bench case. They are internal to calibrate.
#pragma once

#include <string>
#include <utility>

#include "calibrate/schedule/bench_case.h"

namespace plimsoll {

inline TensorId add_tensor(BenchCase& into, Shape shape, DType dtype) {
  Tensor tensor;
  tensor.name = "t" + std::to_string(into.tensors.size());
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  into.tensors.push_back(std::move(tensor));
  return TensorId(into.tensors.size() - 1);
}

inline void input(BenchCase& into, Shape shape, DType dtype = DType::f32) {
  into.op.inputs.push_back(add_tensor(into, std::move(shape), dtype));
}
inline void output(BenchCase& into, Shape shape, DType dtype = DType::f32) {
  into.op.outputs.push_back(add_tensor(into, std::move(shape), dtype));
}

}  // namespace plimsoll
