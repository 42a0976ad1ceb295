// These functions add operands to a bench case. They are internal to calibrate.
#pragma once

#include <string>
#include <utility>

#include "calibrate/schedule/bench_case.h"

namespace plimsoll {

inline TensorId add_tensor(BenchCase& bench_case, Shape shape, DType dtype) {
  Tensor tensor;
  tensor.name = "t" + std::to_string(bench_case.tensors.size());
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  bench_case.tensors.push_back(std::move(tensor));
  return TensorId(bench_case.tensors.size() - 1);
}

inline void add_input(BenchCase& bench_case, Shape shape, DType dtype = DType::f32) {
  bench_case.op.inputs.push_back(add_tensor(bench_case, std::move(shape), dtype));
}
inline void add_output(BenchCase& bench_case, Shape shape, DType dtype = DType::f32) {
  bench_case.op.outputs.push_back(add_tensor(bench_case, std::move(shape), dtype));
}

}  // namespace plimsoll
