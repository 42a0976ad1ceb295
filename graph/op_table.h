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

/// An OpClass says how the cost of an op is found.
enum class OpClass : std::uint8_t {
  abstract,        ///< must be gone after select_kernels / backward
  matmul,          ///< cost by shape
  attention,       ///< one kernel of several products: cost by flops and bytes moved
  memory_bound,    ///< cost by bytes moved
  collective,      ///< cost by kind, group and bytes
  point_to_point,  ///< send and recv
  to_host,         ///< a copy to the host's memory: cost by bytes and the link out of the device
  to_device,       ///< a copy from there: cost by bytes and the link into the device
  host_memory,     ///< work of the host's processors: cost by bytes moved in the host's memory
};

/// The rows that an op works on one by one, and whose length its speed depends on.
enum class OpRows : std::uint8_t {
  none,
  hidden,  ///< each token's values: as long as the hidden dimension
  scores,  ///< attention scores: as long as a sequence
  logits,  ///< logits: as long as a rank's part of the vocabulary
};

/// An OpBench says how calibrate measures a memory-bound op.
struct OpBench {
  bool measured = true;  ///< false: its operands have two types, and a curve has one
  /// mixed precision runs the op on f32 values, so it is not measured in 16-bit types
  bool f32_only = false;
  bool with_optional = false;  ///< measured with its optional operands
  bool in_frame = false;  ///< whether its outputs are temporaries of backward (BenchCase::in_frame)
  unsigned fresh = 0b1;  ///< bit i: in training, input i was written just before (BenchCase::fresh)
  std::string_view operands = {};  ///< a signature in place of the op's own
};

/// The value of OpRow::backward where gradients need more than a rule. The backward pass computes
/// them.
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

// The functions below are the defaults of a row.
/// Checks the extents of operands (graph/operand_check.cpp): each letter of the signature has one.
Verdict fits_signature(const Op& op, std::span<const Tensor> tensors);
/// Accepts every combination of operands.
Verdict any_operands(const Op& op, std::span<const Tensor> tensors);
/// Returns the bytes where each input is read once and each output is written once. An output that
/// is added to is read as well.
Bytes operand_bytes(const Op& op, std::span<const Tensor> tensors);
Flops no_flops(const Op& op, std::span<const Tensor> tensors);

/// An OpRow has all facts of one op kind.
struct OpRow {
  OpKind kind;
  std::string_view name;
  OpClass op_class;
  Signature operands;
  std::size_t params = kParams<std::monostate>;
  /// Output 0 is a new value in the storage of this input, whose old value is gone. Some
  /// collectives also have a form that is not in place; see in_place() below.
  std::optional<std::size_t> in_place = {};
  /// Checks the shapes, by the signature or, where that states one case of them, by a function. The
  /// reason names what is wrong.
  Verdict (*shapes)(const Op& op, std::span<const Tensor> tensors) = fits_signature;
  /// Checks what goes beyond shapes: dtypes and parameters.
  Verdict (*check)(const Op& op, std::span<const Tensor> tensors) = any_operands;
  Bytes (*bytes)(const Op& op, std::span<const Tensor> tensors) = operand_bytes;
  Flops (*flops)(const Op& op, std::span<const Tensor> tensors) = no_flops;
  /// The rule by which gradients reach the inputs (graph/gradient_rule.h), which also decides which
  /// values are saved for backward. It is empty where no gradient reaches the op.
  std::string_view backward = {};
  /// Only other frameworks have this kernel: it is simulated, and no backend of the runtime has it.
  bool simulated_only = false;
  /// The op works element by element or row by row, so its outputs are split over tensor-parallel
  /// ranks as input 0 is.
  bool keeps_split = false;
  /// The op is an update that may also write the parameters in their own type, as its last output.
  bool writes_parameters = false;
  /// Frameworks that run a formula op by op (Framework::host.dispatch.ops_per_kernel) also have a
  /// single op for this formula.
  bool one_op_everywhere = false;
  /// Frameworks run several ops instead of this op of a mixture of experts
  /// (Framework::host.dispatch.ops_per_expert_op).
  bool of_experts = false;
  /// The factor of the kernel's bytes where the ops of its formula run one by one
  /// (Framework::kernels.elementwise.by_op), counted for 16-bit values.
  double moved_op_by_op = 1;
  /// The factor of the kernel's bytes where its mask is a kernel of its own
  /// (Framework::kernels.attention.masks_f32_apart).
  double moved_with_mask = 1;
  OpRows rows = OpRows::none;
  OpBench bench = {};
};

