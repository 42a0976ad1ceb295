// AttentionOperands says which tokens an attention has, where they lie, and which see which.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "runtime/attention_layout.h"
#include "runtime/cpu/kernels.h"
#include "runtime/example_reader.h"

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
  ExampleReader examples;

  AttentionOperands(const KernelRequest& request, std::size_t first, std::size_t operands)
      : AttentionLayout(
            attention_layout(request, request.params<AttentionParams>(), first, operands)),
        type(request.input(first).dtype),
        params(request.params<AttentionParams>()),
        examples(request.context) {}

  /// Returns the keys that the queries of a range see in sequence `of`.
  RowRange keys_of(std::int64_t of, RowRange range) const {
    if (!params.causal) return {0, keys.tokens};
    const std::int64_t first = position(queries, of, range.begin),
                       last = position(queries, of, range.end - 1);
    return {before(keys, of, first_seen(of, first)), before(keys, of, last + 1)};
  }
  /// Returns the queries that see a range of keys.
  RowRange queries_of(std::int64_t of, RowRange range) const {
    if (!params.causal) return {0, queries.tokens};
    const std::int64_t first = position(keys, of, range.begin),
                       last = position(keys, of, range.end - 1);
    return {before(queries, of, first), before(queries, of, end_of_seeing(of, last))};
  }
  /// Returns the position of the i-th token of a part of sequence `of`.
  std::int64_t position(const SequencePart& part, std::int64_t of, std::int64_t i) const {
    return examples.position(part, of, i);
  }
  /// Returns the first position that one at `position` sees, and the end of those that see it.
  std::int64_t first_seen(std::int64_t of, std::int64_t position) const {
    const std::int64_t begin = examples.begin(of, position);
    if (params.window == 0) return begin;
    const std::int64_t before = position - begin;
    return begin + (params.chunks ? before / params.window * params.window
                                  : std::max<std::int64_t>(before - params.window + 1, 0));
  }
  std::int64_t end_of_seeing(std::int64_t of, std::int64_t position) const {
    const std::int64_t begin = examples.begin(of, position), end = examples.end(of, position);
    if (params.window == 0) return end;
    const std::int64_t before = position - begin;
    return std::min(end, params.chunks ? begin + (before / params.window + 1) * params.window
                                       : position + params.window);
  }
  /// Returns the keys of `tile` that one query sees, counted from the tile's first.
  RowRange seen(std::int64_t of, std::int64_t query, RowRange tile) const {
    const RowRange all = keys_of(of, {query, query + 1});
    const std::int64_t begin = std::clamp(all.begin, tile.begin, tile.end);
    return {begin - tile.begin, std::max(begin, std::min(all.end, tile.end)) - tile.begin};
  }
  /// Returns the first element of a head of the i-th token of a part of sequence `of`.
  std::int64_t element(const HeadsPlace& place, const SequencePart& part, std::int64_t of,
                       std::int64_t head, std::int64_t i) const {
    return examples.row(part, of, i) * place.stride + place.offset + head * place.head;
  }

 private:
  std::int64_t before(const SequencePart& part, std::int64_t of, std::int64_t position) const {
    return examples.before(part, of, position);
  }
};

}  // namespace plimsoll
