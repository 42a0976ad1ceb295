// The float64 reference of flash attention: the whole matrix of probabilities, head by head.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/runtime/op_families.h"

namespace plimsoll {

namespace {

/// One token of a sequence: its position there, and its row of an operand.
struct Token {
  std::size_t position, row;
};

constexpr std::int64_t kAllRanks = -1;

/// The tokens of each sequence that lie in an operand of `rows` rows, in ascending order of their
/// positions: those of one cp rank, or of all ranks, one rank after the other. A rank has a chunk
/// from the front and the same one from the back.
std::vector<std::vector<Token>> tokens_of(std::size_t rows, std::size_t batch, std::size_t ranks,
                                          std::int64_t only) {
  std::vector<std::vector<Token>> tokens(batch);
  const std::size_t count = rows / batch;
  for (std::size_t b = 0; b < batch; ++b) {
    if (ranks == 1) {
      for (std::size_t i = 0; i < count; ++i) tokens[b].push_back({i, b * count + i});
      continue;
    }
    const bool all = only == kAllRanks;
    const std::size_t chunk = count / (all ? ranks : 1) / 2;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (!all && std::int64_t(rank) != only) continue;
      const std::size_t first = ((all ? rank : 0) * batch + b) * 2 * chunk;
      for (std::size_t i = 0; i < chunk; ++i) {
        tokens[b].push_back({rank * chunk + i, first + i});
        tokens[b].push_back({(2 * ranks - 1 - rank) * chunk + i, first + chunk + i});
      }
    }
    std::ranges::sort(tokens[b], {}, &Token::position);
  }
  return tokens;
}

/// Where the elements of q, k and v lie in one, two or three operands.
class Heads {
 public:
  Heads(const Operands& o, bool backward)
      : first_(backward ? 1 : 0),
        operands_(o.c.op.inputs.size() - (backward ? 3 : 0)),
        heads(o.in_dim(first_, 2)),
        key_heads(operands_ == 1 ? heads : o.in_dim(first_ + 1, 2)),
        depth(o.in_dim(first_, 3)),
        beside_(operands_ == 2 && o.in_dim(first_ + 1, 1) == 1),
        value_depth(o.in_dim(first_ + operands_ - 1, 3) - (beside_ ? depth : 0)) {
    const auto& params = o.params<AttentionParams>();
    const std::size_t key_rows = o.in_dim(operands_ == 1 ? first_ : first_ + 1, 0);
    const std::size_t query_rows = o.in_dim(first_, 0);
    const std::size_t batch = key_rows / std::size_t(params.sequence);
    const std::int64_t ranks = o.c.program.grid[Axis::cp], own = o.c.at[std::size_t(Axis::cp)];
    const bool all = params.key_ranks > 1;
    const std::int64_t of_keys = all ? kAllRanks : (own + ranks - params.round) % ranks;
    const std::int64_t of_queries = all && query_rows == key_rows ? kAllRanks : own;
    // Ranks that have all queries have some of the heads.
    const bool of_some = ranks > 1 && of_queries == kAllRanks;
    const auto mp = std::size_t(o.c.at[std::size_t(Axis::mp)]);
    first_head = (of_some ? mp * std::size_t(ranks) + std::size_t(own) : mp) * heads;
    queries = tokens_of(query_rows, batch, std::size_t(ranks), of_queries);
    keys = tokens_of(key_rows, batch, std::size_t(ranks), of_keys);
  }

  std::size_t query(std::size_t token, std::size_t head, std::size_t i) const {
    return (token * (operands_ == 1 ? 3 : 1) * heads + head) * depth + i;
  }
  /// Part 0: keys, 1: values.
  std::size_t key(std::size_t part, std::size_t token, std::size_t head, std::size_t i) const {
    if (beside_)
      return (token * key_heads + head) * (depth + value_depth) + (part == 0 ? 0 : depth) + i;
    if (operands_ == 3) return (token * key_heads + head) * (part == 0 ? depth : value_depth) + i;
    const std::size_t parts = operands_ == 1 ? 3 : 2, before = operands_ == 1 ? 1 : 0;
    return ((token * parts + before + part) * key_heads + head) * depth + i;
  }
  std::size_t operand(std::size_t part) const { return first_ + gradient(part); }
  std::size_t gradient(std::size_t part) const {
    return operands_ == 1 ? 0 : operands_ == 2 ? 1 : 1 + part;
  }
  std::size_t y(std::size_t token, std::size_t head, std::size_t i) const {
    return (token * heads + head) * value_depth + i;
  }
  /// `index` is the query's place among those of its sequence.
  std::size_t statistic(std::size_t b, std::size_t head, std::size_t index) const {
    return (b * heads + head) * queries[b].size() + index;
  }

 private:
  std::size_t first_, operands_;

 public:
  std::size_t heads, key_heads, depth;

 private:
  bool beside_;  ///< the value of each head lies behind its key