const OpRow& row(OpKind kind);
/// Returns the default parameters of a kind.
OpParams default_params(OpKind kind);
/// Returns whether a kind is a collective, a send or a receive.
bool communicates(OpKind kind);
/// Returns whether the host, or its link with the device, does the work of a kind.
bool is_of_host(OpKind kind);
/// Returns whether a kind is a collective of rows of experts, whose number depends on data.
bool moves_rows(OpKind kind);

/// Checks the operands of an op that has as many as its signature: integer types, step scalars,
/// gradients of optional operands, then OpRow::shapes and OpRow::check.
Verdict check_operands(const Op& op, std::span<const Tensor> tensors);

/// Returns the input in whose storage output 0 is. reduce_scatter and all_gather have two forms.
/// Where the operands have one size, they work in place on the whole, and a rank's part is 1/size
/// of it. Where the sizes differ, they go between the whole and memory that holds the part alone. A
/// broadcast is in place where input and output are one tensor.
std::optional<std::size_t> in_place(const Op& op, std::span<const Tensor> tensors);

/// Returns the floating-point operations of one execution of a matmul or attention op
/// (multiply-add = 2), and 0 for all other ops. Attention counts in full and is not halved for
/// causality, as in MFU. A kernel that skips masked blocks does about half. flash_attention is two
/// products, 4 n s a d, or 2 n s a (d + e) where values are e wide. Its backward is five products,
/// three over d and two over e: 2.5 times as much where d = e (Dao 2023, arXiv 2307.08691, section
/// 4.1). The scores that its backward repeats count here. They do not count in
/// HFU, which adds ops of phase recompute. With a window, the share of the causal scores counts
/// that the window has (share_in_window()).
Flops flops(const Op& op, std::span<const Tensor> tensors);
/// Returns the bytes read plus the bytes written by one execution. For communications it returns
/// the payload.
Bytes bytes_moved(const Op& op, std::span<const Tensor> tensors);

/// Returns the part of the signature that describes the op's input or output `i`.
const SignatureOperand& input_operand(const Op& op, std::size_t i);
const SignatureOperand& output_operand(const Op& op, std::size_t i);
/// Returns whether the input is f32 whatever type the op's values have (OperandType::f32).
bool input_is_f32(const Op& op, std::size_t i);
/// Returns whether the output is f32 whatever type the op's values have. Gradients of parameters
/// are f32, too, as they sum over micro-batches.
bool output_is_f32(const Op& op, std::size_t i);
/// Returns whether output `i` adds to its old contents. A matmul has a parameter for it; other
/// kinds have it in the table.
bool accumulates(const Op& op, std::size_t i);
/// Returns the type in which an op computes; it decides the peak rate. It is the type of the first
/// floating-point input, else of the first output. The output may differ: a weight gradient of bf16
/// operands may be f32.
DType compute_dtype(const Op& op, std::span<const Tensor> tensors);

/// Returns whether an update of masters also writes parameters, i.e. has the output for them.
bool updates_parameters(const Op& op);

/// A MatmulShape has the dimensions of a matmul: `batch` times (m x k)(k x n). They come from
/// operands and MatmulParams::batch_dims.
struct MatmulShape {
  std::int64_t batch = 1, m = 1, n = 1, k = 1;
  bool operator==(const MatmulShape&) const = default;
};
/// Products of experts are a batch of them, as with even routing.
MatmulShape matmul_shape(const Op& op, std::span<const Tensor> tensors);
/// Returns the parameters of a matmul, or of the batched matmul that products of experts would be.
MatmulParams matmul_params(const Op& op);

}  // namespace plimsoll
