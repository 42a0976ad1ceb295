// AttentionOperands says which tokens an attention has, where they lie, and which see which.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "runtime/attention_layout.h"
#include "runtime/cpu/kernels.h"

namespace plimsoll {

/// A RowRange is one of rows, or of keys in a tile.
struct RowRange {
  std::int64_t begin, end;
  std::int64_t count() const { return end - begin; }
};

/// AttentionOperands has the layout of queries, keys and values of an op, and which see which.
struct AttentionOperands : AttentionLayout {
  DType type;
  AttentionParams params;

  AttentionOperands(const KernelRequest& request, std::size_t first, std::size_t operands)
      : AttentionLayout(
            attention_layout(request, request.params<AttentionParams>(), first, operands)),
        type(request.input(first).dtype),
        params(request.params<AttentionParams>()) {}

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
