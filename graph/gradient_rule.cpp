// Reads the backward rules of the op table when the program is compiled.
#include "graph/gradient_rule.h"

#include "graph/op_rows.h"

namespace plimsoll {

namespace {

using Role = RuleOperand::Role;

constexpr std::uint8_t position_of(const OperandList& list, std::string_view name) {
  return std::uint8_t(*list.find(name));
}

constexpr RuleOperand operand_named(const Signature& forward, std::string_view name) {
  if (forward.inputs.find(name)) return {Role::input, position_of(forward.inputs, name)};
  if (forward.outputs.find(name)) return {Role::output, position_of(forward.outputs, name)};
  if (name[0] != 'd') SignatureReader::fail();
  const std::string_view value = name.substr(1);
  if (forward.inputs.find(value)) return {Role::input_gradient, position_of(forward.inputs, value)};
  if (!forward.outputs.find(value)) SignatureReader::fail();
  return {Role::output_gradient, position_of(forward.outputs, value)};
}

constexpr OpKind kind_named(std::string_view name) {
  for (const OpRow& row : kOpRows) {
    if (row.name == name) return row.kind;
  }
  SignatureReader::fail();
}

constexpr void read_gradients(SignatureReader& reader, const Signature& forward, RuleStep& step) {
  do {
    const RuleOperand operand = operand_named(forward, reader.name());
    if (operand.role != Role::input_gradient || step.gradient_count == RuleStep::kMostGradients)
      SignatureReader::fail();
    step.gradient_inputs[step.gradient_count++] = operand.position;
  } while (reader.take(","));
}

/// An op's operands between parentheses, or the one operand that is passed on.
constexpr void read_operands(SignatureReader& reader, const Signature& forward, RuleStep& step) {
  const std::string_view first = reader.name();
  if (!reader.take("(")) {
    step.read_operands[step.read_count++] = operand_named(forward, first);
    return;
  }
  step.kind = kind_named(first);
  do {
    if (step.read_count == RuleStep::kMostReads) SignatureReader::fail();
    step.read_operands[step.read_count++] = operand_named(forward, reader.name());
  } while (reader.take(","));
  reader.expect(")");
}

constexpr GradientRule read_rule(const OpRow& row) {
  GradientRule rule;
  if (row.backward.empty() || row.backward == kInBackwardPass) return rule;
  SignatureReader reader(row.backward);
  do {
    if (rule.count == GradientRule::kMostSteps) SignatureReader::fail();
    RuleStep& step = rule.all[rule.count++];
    read_gradients(reader, row.operands, step);
    reader.expect("=");
    read_operands(reader, row.operands, step);
  } while (reader.take(";"));
  if (!reader.at_end()) SignatureReader::fail();
  return rule;
}

constexpr std::array<GradientRule, kOpKinds> read_rules() {
  std::array<GradientRule, kOpKinds> rules = {};
  for (std::size_t i = 0; i < kOpKinds; ++i) rules[i] = read_rule(kOpRows[i]);
  return rules;
}

constexpr std::array<GradientRule, kOpKinds> kRules = read_rules();

/// Whether each op of a rule can have as many operands as the rule gives it.
constexpr bool fit_their_ops() {
  for (const GradientRule& rule : kRules) {
    for (const RuleStep& step : rule.steps()) {
      if (!step.kind && (step.read_count != 1 || step.gradient_count != 1)) return false;
      if (!step.kind) continue;
      const Signature& own = kOpRows[std::size_t(*step.kind)].operands;
      if (step.read_count < own.inputs.least() || step.read_count > own.inputs.most() ||
          step.gradient_count < own.outputs.least() || step.gradient_count > own.outputs.most()) {
        return false;
      }
    }
  }
  return true;
}
static_assert(fit_their_ops(), "a backward rule gives an op operands that it does not have");

}  // namespace

const GradientRule& gradient_rule(OpKind kind) { return kRules[std::size_t(kind)]; }

}  // namespace plimsoll