 public:
  std::size_t value_depth, first_head = 0;
  std::vector<std::vector<Token>> queries, keys;  ///< by sequence
};

/// visit(row of the query, head, row of the key, key head, statistic, scaled and capped score) of
/// what is seen.
template <class Visit>
void for_each_score(const Operands& o, const Heads& h, const Numbers& q, const Numbers& k,
                    Visit visit) {
  const auto& params = o.params<AttentionParams>();
  for (std::size_t b = 0; b < h.queries.size(); ++b) {
    for (std::size_t a = 0; a < h.heads; ++a) {
      const std::size_t group = a / (h.heads / h.key_heads);
      for (std::size_t i = 0; i < h.queries[b].size(); ++i) {
        const Token& from = h.queries[b][i];
        const std::size_t begin = example_of(o.c, b, from.position).first;
        for (const Token& to : h.keys[b]) {
          if (params.causal && to.position > from.position) continue;
          if (to.position < begin) continue;
          if (params.window > 0 && !params.chunks &&
              from.position - to.position >= std::size_t(params.window))
            continue;
          if (params.chunks && (from.position - begin) / std::size_t(params.window) !=
                                   (to.position - begin) / std::size_t(params.window))
            continue;
          double score = 0;
          for (std::size_t d = 0; d < h.depth; ++d)
            score += q[h.query(from.row, a, d)] * k[h.key(0, to.row, group, d)];
          score *= params.scale;
          if (params.soft_cap > 0) score = params.soft_cap * std::tanh(score / params.soft_cap);
          if (params.alibi_heads > 0) {
            const auto heads = std::size_t(params.alibi_heads);
            score -= params.alibi_scale * alibi_slope_by_hand(h.first_head + a, heads) *
                     double(from.position - to.position);
          }
          visit(from.row, a, to.row, group, h.statistic(b, a, i), score);
        }
      }
    }
  }
}

/// A query that sees no key has the result 0, and minus infinity.
void forward(const Operands& o) {
  const Heads h(o, false);
  const Numbers &q = o.in(0), &k = o.in(h.operand(0)), &v = o.in(h.operand(1));
  Numbers &y = o.out(0), &sums = o.out(1);
  y.assign(y.size(), 0);
  sums.assign(sums.size(), 0);
  for_each_score(o, h, q, k,
                 [&](std::size_t from, std::size_t a, std::size_t to, std::size_t group,
                     std::size_t at, double score) {
                   sums[at] += std::exp(score);
                   for (std::size_t d = 0; d < h.value_depth; ++d)
                     y[h.y(from, a, d)] += std::exp(score) * v[h.key(1, to, group, d)];
                 });
  for (std::size_t b = 0; b < h.queries.size(); ++b) {
    for (std::size_t a = 0; a < h.heads; ++a) {
      for (std::size_t i = 0; i < h.queries[b].size(); ++i) {
        double& sum = sums[h.statistic(b, a, i)];
        for (std::size_t d = 0; d < h.value_depth && sum > 0; ++d)
          y[h.y(h.queries[b][i].row, a, d)] /= sum;
        sum = std::log(sum);
      }
    }
  }
}

void backward(const Operands& o) {
  const Heads h(o, true);
  const std::size_t inputs = o.c.op.inputs.size();
  const Numbers &dy = o.in(0), &q = o.in(1), &k = o.in(h.operand(0)), &v = o.in(h.operand(1));
  const Numbers &y = o.in(inputs - 2), &sums = o.in(inputs - 1);
  for (TensorId id : o.c.op.outputs) o.values[id.index()].assign(o.values[id.index()].size(), 0);
  Numbers &dq = o.out(0), &dk = o.out(h.gradient(0)), &dv = o.out(h.gradient(1));
  const auto& params = o.params<AttentionParams>();
  for_each_score(o, h, q, k,
                 [&](std::size_t from, std::size_t a, std::size_t to, std::size_t group,
                     std::size_t at, double score) {
                   const double p = std::exp(score - sums[at]);
                   double dp = 0, delta = 0;
                   for (std::size_t d = 0; d < h.value_depth; ++d) {
                     const double slope = dy[h.y(from, a, d)];
                     dp += slope * v[h.key(1, to, group, d)];
                     delta += slope * y[h.y(from, a, d)];
                     dv[h.key(1, to, group, d)] += p * slope;
                   }
                   const double capped = params.soft_cap > 0 ? score / params.soft_cap : 0;
                   const double ds = params.scale * p * (dp - delta) * (1 - capped * capped);
                   for (std::size_t d = 0; d < h.depth; ++d) {
                     dq[h.query(from, a, d)] += ds * k[h.key(0, to, group, d)];
                     dk[h.key(0, to, group, d)] += ds * q[h.query(from, a, d)];
                   }
                 });
}

}  // namespace

bool run_attention_reference(const Operands& o) {
  if (o.c.op.kind == OpKind::flash_attention) {
    forward(o);
    return true;
  }
  if (o.c.op.kind == OpKind::flash_attention_backward) {
    backward(o);
    return true;
  }
  return false;
}

}  // namespace plimsoll
