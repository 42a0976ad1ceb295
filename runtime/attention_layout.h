// An AttentionLayout says which tokens the operands of an attention have, and where the heads of
// queries, keys and values lie in them. All backends read it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/batch_place.h"

namespace plimsoll {

/// The heads of queries, keys or values in one operand. Head `h` of the token in row `r` begins at
/// element offset + r stride + h head.
struct HeadsPlace {
  std::size_t operand;  ///< index of the op's input
  std::int64_t stride, head, offset;
};

/// Queries, keys and values of one op are packed in one operand [n,3,a,d]. Or queries are
/// [n,1,a,d], and keys and values are apart, [n,1,kv,d] and [n,1,kv,e]; or in one operand
/// [n,2,kv,d]; or side by side in each head, [n,1,kv,d+e].
struct AttentionLayout {
  SequencePart queries, keys;
  std::int64_t batch;
  std::int64_t heads, groups;  ///< of queries; queries for each key head
  std::int64_t depth, value_depth;
  /// The rank's first head and the number of heads, both of the whole model.
  std::int64_t first_head, all_heads;
  HeadsPlace q, k, v;
};

/// Returns the layout of `operands` inputs of an op, of which the first is input `first`. Request
/// is a backend's type for an op that is prepared.
template <class Request>
AttentionLayout attention_layout(const Request& request, const AttentionParams& params,
                                 std::size_t first, std::size_t operands) {
  const RankContext& context = request.context;
  const std::size_t of_keys = operands == 1 ? first : first + 1;
  const Shape &q = request.input(first).shape, &k = request.input(of_keys).shape;
  const Shape& v = request.input(first + operands - 1).shape;
  const std::int64_t heads = q[2], depth = q[3], key_heads = k[2];
  const bool beside = operands == 2 && k[1] == 1;  // in each head
  AttentionLayout at = {};
  at.batch = k[0] / params.sequence;
  at.heads = heads;
  at.groups = heads / key_heads;
  at.depth = depth;
  at.value_depth = value_width(operands, q, v);

  at.queries = own_tokens(context, q[0] / at.batch);
  at.keys = own_tokens(context, params.sequence);
  at.queries.batch = at.keys.batch = at.batch;
  const std::int64_t ranks = at.keys.ranks, own = at.keys.rank;
  const bool all = params.key_ranks > 1;
  at.keys.rank = all ? -1 : (own + ranks - params.round % ranks) % ranks;
  if (all && at.queries.tokens == at.keys.tokens) at.queries.rank = -1;

  // Queries of all tokens are those of some heads.
  const bool some = ranks > 1 && at.queries.rank < 0;
  const std::int64_t parts = some ? ranks : 1, part = some ? own : 0;
  const std::int64_t mp = context.program == nullptr ? 1 : context.program->grid[Axis::mp];
  at.first_head = (context.at[std::size_t(Axis::mp)] * parts + part) * heads;
  at.all_heads = mp * parts * heads;

  at.q = {first, q[1] * heads * depth, depth, 0};
  at.k = {of_keys, k[1] * key_heads * k[3], k[3], operands == 1 ? heads * depth : 0};
  at.v = {of_keys, at.k.stride, k[3], beside ? depth : at.k.offset + key_heads * depth};
  if (operands == 3) at.v = {first + 2, key_heads * v[3], v[3], 0};
  return at;
}

/// Returns the number of rows in which split_parts and join_parts have the two parts of a whole
/// side by side: rows of [n,parts*a*d]; or those of each head, [n*a,d], where the parts have
/// columns of one part.
inline std::int64_t rows_of_parts(const Tensor& whole, const Tensor& part) {
  const bool of_heads = whole.shape[1] == part.shape[1];
  return whole.shape[0] * (of_heads ? whole.shape[2] : 1);
}

}  // namespace plimsoll
