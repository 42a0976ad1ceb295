// One row per OpKind: arity, parameter family, whether it communicates, flops, bytes moved, and
// legality. The verifier, the cost model, the MFU and the reports all read this table.
#pragma once

#include <span>

#include "base/error.h"
#include "base/units.h"
#include "graph/op.h"

namespace plimsoll {

enum class OpClass : std::uint8_t {
  abstract,        ///< must be gone after select_kernels / backward
  matmul,          ///< cost by shape
  attention,       ///< one kernel of several products: cost by flops and bytes moved
  memory_bound,    ///< cost by bytes moved
  collective,      ///< cost by kind, group and bytes
  point_to_point,  ///< send and recv
};

struct OpRow {
  OpKind kind;
  OpClass op_class;
  int least_inputs, most_inputs;
  int least_outputs, most_outputs;
  std::size_t params;  ///< index of the alternative of OpParams
  /// Output 0 is a new value in the storage of this input (whose old value is gone), or -1. Of
  /// reduce_scatter and all_gather only where both are whole: see in_place() below.
  int in_place = -1;
  /// Bit i: output i adds to what is there (the caller zeroes it at the start of the step).
  unsigned accumulates = 0;
  /// Legality beyond arity: shapes, dtypes, parameters. The reason names what is wrong.
  Verdict (*check)(const Op& op, std::span<const Tensor> tensors);
};

const OpRow& row(OpKind kind);
/// Collectives, sends and receives.
bool communicates(OpKind kind);

/// The input in whose storage output 0 is, or -1. reduce_scatter and all_gather have two forms: in
/// place on the whole, of which a rank's 1/size is its part, and, where the operands differ in
/// size, between the whole and memory that holds the part alone.
int in_place(const Op& op, std::span<const Tensor> tensors);

/// Floating-point operations of one execution (multiply-add = 2) of matmul and attention ops; all
/// others return 0. Attention counts in full, not halved for causality, as MFU does: a kernel that
/// skips masked blocks does about half. flash_attention is two products, 4 n s a d; its backward
/// five, 2.5 times that (Dao 2023, arXiv 2307.08691, section 4.1): the repeated scores count here,
/// and not in HFU, which counts ops of phase recompute.
Flops flops(const Op& op, std::span<const Tensor> tensors);
/// Bytes read plus bytes written by one execution (payload bytes for communication).
Bytes bytes_moved(const Op& op, std::span<const Tensor> tensors);
/// Updates: of masters they may write the parameters in their own type too, as one more output.
bool may_write_parameters(OpKind kind);
/// True when output `i` adds to its old contents (matmul: by its parameter; others: by the table).
bool accumulates(const Op& op, std::size_t i);
/// The type an op computes in, which decides its peak rate: that of its first floating-point input
/// (a weight gradient of bf16 operands may be f32), else of its first output.
DType compute_dtype(const Op& op, std::span<const Tensor> tensors);

/// Dimensions of a matmul: `batch` times (m x k)(k x n). Shapes come from operands and
/// MatmulParams::batch_dims.
struct MatmulShape {
  std::int64_t batch = 1, m = 1, n = 1, k = 1;
  bool operator==(const MatmulShape&) const = default;
};
MatmulShape matmul_shape(const Op& op, std::span<const Tensor> tensors);

}  // namespace plimsoll
