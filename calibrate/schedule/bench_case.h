// Bench cases are single ops with operands, in the sizes of transformer training.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "graph/op.h"
#include "graph/op_table.h"
#include "graph/program.h"
#include "graph/tensor.h"
#include "models/calibration/calibration.h"

namespace plimsoll {

/// A BenchCase is one op to be measured.
struct BenchCase {
  Op op;
  std::vector<Tensor> tensors;
  std::int64_t row = 0;    ///< OpPoint::row
  std::int64_t ids = 256;  ///< values of i32 operands lie in [0, ids)
  /// Inputs that the op before has just written in training, so that caches hold as much of them as
  /// fits. Weights and values saved for backward come from memory.
  std::vector<std::size_t> fresh;
  /// Whether outputs go where earlier ops have just worked: temporaries of backward, in the
  /// routine's frame. Other outputs are saved for backward, and go to memory.
  bool in_frame = false;
  /// A Program with the data that arena ops and data ops look up: one segment, one bucket, the
  /// micro-batch.
  Program program;
};

/// Returns shape.batch products (m x k)(k x n), stored and accumulated as `form` says.
BenchCase matmul_case(const MatmulShape& shape, const MatmulPoint& form);

/// Returns a memory-bound op that moves about `moved` bytes. It works on rows of length `row` where
/// it has rows, and on values of type `dtype`; operands that are always f32 stay f32.
BenchCase memory_case(OpKind kind, Bytes moved, std::int64_t row, DType dtype = DType::f32);

/// Returns the kinds whose cost depends on the bytes moved, in order of OpKind. For 16-bit types
/// these are the kinds that mixed precision runs in them, without the loss and without ops that run
/// once per step.
std::vector<OpKind> memory_bound_kinds(DType dtype = DType::f32);

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
