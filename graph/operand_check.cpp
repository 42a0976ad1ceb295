// Operands are checked by the signature of their op, in which each letter has one extent.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <map>
#include <string>
#include <vector>

#include "graph/op_rows.h"

namespace plimsoll {

namespace {

/// A product in a shape text: 2, n, or b*p.
struct Product {
  std::int64_t factor = 1;
  std::vector<std::string_view> letters;
};

void multiply(Product& product, std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('*'), text.size());
    std::int64_t factor = 1;
    const char* letter = std::from_chars(text.data(), text.data() + end, factor).ptr;
    product.factor *= factor;
    if (letter != text.data() + end) product.letters.emplace_back(letter, text.data() + end);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

/// An operand whose shape the signature states.
struct Stated {
  const SignatureOperand& operand;
  const Tensor& tensor;
  std::vector<Product> extents{};  ///< by dimension
  Product elements{};
};

Stated stated(const SignatureOperand& operand, const Tensor& tensor) {
  Stated result{operand, tensor};
  for (std::string_view text = operand.shape; !text.empty();) {
    const std::size_t end = std::min(text.find(','), text.size());
    multiply(result.extents.emplace_back(), text.substr(0, end));
    multiply(result.elements, text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

class Extents {
 public:
  /// Returns whether a product can be this number. It then is, if one letter of it was unknown.
  bool is(const Product& product, std::int64_t number) {
    std::int64_t known = product.factor;
    std::optional<std::string_view> unknown;
    for (const std::string_view letter : product.letters) {
      const auto found = known_.find(letter);
      if (found != known_.end()) {
        known *= found->second;
      } else if (std::exchange(unknown, letter)) {
        return true;
      }
    }
    if (!unknown) return known == number;
    return number % known == 0 && known_.emplace(*unknown, number / known).second;
  }
  std::size_t count() const { return known_.size(); }

  /// Says which operand does not fit.
  Verdict refuse(const Stated& one) const {
    std::string with;
    for (const std::string_view letter : one.elements.letters) {
      const auto found = known_.find(letter);
      if (found == known_.end()) continue;
      with += fmt::format("{}{} = {}", with.empty() ? " with " : ", ", letter, found->second);
    }
    return Verdict::no(fmt::format("operand {} is [{}], not [{}]{}", one.operand.name,
                                   fmt::join(one.tensor.shape, ","), one.operand.shape, with));
  }

 private:
  std::map<std::string_view, std::int64_t> known_;
};

/// Calls visit(operand, tensor) for each input, then for each output.
template <class Visit>
void for_each_operand(const Op& op, Tensors tensors, Visit visit) {
  for (std::size_t i = 0; i < op.inputs.size(); ++i)
    visit(input_operand(op, i), in(op, tensors, i));
  for (std::size_t i = 0; i < op.outputs.size(); ++i)
    visit(output_operand(op, i), out(op, tensors, i));
}

Verdict check_type(const SignatureOperand& operand, const Tensor& tensor) {
  const bool wrong = (operand.type == OperandType::i32 && tensor.dtype != DType::i32) ||
                     (operand.type == OperandType::u8 && tensor.dtype != DType::u8);
  if (wrong)
    return Verdict::no(
        fmt::format("{} is {}, which it cannot be", operand.name, to_text(tensor.dtype)));
  const bool scalars = tensor.role == TensorRole::scalar && elements(tensor.shape) == kScalars;
  return operand.name != "scalars" || scalars ? Verdict::yes()
                                              : Verdict::no("needs the step scalars");
}

/// An optional input has its gradient, d and its name, where that is an output. Only frozen
/// parameters have none.
Verdict check_gradients(const Op& op, Tensors tensors) {
  const auto& [inputs, outputs] =
      std::tie(row(op.kind).operands.inputs, row(op.kind).operands.outputs);
  for (std::size_t o = 0; o < outputs.count; ++o) {
    if (!outputs[o].optional || !outputs[o].name.starts_with('d')) continue;
    const auto input = inputs.find(outputs[o].name.substr(1));
    if (!input || !inputs[*input].optional) continue;
    const auto index = inputs.index(*input, op.inputs.size());
    const bool frozen = index && in(op, tensors, *index).role == TensorRole::frozen_parameter;
    if (!frozen && index.has_value() != outputs.index(o, op.outputs.size()).has_value())
      return Verdict::no(
          fmt::format("operand {} has a gradient if it is there", inputs[*input].name));
  }
  return Verdict::yes();
}

}  // namespace

/// Dimensions have the extents that the signature states, if there are as many. An operand of
/// other dimensions has as many elements.
Verdict fits_signature(const Op& op, Tensors tensors) {
  std::vector<Stated> all;
  for_each_operand(op, tensors, [&](const SignatureOperand& operand, const Tensor& tensor) {
    if (!operand.shape.empty()) all.push_back(stated(operand, tensor));
  });
  Extents extents;
  for (const Stated& one : all) {
    for (std::size_t d = 0; d < one.extents.size(); ++d) {
      if (one.extents.size() != one.tensor.shape.size()) break;
      if (!extents.is(one.extents[d], one.tensor.shape[d])) return extents.refuse(one);
    }
  }
  for (std::size_t before = all.size() + 1; before != extents.count();) {
    before = extents.count();
    for (const Stated& one : all) {
      if (!extents.is(one.elements, elements(one.tensor.shape))) return extents.refuse(one);
    }
  }
  return Verdict::yes();
}

Verdict check_operands(const Op& op, Tensors tensors) {
  Verdict verdict = Verdict::yes();
  for_each_operand(op, tensors, [&](const SignatureOperand& operand, const Tensor& tensor) {
    if (verdict) verdict = check_type(operand, tensor);
  });
  if (verdict) verdict = check_gradients(op, tensors);
  if (verdict) verdict = row(op.kind).shapes(op, tensors);
  return verdict ? row(op.kind).check(op, tensors) : verdict;
}

}  // namespace plimsoll
