// Bench cases: single ops with operands, in the sizes that transformer training runs them in.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/op.h"
#include "graph/op_table.h"
#include "graph/program.h"
#include "graph/tensor.h"
#include "models/calibration/calibration.h"

namespace plimsoll {

/// One op to be measured.
struct BenchCase {
  Op op;
  std::vector<Tensor> tensors;
  std::int64_t row = 0;    ///< OpPoint::row
  std::int64_t ids = 256;  ///< values of i32 operands lie in [0, ids)
  /// Inputs that the op before has just written in training, so that caches hold what fits of them;
  /// weights and what was saved for backward come from memory.
  std::vector<std::size_t> fresh;
  /// Outputs go where ops before have just worked: temporaries of backward, in the routine's frame.
  /// Others are saved for backward, and come from memory too.
  bool in_frame = false;
  /// A Program with the data that arena and data ops look up: one segment, one bucket, the
  /// micro-batch.
  Program program;
};

/// shape.batch times (m x k)(k x n), stored and accumulated as `form` says.
BenchCase matmul_case(const MatmulShape& shape, const MatmulPoint& form);

/// A memory-bound op that moves about `moved` bytes, on rows of length `row` where it has rows, on
/// values of type `dtype` (what is f32 by rule stays).
BenchCase memory_case(OpKind kind, Bytes moved, std::int64_t row, DType dtype = DType::f32);

/// Kinds whose cost is by bytes moved, in order of OpKind. Of 16-bit types those that mixed
/// precision runs on them: not the loss, nor what happens once per step.
std::vector<OpKind> memory_bound_kinds(DType dtype = DType::f32);

}  // namespace plimsoll
