// A tensor of the IR says what a value is, who has it and how it is split. Facts are fields, never
// parts of a name.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "graph/grid.h"

namespace plimsoll {

/// An Id is an index into the array that owns things of kind `Tag`, and cannot be used for another
/// kind. It is only constructed explicitly.
template <class Tag>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(std::size_t index) : index_(static_cast<std::uint32_t>(index)) {}
  constexpr std::size_t index() const { return index_; }
  friend constexpr auto operator<=>(Id, Id) = default;

 private:
  std::uint32_t index_ = 0;
};

/// e4m3 and e5m2 are the 8-bit formats of Micikevicius et al. 2022, arXiv 2209.05433.
enum class DType : std::uint8_t { f32, bf16, f16, i32, u8, e4m3, e5m2 };
inline constexpr std::array<std::string_view, 7> kDTypeNames = {"f32", "bf16", "f16", "i32",
                                                                "u8",  "e4m3", "e5m2"};

/// A TensorRole says why a tensor's memory exists. All memory reports use these classes.
enum class TensorRole : std::uint8_t {
  parameter,
  frozen_parameter,  ///< a parameter that is not trained: it has neither a gradient nor states
  master_parameter,
  gradient,
  optimizer_state,
  activation,     ///< a frame temporary, or a boundary tensor between calls of one rank
  saved,          ///< saved for backward
  workspace,      ///< library scratch, stated by Framework
  communication,  ///< send slots, received tensors, gathers
  scalar,         ///< per-step device scalars: step number, loss, gradient norm
};
inline constexpr std::size_t kTensorRoles = 10;
using BytesByRole = std::array<Bytes, kTensorRoles>;

/// A Shape lists sizes outermost first. Tensors are row-major and dense.
using Shape = std::vector<std::int64_t>;

/// An Init says how a parameter starts. Values depend only on the job's seed, the parameter's name,
/// its layer and the global element index, so that every split draws the same model.
enum class Init : std::uint8_t { none, normal, zeros, ones };

/// A Split says that `shape[dim]` is 1/degree of the whole (after padding) along `axis`. The rank's
/// coordinate on that axis, divided by `copies`, is the index of its part.
struct Split {
  std::int64_t dim = 0;
  Axis axis = Axis::mp;
  std::int64_t degree = 1;
  std::int64_t copies = 1;  ///< consecutive ranks of the axis that hold the same part
  /// The number of the whole's last indices along `dim` that are padding. They are zeros and never
  /// read. Only parameters with `dim` 0 have padding.
  std::int64_t padding = 0;
  /// Weights of experts may be split twice: `shape[0]` is then, beside the split along another
  /// dimension, 1/experts of the whole along ep.
  std::int64_t experts = 1;
  bool operator==(const Split&) const = default;
};

/// Returns the index of the part that the rank at these coordinates holds.
inline std::int64_t part_index(const Split& split, const Coordinates& at) {
  return at[std::size_t(split.axis)] / split.copies;
}

/// Returns the number of parts of which the whole tensor is made.
inline std::int64_t parts_of(const Split& split) { return split.degree * split.experts; }

using BlockId = Id<struct BlockTag>;
using TensorId = Id<struct TensorTag>;

struct Tensor {
  std::string name;  ///< for people; unique within its Graph or Routine
  DType dtype = DType::f32;
  TensorRole role = TensorRole::activation;
  Shape shape;
  std::optional<BlockId> block;  ///< absent for arenas, scalars and optimizer temporaries
  std::optional<Split> split;
  Init init = Init::none;  ///< parameters only
  double init_stddev = 0;  ///< for Init::normal
  bool decay = false;      ///< weight decay applies (parameters only)
  bool clip = true;        ///< counts in the gradient norm and is clipped (parameters only)
  double rate = 1;         ///< factor of the learning rate (parameters only)
  std::optional<double> weight_decay;  ///< instead of the optimizer's (parameters only)
  /// For one of the step's scalars (role scalar, one element): its index.
  std::optional<std::int64_t> element;
  /// Whether this is an arena: the concatenation of all tensors of this role on the rank. In a
  /// Graph its shape is {elements over all blocks and layers}; in a Program it is the elements that
  /// this rank holds or owns.
  bool arena = false;
  /// Whether this tensor lies in the host's memory.
  bool on_host = false;
  /// For a parameter: the ranks that each compute only a part of its gradient. They sum the parts
  /// once per step. Of experts' load: the ranks that each count some of the tokens.
  std::optional<Group> gradient_group;
  /// For rows of experts, whose number depends on data: the share of `shape` that the fullest rank
  /// is expected to use. Memory has all of it; ops move and compute this share.
  double filled = 1;
  std::optional<TensorId> gradient_of;  ///< the parameter this is the gradient of
  std::optional<TensorId> tied_to;      ///< the parameter whose value this one shares
  /// For a frozen parameter in 4 bits (graph/op.h, PackedLayout): the shape of the weight whose
  /// bytes these are. Empty for all others.
  Shape packed = {};
  bool operator==(const Tensor&) const = default;
};

/// Returns whether memory of this role has parameters, trained or frozen.
inline bool is_of_parameters(TensorRole role) {
  return role == TensorRole::parameter || role == TensorRole::frozen_parameter;
}
/// Returns whether a tensor is one parameter, trained or frozen, and not an arena of them.
inline bool is_one_parameter(const Tensor& tensor) {
  return !tensor.arena && is_of_parameters(tensor.role);
}

/// Returns whether a parameter is one of experts that have a grid of their own.
inline bool is_of_experts(const Tensor& parameter) {
  const auto& split = parameter.split;
  if (split && (split->axis == Axis::ep || split->axis == Axis::etp)) return true;
  return parameter.gradient_group && parameter.gradient_group->axes.has(Axis::edp);
}

std::int64_t elements(const Shape& shape);
/// Returns the elements of a parameter, which has fewer bytes where it is packed.
std::int64_t parameter_elements(const Tensor& parameter);
inline bool is_fp8(DType dtype) { return dtype == DType::e4m3 || dtype == DType::e5m2; }
inline bool is_floating(DType dtype) { return dtype != DType::i32 && dtype != DType::u8; }
Bytes bytes_of(DType dtype);           ///< of one element
Bytes bytes_of(const Tensor& tensor);  ///< exact, not rounded

std::string_view to_text(DType dtype);
std::string_view to_text(TensorRole role);
std::string_view to_text(Init init);

}  // namespace plimsoll
