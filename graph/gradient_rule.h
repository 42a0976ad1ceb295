// A gradient rule says how the gradients of an op's inputs follow from those of its outputs.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "graph/op_table.h"

namespace plimsoll {

/// A RuleOperand is one operand of a step of a rule. `position` counts in the signature of the
/// forward op.
struct RuleOperand {
  enum class Role : std::uint8_t { input, output, input_gradient, output_gradient };
  Role role = Role::input;
  std::uint8_t position = 0;
  bool operator==(const RuleOperand&) const = default;
};

/// A RuleStep gives the gradients of some inputs by an op. Without a kind it gives the gradient of
/// one input, which is the operand itself.
struct RuleStep {
  static constexpr std::size_t kMostReads = 6, kMostGradients = 3;
  std::optional<OpKind> kind;
  std::array<RuleOperand, kMostReads> read_operands = {};
  std::array<std::uint8_t, kMostGradients> gradient_inputs = {};
  std::uint8_t read_count = 0, gradient_count = 0;

  constexpr std::span<const RuleOperand> reads() const {
    return {read_operands.data(), read_count};
  }
  /// Returns the positions of the inputs whose gradients the step gives.
  constexpr std::span<const std::uint8_t> gradients() const {
    return {gradient_inputs.data(), gradient_count};
  }
};

/// A GradientRule is the text OpRow::backward after parsing. The text has steps between semicolons,
/// in order. A step is `dX, dY = KIND(OPERANDS)`, or `dX = dY` where a gradient is passed on. An
/// operand is the name of an input or output of the forward op; with a d before the name it is the
/// gradient. Values that a rule reads are saved for backward. Optional operands that the forward op
/// does not have are left out, and so is a step that gives gradients of such operands only.
struct GradientRule {
  static constexpr std::size_t kMostSteps = 3;
  std::array<RuleStep, kMostSteps> all = {};
  std::uint8_t count = 0;
  constexpr std::span<const RuleStep> steps() const { return {all.data(), count}; }
};

/// Returns the rule of a kind. The rule has no steps where the backward pass itself computes the
/// gradients, or where no gradient reaches the op.
const GradientRule& gradient_rule(OpKind kind);

}  // namespace plimsoll
