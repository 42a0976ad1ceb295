// A signature is the operands of an op kind as one line of text, which is read when the program is
// compiled.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace plimsoll {

/// An OperandType is the type of an operand, where it does not follow the type in which the op
/// computes.
enum class OperandType : std::uint8_t {
  value,  ///< the type that the op computes in
  f32,    ///< statistics of rows, log-sum-exp, the loss, the step's scalars, masters and optimizer
          ///< state (Micikevicius et al. 2018, arXiv 1710.03740, sections 3.1 and 3.3)
  any,    ///< f32, bf16 or f16, whatever the others have; the op computes on it in f32
  i32,    ///< token ids, rows, flags
  u8,     ///< masks
};

/// A SignatureOperand is one operand of a signature.
struct SignatureOperand {
  std::string_view name;
  std::string_view shape;  ///< the text between the brackets; empty where there are none
  std::string_view below;  ///< i32<below>: all values are smaller than this
  OperandType type = OperandType::value;
  bool optional = false;     ///< "?"
  bool repeated = false;     ///< "...": the last operand, any number of times
  bool accumulates = false;  ///< "+=": the op adds to what is there
};

/// An OperandList has the inputs or the outputs of a signature.
struct OperandList {
  static constexpr std::size_t kMostOperands = 6;
  /// A sum of norms has one input for each attribute group.
  static constexpr std::size_t kMostRepeats = 1024;

  std::array<SignatureOperand, kMostOperands> operands = {};
  std::uint32_t count = 0, optionals = 0, first_optional = 0;
  bool repeats = false;
  std::uint32_t accumulates = 0;  ///< bit i: the operand at position i

  constexpr std::size_t least() const { return count - optionals; }
  constexpr std::size_t most() const { return repeats ? kMostRepeats : count; }

  /// Returns the position in the signature of operand `i` of an op that has `given` operands.
  /// Optional operands stand side by side, and the last ones are the first to be missing.
  constexpr std::size_t position(std::size_t i, std::size_t given) const {
    const std::size_t missing = given < count ? count - given : 0;
    const bool before = missing > optionals || i + missing < first_optional + optionals;
    return std::min<std::size_t>(before ? i : i + missing, repeats ? count - 1 : kMostOperands - 1);
  }
  /// Returns the operand at `position` of the signature, for an op that has `given` operands. It
  /// returns nothing where the op does not have it.
  constexpr std::optional<std::size_t> index(std::size_t position, std::size_t given) const {
    for (std::size_t i = 0; i < given; ++i) {
      if (this->position(i, given) == position) return i;
    }
    return std::nullopt;
  }
  constexpr std::optional<std::size_t> find(std::string_view name) const {
    for (std::size_t i = 0; i < count; ++i) {
      if (operands[i].name == name) return i;
    }
    return std::nullopt;
  }
  constexpr const SignatureOperand& operator[](std::size_t position) const {
    return operands[position];
  }
};

/// The text is INPUTS -> OUTPUTS, each a list of operands between commas. An operand is a NAME, a
/// type where it is not that of the op's values, [SHAPE], and ?, ... or +=. An output with the name
/// of an input is the same tensor. An operand without a shape has that of the benchmark's step
/// scalars:
///     "dy [n,r], x [n,r], gamma [r], rstd f32 [n] -> dx [n,r], dgamma [r] +="
struct Signature {
  OperandList inputs, outputs;

  constexpr Signature() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a row of the op table states a text.
  consteval Signature(const char* text) : Signature(read(text)) {}
  /// Reads a text. A text that is no signature breaks an invariant, or the build.
  static constexpr Signature read(std::string_view text);
};

/// A SignatureReader reads texts of the op table character by character.
class SignatureReader {
 public:
  constexpr explicit SignatureReader(std::string_view text) : text_(text) {}

  constexpr bool at_end() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ == text_.size();
  }
  constexpr bool take(std::string_view token) {
    if (at_end() || text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  constexpr void expect(std::string_view token) {
    if (!take(token)) fail();
  }
  /// Returns the text up to a character and takes both.
  constexpr std::string_view until(char end) {
    const std::size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != end) ++at_;
    if (at_ == text_.size()) fail();
    return text_.substr(begin, at_++ - begin);
  }
  constexpr std::string_view name() {
    if (at_end()) fail();
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_part_of_name(text_[at_])) ++at_;
    if (at_ == begin) fail();
    return text_.substr(begin, at_ - begin);
  }
  /// Returns whether a name begins here, and takes nothing.
  constexpr bool at_name() { return !at_end() && is_part_of_name(text_[at_]); }

  /// This is no constant expression, so that a wrong text stops the build.
  [[noreturn]] static void fail() { INVARIANT(false, "not a text of the op table"); }

 private:
  static constexpr bool is_part_of_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

namespace signature {

constexpr void read_type(SignatureReader& reader, SignatureOperand& operand) {
  if (operand.name == "scalars") operand.type = OperandType::f32;
  if (reader.take("f32")) operand.type = OperandType::f32;
  if (reader.take("any")) operand.type = OperandType::any;
  if (reader.take("u8")) operand.type = OperandType::u8;
  if (!reader.take("i32")) return;
  operand.type = OperandType::i32;
  if (reader.take("<")) operand.below = reader.until('>');
}

constexpr void append(OperandList& list, const SignatureOperand& operand) {
  if (list.count == OperandList::kMostOperands || list.repeats) SignatureReader::fail();
  if (operand.optional) {
    if (list.optionals == 0) list.first_optional = list.count;
    if (list.first_optional + list.optionals != list.count) SignatureReader::fail();
    ++list.optionals;
  }
  if (operand.accumulates) list.accumulates |= 1u << list.count;
  list.repeats = operand.repeated;
  list.operands[list.count++] = operand;
}

constexpr void read_operand(SignatureReader& reader, OperandList& list, const OperandList& before) {
  SignatureOperand operand;
  operand.name = reader.name();
  if (const auto same = before.find(operand.name)) {
    operand = before[*same];
    operand.optional = operand.repeated = false;
  }
  read_type(reader, operand);
  if (reader.take("[")) operand.shape = reader.until(']');
  operand.optional = reader.take("?");
  operand.repeated = reader.take("...");
  operand.accumulates = reader.take("+=");
  append(list, operand);
}

}  // namespace signature

constexpr Signature Signature::read(std::string_view text) {
  Signature result;
  SignatureReader reader(text);
  while (!reader.take("->")) {
    signature::read_operand(reader, result.inputs, {});
    reader.take(",");
  }
  while (!reader.at_end()) {
    signature::read_operand(reader, result.outputs, result.inputs);
    reader.take(",");
  }
  return result;
}

}  // namespace plimsoll
