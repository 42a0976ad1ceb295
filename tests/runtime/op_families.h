// Families of op cases: each of these files has the cases of some kinds and, beside them, the
// float64 references of these kinds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
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

/// The meaning of one kind, in the plainest loops.
struct OpReference {
  OpKind kind;
  void (*run)(const Operands& o);
};

struct OpFamily {
  void (*add_cases)(std::vector<OpCase>& cases, const OpSizes& sizes);
  std::span<const OpReference> references;
};
extern const OpFamily kElementwiseOps;  // elementwise_cases.cpp
extern const OpFamily kNormOps;         // norm_cases.cpp
extern const OpFamily kMatmulOps;       // matmul_cases.cpp
extern const OpFamily kHeadOps;         // head_cases.cpp
extern const OpFamily kContextOps;      // context_cases.cpp
extern const OpFamily kDataOps;         // data_cases.cpp
extern const OpFamily kLossOps;         // loss_cases.cpp
extern const OpFamily kRouterOps;       // router_cases.cpp
extern const OpFamily kExpertOps;       // expert_cases.cpp

/// The slope of ALiBi, by the ratio of one slope to the next, as Press et al. 2022 state it for a
/// power of 2 (head_cases.cpp).
double alibi_slope_by_hand(std::size_t head, std::size_t heads);

/// The reference of flash attention; false for any other.
bool run_attention_reference(const Operands& o);

// Shared by references and cases of several families.
/// out(0)[i] = f(i).
template <class Function>
void each(const Operands& o, Function f) {
  for (std::size_t i = 0; i < o.out(0).size(); ++i) o.out(0)[i] = f(i);
}
/// Adds a row of values to every row.
void add_row(const Operands& o);
/// out(0)[i mod its size] += in(0)[i]: gradient of something that was broadcast.
void sum_over_rows(const Operands& o);
/// Random ids with the first and last row of the vocabulary and of its halves among them.
Operand token_ids(std::string name, std::int64_t count, std::int64_t below, std::uint64_t seed);
/// The first row of the vocabulary that the case's rank holds, where each holds `rows`.
std::int64_t first_row(const Operands& o, std::int64_t rows);
/// Puts the case at the last of two replicas' second micro-batch.
void place_in_batch(OpCase& c, const OpSizes& z);
/// Lets the case's sequences consist of examples, and places it as place_in_batch() does.
void give_examples(OpCase& c, std::int64_t batch, std::int64_t sequence);
/// The first position, and the end, of the example of a token in the case's sequence `of`. Padding
/// is in an example of one token; where the case has no examples, each sequence is one.
std::pair<std::size_t, std::size_t> example_of(const OpCase& c, std::size_t of,
                                               std::size_t position);
/// The number of the first sequence of the case's micro-batch in its step.
std::int64_t first_sequence(const OpCase& c);

}  // namespace plimsoll
