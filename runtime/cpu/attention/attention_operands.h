// AttentionOperands says which tokens an attention has, where they lie, and which see which.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "runtime/batch_place.h"
#include "runtime/cpu/kernels.h"

namespace plimsoll {

/// A RowRange is one of rows, or of keys in a tile.
struct RowRange {
  std::int64_t begin, end;
  std::int64_t count() const { return end - begin; }
};

/// PartPlace says where the rows of one operand [n,parts,heads,depth] are, for one of its parts.
struct PartPlace {
  std::size_t operand;          ///< index of the input or output
  std::int64_t stride, offset;  ///< elements from token to token; of the part
};

/// AttentionOperands has the queries, keys and values of an op, packed in one, two or three
/// operands.
struct AttentionOperands {
  SequencePart queries, keys;
  std::int64_t batch, heads, groups, depth;
  std::int64_t value_depth;  ///< columns of a head's value
  std::int64_t first_head;   ///< of this rank, among those of the model
  DType type;
  PartPlace q, k, v;
  AttentionParams params;

  AttentionOperands(const KernelRequest& request, std::size_t first, std::size_t operands)
      : params(request.params<AttentionParams>()) {
    const Shape& q_shape = request.input(first).shape;
    const Shape& k_shape = operands == 1 ? q_shape : request.input(first + 1).shape;
    type = request.input(first).dtype;
    heads = q_shape[2];
    depth = q_shape[3];
    value_depth = request.input(first + operands - 1).shape[3];
    first_head = request.context.at[std::size_t(Axis::mp)] * heads;
    groups = heads / k_shape[2];
    batch = k_shape[0] / params.sequence;
    const std::int64_t query_width = heads * depth, key_width = k_shape[2] * depth;
    q = {first, q_shape[1] * query_width, 0};
    const std::int64_t parts = k_shape[1];
    k = {operands == 1 ? first : first + 1, parts * key_width, operands == 1 ? query_width : 0};
    v = operands == 3 ? PartPlace{first + 2, k_shape[2] * value_depth, 0}
                      : PartPlace{k.operand, k.stride, k.offset + key_width};
    const Tensor& of_keys = request.input(operands == 1 ? first : first + 1);
    const AttentionParts parts_of =
        attention_parts(request.context, params, request.input(first), of_keys);
    queries = parts_of.queries;
    keys = parts_of.keys;
  }

  /// Returns the keys that the queries of a range see.
  RowRange keys_of(RowRange range) const {
    if (!params.causal) return {0, keys.tokens};
    const std::int64_t first = queries.position(range.begin),
                       last = queries.position(range.end - 1);
    return {params.window > 0 ? keys.before(first_seen(first)) : 0, keys.before(last + 1)};
  }
  /// Returns the queries that see a range of keys.
  RowRange queries_of(RowRange range) const {
    if (!params.causal) return {0, queries.tokens};
    const std::int64_t last = keys.position(range.end - 1);
    return {queries.before(keys.position(range.begin)),
            params.window > 0 ? queries.before(end_of_seeing(last)) : queries.tokens};
  }
  /// With a window: the first position that one at `position` sees, and the end of those that see
  /// it.
  std::int64_t first_seen(std::int64_t position) const {
    return params.chunks ? position / params.window * params.window : position - params.window + 1;
  }
  std::int64_t end_of_seeing(std::int64_t position) const {
    return params.chunks ? (position / params.window + 1) * params.window
                         : position + params.window;
  }
  /// Returns the keys of `tile` that one query sees, counted from the tile's first.
  RowRange seen(std::int64_t query, RowRange tile) const {
    const RowRange all = keys_of({query, query + 1});
    const std::int64_t begin = std::clamp(all.begin, tile.begin, tile.end);
    return {begin - tile.begin, std::max(begin, std::min(all.end, tile.end)) - tile.begin};
  }
};

}  // namespace plimsoll
