// Operands that the references of ops work on.
#pragma once

#include <variant>
#include <vector>

#include "tests/runtime/op_cases.h"

namespace plimsoll {

using Numbers = std::vector<double>;

/// Operands of one op by position.
struct Operands {
  const OpCase& c;
  Values& values;
  const Numbers& in(std::size_t i) const { return values[c.op.inputs[i].index()]; }
  Numbers& out(std::size_t i) const { return values[c.op.outputs[i].index()]; }
  std::size_t in_dim(std::size_t i, std::size_t d) const {
    return std::size_t(c.input(i).shape[d]);
  }
  std::size_t out_dim(std::size_t i, std::size_t d) const {
    return std::size_t(c.output(i).shape[d]);
  }
  template <class Params>
  const Params& params() const {
    return std::get<Params>(c.op.params);
  }
};

/// The reference of ops that only some model families have; false for any other.
bool run_family_reference(const Operands& o);
/// The reference of flash attention; false for any other.
bool run_attention_reference(const Operands& o);

}  // namespace plimsoll
