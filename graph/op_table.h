// The op table: the facts of each op kind. The verifier, the passes, the cost model, the backends,
// the benchmarks and the reports all read it. graph/ops.def has one row for each kind.
#pragma once

#include <optional>
#include <span>

#include "base/error.h"
#include "base/units.h"
#include "graph/op.h"
#include "graph/signature.h"

namespace plimsoll {

/// How the cost of an op is found.
enum class OpClass : std::uint8_t {
  abstract,        ///< must be gone after select_kernels / backward
  matmul,          ///< cost by shape
  attention,       ///< one kernel of several products: cost by flops and bytes moved
  memory_bound,    ///< cost by bytes moved
  collective,      ///< cost by kind, group and bytes
  point_to_point,  ///< send and recv
};

/// Rows that an op works on one by one, and whose length its speed depends on.
enum class OpRows : std::uint8_t {
  none,
  hidden,  ///< of tokens: as long as the hidden dimension
  scores,  ///< of attention scores: as long as a sequence
  logits,  ///< of logits: as long as a rank's part of the vocabulary
};

/// How calibrate measures a memory-bound op.
struct OpBench {
  bool measured = true;        ///< false: its operands have two types, which no curve is of
  bool f32_only = false;       ///< not in 16-bit types: mixed precision runs it on f32 values
  bool with_optional = false;  ///< with its optional operands
  bool in_frame = false;       ///< its outputs are temporaries of backward: BenchCase::in_frame
  unsigned fresh = 0b1;        ///< bit i: input i was just written in training: BenchCase::fresh
  std::string_view operands = {};  ///< a signature in place of the op's own
};

/// OpRow::backward of kinds whose gradients need more than a rule: that pass computes them.
inline constexpr std::string_view kInBackwardPass = "passes/graph/backward.cpp";

namespace op_table {
template <class Params, std::size_t I = 0>
constexpr std::size_t params_index() {
  if constexpr (std::is_same_v<std::variant_alternative_t<I, OpParams>, Params>) {
    return I;
  } else {
    return params_index<Params, I + 1>();
  }
}
}  // namespace op_table

/// The index of a parameter struct in OpParams.
template <class Params>
inline constexpr std::size_t kParams = op_table::params_index<Params>();

// The defaults of a row.
/// Every combination of operands is legal.
Verdict any_operands(const Op& op, std::span<const Tensor> tensors);
/// Inputs are read and outputs written once; an output that is added to is read, too.
Bytes operand_bytes(const Op& op, std::span<const Tensor> tensors);
Flops no_flops(const Op& op, std::span<const Tensor> tensors);

/// All facts of one op kind.
struct OpRow {
  OpKind kind;
  std::string_view name;
  OpClass op_class;
  Signature operands;
  std::size_t params = kParams<std::monostate>;
  /// Output 0 is a new value in the storage of this input, whose old value is gone. Collectives
  /// with a form that is not in place: see in_place() below.
  std::optional<std::size_t> in_place = {};
  /// Legality beyond arity: shapes, dtypes, parameters. The reason names what is wrong.
  Verdict (*check)(const Op& op, std::span<const Tensor> tensors) = any_operands;
  Bytes (*bytes)(const Op& op, std::span<const Tensor> tensors) = operand_bytes;
  Flops (*flops)(const Op& op, std::span<const Tensor> tensors) = no_flops;
  /// How gradients reach the inputs (graph/gradient_rule.h), and so which values are saved for
  /// backward; empty where no gradient reaches the op.
  std::string_view backward = {};
  /// Kernels of other frameworks: they are simulated, and no backend of the runtime has them.
  bool simulated_only = false;
  /// Element by element or row by row: outputs are split over tensor-parallel ranks as input 0 is.
  bool keeps_split = false;
  /// An update that may write the parameters in their own type, too, as its last output.
  bool writes_parameters = false;
  /// Frameworks that run a formula op by op (Framework::ops_per_kernel) have one op for it as well.
  bool one_op_everywhere = false;
  /// How often the bytes of the kernel go by where the ops of its formula run one by one
  /// (Framework::elementwise_by_op), counted for 16-bit values.
  double moved_op_by_op = 1;
  /// How often its bytes go by where its mask is a kernel of its own (Framework::masks_f32_apart).
  double moved_with_mask = 1;
  OpRows rows = OpRows::none;
  OpBench bench = {};
};

const OpRow& row(OpKind kind);
/// The parameters of a kind as they are by default.
OpParams default_params(OpKind kind);
/// Collectives, sends and receives.
bool communicates(OpKind kind);

/// The input in whose storage output 0 is. reduce_scatter and all_gather have two forms: in place
/// on the whole, of which a rank's 1/size is its part, and, where the operands differ in size,
/// between the whole and memory that holds the part alone. A broadcast is in place where input and
/// output are one tensor.
std::optional<std::size_t> in_place(const Op& op, std::span<const Tensor> tensors);

/// Floating-point operations of one execution (multiply-add = 2) of matmul and attention ops; all
/// others return 0. Attention counts in full, not halved for causality, as MFU does: a kernel that
/// skips masked blocks does about half. flash_attention is two products, 4 n s a d; its backward
/// five, 2.5 times that (Dao 2023, arXiv 2307.08691, section 4.1): the repeated scores count here,
/// and not in HFU, which counts ops of phase recompute.
Flops flops(const Op& op, std::span<const Tensor> tensors);
/// Bytes read plus bytes written by one execution (payload bytes for communication).
Bytes bytes_moved(const Op& op, std::span<const Tensor> tensors);

/// The signature's word on the op's operand `i`.
const SignatureOperand& input_operand(const Op& op, std::size_t i);
const SignatureOperand& output_operand(const Op& op, std::size_t i);
/// Whether the input is f32 whatever the type of the op's values: see OperandType::f32.
bool input_is_f32(const Op& op, std::size_t i);
/// Whether the output is f32 in the same way, or a gradient of a parameter, which sums over
/// micro-batches.
bool output_is_f32(const Op& op, std::size_t i);
/// Whether output `i` adds to its old contents (matmul: by its parameter; others: by the table).
bool accumulates(const Op& op, std::size_t i);
/// The type an op computes in, which decides its peak rate: that of its first floating-point input
/// (a weight gradient of bf16 operands may be f32), else of its first output.
DType compute_dtype(const Op& op, std::span<const Tensor> tensors);

/// Whether the update of masters writes parameters, too: it has the output for them.
bool updates_parameters(const Op& op);

/// Dimensions of a matmul: `batch` times (m x k)(k x n). Shapes come from operands and
/// MatmulParams::batch_dims.
struct MatmulShape {
  std::int64_t batch = 1, m = 1, n = 1, k = 1;
  bool operator==(const MatmulShape&) const = default;
};
MatmulShape matmul_shape(const Op& op, std::span<const Tensor> tensors);

}  // namespace plimsoll
