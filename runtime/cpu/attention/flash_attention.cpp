// Flash attention on the CPU: tiles of scores in scratch memory, never whole rows of them (Dao et
// al. 2022, arXiv 2205.14135). It is for ranks that share sequences: queries and keys may be parts
// of a sequence (runtime/sequence_part.h), and a query that sees no key of a part has the result 0
// and the log-sum-exp minus infinity.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "graph/op_table.h"
#include "runtime/cpu/attention/attention_operands.h"
#include "runtime/cpu/attention/score_dropout.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/onednn.h"
#include "runtime/cpu/vectorize.h"
#include "runtime/half.h"

namespace plimsoll {

namespace {

constexpr std::int64_t kQueries = 64, kKeys = 128;  // rows of the tiles
constexpr float kUnseen = -std::numeric_limits<float>::infinity();

/// Maximum over scaled scores. Lanes keep all variants of the function alike.
PLIMSOLL_VECTORIZE float largest(const float* scores, std::int64_t count) {
  constexpr std::int64_t kLanes = 16;
  float lanes[kLanes];
  for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] = kUnseen;
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
#pragma omp simd
    for (std::int64_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] = scores[i + lane] > lanes[lane] ? scores[i + lane] : lanes[lane];
  }
  for (; i < count; ++i) lanes[0] = std::max(lanes[0], scores[i]);
  return *std::max_element(lanes, lanes + kLanes);
}

/// p = exp(scores * scale - most); returns their sum.
PLIMSOLL_VECTORIZE float exponentials(float* scores, std::int64_t count, float scale, float most) {
  constexpr std::int64_t kLanes = 16;
  float lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
#pragma omp simd
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      scores[i + lane] = fast_exp(scores[i + lane] * scale - most);
      lanes[lane] += scores[i + lane];
    }
  }
  for (; i < count; ++i) lanes[0] += scores[i] = fast_exp(scores[i] * scale - most);
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

PLIMSOLL_VECTORIZE void multiply(float* values, float factor, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) values[i] *= factor;
}

/// ds = p (dp - delta), in place of dp.
PLIMSOLL_VECTORIZE void slopes(const float* p, float* dp, float delta, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) dp[i] = p[i] * (dp[i] - delta);
}

/// Scaled scores x become cap tanh(x / cap), and are divided by the scale again.
void cap_scores(float* scores, std::int64_t count, float scale, float cap) {
  for (std::int64_t i = 0; i < count; ++i)
    scores[i] = cap * std::tanh(scores[i] * scale / cap) / scale;
}

/// ds is multiplied by the slope of the cap: 1 - (x / cap)^2 of capped scores x.
void cap_slopes(const float* scores, float* ds, std::int64_t count, float scale, float cap) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float share = scores[i] * scale / cap;
    ds[i] *= 1 - share * share;
  }
}

/// Adds the bias by distance to the scores of one query, which are not scaled yet. `seen` counts
/// from the first of `keys`.
void add_distances(const AttentionOperands& s, std::int64_t batch, std::int64_t head,
                   std::int64_t query, RowRange keys, RowRange seen, float* scores) {
  const float slope =
      alibi_slope(s.first_head + head, s.params.alibi_heads, float(s.params.alibi_scale));
  const std::int64_t at = s.position(s.queries, batch, query);
  for (std::int64_t i = seen.begin; i < seen.end; ++i) {
    const std::int64_t key = s.position(s.keys, batch, keys.begin + i);
    scores[i] += slope * float(key - at) / float(s.params.scale);
  }
}

/// A tile of rows of one head as dense f32.
struct Tile {
  std::int64_t rows, depth;
  float* values;
  Tile(std::int64_t rows_, std::int64_t depth_, Scratch& scratch)
      : rows(rows_), depth(depth_), values(scratch.take_floats(rows_ * depth_)) {}
  float* row(std::int64_t i) const { return values + i * depth; }
  void clear() const { std::fill_n(values, rows * depth, 0.0f); }

  /// Loads the rows of `range` and fills up with zeros.
  void load(const std::byte* base, const AttentionOperands& s, const HeadsPlace& place,
            const SequencePart& part, std::int64_t batch, std::int64_t head, RowRange range) const {
    for (std::int64_t i = 0; i < range.count(); ++i) {
      const std::int64_t at = s.element(place, part, batch, head, range.begin + i);
      to_f32(s.type, base + at * element_bytes(s.type), row(i), depth);
    }
    std::fill(row(range.count()), row(rows), 0.0f);
  }
  void store(std::byte* base, const AttentionOperands& s, const HeadsPlace& place,
             const SequencePart& part, std::int64_t batch, std::int64_t head,
             RowRange range) const {
    for (std::int64_t i = 0; i < range.count(); ++i) {
      const std::int64_t at = s.element(place, part, batch, head, range.begin + i);
      from_f32(s.type, row(i), base + at * element_bytes(s.type), depth);
    }
  }
};

/// c = a b, or c += a b, of dense f32 matrices m x k and k x n.
class Product {
 public:
  Product(const KernelRequest& request, Scratch& scratch, std::int64_t m, std::int64_t k,
          std::int64_t n, bool transposes_a, bool transposes_b, bool adds)
      : primitive_(make(request, scratch, m, k, n, transposes_a, transposes_b, adds)) {}

  void run(const float* a, const float* b, float* c) {
    primitive_.set(DNNL_ARG_SRC, a);
    primitive_.set(DNNL_ARG_WEIGHTS, b);
    primitive_.set(DNNL_ARG_DST, c);
    primitive_.execute();
  }

 private:
  static Primitive make(const KernelRequest& request, Scratch& scratch, std::int64_t m,
                        std::int64_t k, std::int64_t n, bool transposes_a, bool transposes_b,
                        bool adds) {
    using dnnl::memory;
    const auto matrix = [](std::int64_t rows, std::int64_t columns, bool transposed) {
      return memory::desc({rows, columns}, memory::data_type::f32,
                          {transposed ? 1 : columns, transposed ? rows : 1});
    };
    const memory::desc a = matrix(m, k, transposes_a), b = matrix(k, n, transposes_b);
    const memory::desc c = matrix(m, n, false);
    dnnl::primitive_attr attributes = scratchpad_attributes();
    if (adds) {
      dnnl::post_ops post_ops;
      post_ops.append_sum();
      attributes.set_post_ops(post_ops);
    }
    const dnnl::matmul::primitive_desc descriptor({a, b, c}, attributes, request.library.engine);
    Primitive product(request.library, descriptor, scratch);
    product.declare(DNNL_ARG_SRC, a);
    product.declare(DNNL_ARG_WEIGHTS, b);
    product.declare(DNNL_ARG_DST, c);
    return product;
  }
  Primitive primitive_;
};

/// Calls visit(tile) for tiles of `rows` from range.begin on.
template <class Visit>
void each_tile(RowRange range, std::int64_t rows, Visit visit) {
  for (std::int64_t at = range.begin; at < range.end; at += rows)
    visit(RowRange{at, std::min(at + rows, range.end)});
}

/// Tiles has what forward and backward share.
struct Tiles {
  AttentionOperands s;
  std::int64_t rows, columns;  ///< of a tile of scores
  Tile q, k, v, scores;
  Product score;  ///< queries times keys transposed

  Tiles(const KernelRequest& request, std::size_t first, std::size_t operands, Scratch& scratch)
      : s(request, first, operands),
        rows(std::min(kQueries, s.queries.tokens)),
        columns(std::min(kKeys, s.keys.tokens)),
        q(rows, s.depth, scratch),
        k(columns, s.depth, scratch),
        v(columns, s.value_depth, scratch),
        scores(rows, columns, scratch),
        score(request, scratch, rows, s.depth, columns, false, true, false) {}

  void load_queries(Addresses in, std::int64_t batch, std::int64_t head, RowRange tile) const {
    q.load(in[s.q.operand], s, s.q, s.queries, batch, head, tile);
  }
  void load_keys(Addresses in, std::int64_t batch, std::int64_t head, RowRange tile) const {
    k.load(in[s.k.operand], s, s.k, s.keys, batch, head / s.groups, tile);
    v.load(in[s.v.operand], s, s.v, s.keys, batch, head / s.groups, tile);
  }
  std::int64_t statistic(std::int64_t batch, std::int64_t head, std::int64_t query) const {
    return (batch * s.heads + head) * s.queries.tokens + query;
  }
};

class FlashAttention final : public Kernel {
 public:
  explicit FlashAttention(const KernelRequest& request)
      : FlashAttention(request, Scratch(request)) {}

  void run(Addresses in, Addresses out, const RunPosition& position) override {
    const AttentionOperands& s = t_.s;
    t_.s.examples.read(position);
    for (std::int64_t batch = 0; batch < s.batch; ++batch) {
      for (std::int64_t head = 0; head < s.heads; ++head) {
        each_tile({0, s.queries.tokens}, t_.rows,
                  [&](RowRange tile) { run_tile(in, out, position, batch, head, tile); });
      }
    }
  }
  Flops flops() const override { return flops_; }

 private:
  FlashAttention(const KernelRequest& request, Scratch scratch)
      : t_(request, 0, request.op.inputs.size(), scratch),
        y_(t_.rows, t_.s.value_depth, scratch),
        most_(scratch.take_floats(t_.rows)),
        sum_(scratch.take_floats(t_.rows)),
        dropout_(request, t_.s, t_.columns, scratch),
        value_(request, scratch, t_.rows, t_.columns, t_.s.value_depth, false, false, true),
        flops_(plimsoll::flops(request.op, request.tensors)) {}

  void run_tile(Addresses in, Addresses out, const RunPosition& position, std::int64_t batch,
                std::int64_t head, RowRange tile) {
    const AttentionOperands& s = t_.s;
    t_.load_queries(in, batch, head, tile);
    y_.clear();
    std::fill_n(most_, t_.rows, kUnseen);
    std::fill_n(sum_, t_.rows, 0.0f);
    each_tile(s.keys_of(batch, tile), t_.columns, [&](RowRange keys) {
      t_.load_keys(in, batch, head, keys);
      t_.score.run(t_.q.values, t_.k.values, t_.scores.values);
      for (std::int64_t i = 0; i < t_.rows; ++i) {
        const std::int64_t query = tile.begin + i;
        const RowRange seen = query < tile.end ? s.seen(batch, query, keys) : RowRange{0, 0};
        weigh(i, batch, head, query, keys, seen);
        if (dropout_.draws())
          dropout_.apply(s, position, batch, head, query, keys, seen, t_.scores.row(i));
      }
      value_.run(t_.scores.values, t_.v.values, y_.values);
    });
    auto* const sums = reinterpret_cast<float*>(out[1]) + t_.statistic(batch, head, tile.begin);
    for (std::int64_t i = 0; i < tile.count(); ++i) {
      if (sum_[i] > 0) multiply(y_.row(i), 1 / sum_[i], s.value_depth);
      sums[i] = sum_[i] > 0 ? most_[i] + std::log(sum_[i]) : kUnseen;
    }
    const HeadsPlace to{0, s.heads * s.value_depth, s.value_depth, 0};
    y_.store(out[0], s, to, s.queries, batch, head, tile);
  }

  /// Makes the scores of a row probabilities up to a factor, which the row has so far.
  void weigh(std::int64_t i, std::int64_t batch, std::int64_t head, std::int64_t query,
             RowRange keys, RowRange seen) {
    float* const row = t_.scores.row(i);
    const auto scale = float(t_.s.params.scale);
    std::fill(row, row + seen.begin, 0.0f);
    std::fill(row + seen.end, row + t_.columns, 0.0f);
    if (seen.count() == 0) return;
    if (t_.s.params.soft_cap > 0)
      cap_scores(row + seen.begin, seen.count(), scale, float(t_.s.params.soft_cap));
    if (t_.s.params.alibi_heads > 0) add_distances(t_.s, batch, head, query, keys, seen, row);
    const float most = std::max(most_[i], scale * largest(row + seen.begin, seen.count()));
    const float shrink = std::exp(most_[i] - most);
    sum_[i] = sum_[i] * shrink + exponentials(row + seen.begin, seen.count(), scale, most);
    most_[i] = most;
    multiply(y_.row(i), shrink, t_.s.value_depth);
  }

  Tiles t_;
  Tile y_;
  float *most_, *sum_;
  ScoreDropout dropout_;
  Product value_;
  Flops flops_;
};

/// The scores are computed twice: tiles of keys walk over the queries for dk and dv, then tiles of
/// queries over the keys for dq. So each gradient is summed in f32 and rounded once.
class FlashAttentionBackward final : public Kernel {
 public:
  explicit FlashAttentionBackward(const KernelRequest& request)
      : FlashAttentionBackward(request, Scratch(request)) {}

  void run(Addresses in, Addresses out, const RunPosition& position) override {
    const AttentionOperands& s = t_.s;
    t_.s.examples.read(position);
    for (std::int64_t batch = 0; batch < s.batch; ++batch) {
      for (std::int64_t key_head = 0; key_head < s.heads / s.groups; ++key_head) {
        each_tile({0, s.keys.tokens}, t_.columns,
                  [&](RowRange keys) { key_gradients(in, out, position, batch, key_head, keys); });
      }
      for (std::int64_t head = 0; head < s.heads; ++head) {
        each_tile({0, s.queries.tokens}, t_.rows,
                  [&](RowRange tile) { query_gradients(in, out, position, batch, head, tile); });
      }
    }
  }
  Flops flops() const override { return flops_; }

 private:
  FlashAttentionBackward(const KernelRequest& request, Scratch scratch)
      : operands_(request.op.inputs.size() - 3),
        t_(request, 1, operands_, scratch),
        dy_(t_.rows, t_.s.value_depth, scratch),
        y_(t_.rows, t_.s.value_depth, scratch),
        dp_(t_.rows, t_.columns, scratch),
        dq_(t_.rows, t_.s.depth, scratch),
        dk_(t_.columns, t_.s.depth, scratch),
        dv_(t_.columns, t_.s.value_depth, scratch),
        capped_(t_.s.params.soft_cap > 0 ? scratch.take_floats(t_.columns) : nullptr),
        delta_(scratch.take_floats(t_.rows)),
        dropout_(request, t_.s, t_.columns, scratch),
        slope_(request, scratch, t_.rows, t_.s.value_depth, t_.columns, false, true, false),
        to_keys_(request, scratch, t_.columns, t_.rows, t_.s.depth, true, false, true),
        to_values_(request, scratch, t_.columns, t_.rows, t_.s.value_depth, true, false, true),
        to_queries_(request, scratch, t_.rows, t_.columns, t_.s.depth, false, false, true),
        flops_(plimsoll::flops(request.op, request.tensors)) {}

  void key_gradients(Addresses in, Addresses out, const RunPosition& position, std::int64_t batch,
                     std::int64_t key_head, RowRange keys) {
    const AttentionOperands& s = t_.s;
    dk_.clear();
    dv_.clear();
    t_.load_keys(in, batch, key_head * s.groups, keys);
    for (std::int64_t head = key_head * s.groups; head < (key_head + 1) * s.groups; ++head) {
      each_tile(s.queries_of(batch, keys), t_.rows, [&](RowRange tile) {
        load_slopes(in, batch, head, tile);
        make_slopes(in, position, batch, head, tile, keys);
        to_values_.run(t_.scores.values, dy_.values, dv_.values);
        to_keys_.run(dp_.values, t_.q.values, dk_.values);
      });
    }
    multiply(dk_.values, float(s.params.scale), dk_.rows * s.depth);
    dk_.store(out[s.k.operand - 1], s, s.k, s.keys, batch, key_head, keys);
    dv_.store(out[s.v.operand - 1], s, s.v, s.keys, batch, key_head, keys);
  }

  void query_gradients(Addresses in, Addresses out, const RunPosition& position, std::int64_t batch,
                       std::int64_t head, RowRange tile) {
    const AttentionOperands& s = t_.s;
    dq_.clear();
    load_slopes(in, batch, head, tile);
    each_tile(s.keys_of(batch, tile), t_.columns, [&](RowRange keys) {
      t_.load_keys(in, batch, head, keys);
      make_slopes(in, position, batch, head, tile, keys);
      to_queries_.run(dp_.values, t_.k.values, dq_.values);
    });
    multiply(dq_.values, float(s.params.scale), dq_.rows * s.depth);
    dq_.store(out[0], s, s.q, s.queries, batch, head, tile);
  }

  /// Loads q and dy of a tile, and sums delta = dy y over a head.
  void load_slopes(Addresses in, std::int64_t batch, std::int64_t head, RowRange tile) const {
    const AttentionOperands& s = t_.s;
    const HeadsPlace of_y{0, s.heads * s.value_depth, s.value_depth, 0};
    t_.load_queries(in, batch, head, tile);
    dy_.load(in[0], s, of_y, s.queries, batch, head, tile);
    y_.load(in[1 + operands_], s, of_y, s.queries, batch, head, tile);
    for (std::int64_t i = 0; i < t_.rows; ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < s.value_depth; ++j)
        sum += double(dy_.row(i)[j]) * double(y_.row(i)[j]);
      delta_[i] = float(sum);
    }
  }

  /// Makes scores the probabilities that y was summed with, and dp their slopes ds.
  void make_slopes(Addresses in, const RunPosition& position, std::int64_t batch, std::int64_t head,
                   RowRange tile, RowRange keys) {
    const AttentionOperands& s = t_.s;
    const auto* sums = reinterpret_cast<const float*>(in[2 + operands_]);
    t_.score.run(t_.q.values, t_.k.values, t_.scores.values);
    slope_.run(dy_.values, t_.v.values, dp_.values);
    for (std::int64_t i = 0; i < t_.rows; ++i) {
      const std::int64_t query = tile.begin + i;
      const RowRange seen = query < tile.end ? s.seen(batch, query, keys) : RowRange{0, 0};
      float *const p = t_.scores.row(i), *const dp = dp_.row(i);
      for (float* const row : {p, dp}) {
        std::fill(row, row + seen.begin, 0.0f);
        std::fill(row + seen.end, row + t_.columns, 0.0f);
      }
      if (seen.count() == 0) continue;
      const auto scale = float(s.params.scale), cap = float(s.params.soft_cap);
      if (cap > 0) {
        cap_scores(p + seen.begin, seen.count(), scale, cap);
        std::copy(p + seen.begin, p + seen.end, capped_);
      }
      if (s.params.alibi_heads > 0) add_distances(s, batch, head, query, keys, seen, p);
      exponentials(p + seen.begin, seen.count(), scale, sums[t_.statistic(batch, head, query)]);
      if (dropout_.draws()) dropout_.apply(s, position, batch, head, query, keys, seen, dp);
      slopes(p + seen.begin, dp + seen.begin, delta_[i], seen.count());
      if (cap > 0) cap_slopes(capped_, dp + seen.begin, seen.count(), scale, cap);
      if (dropout_.draws()) dropout_.apply(s, position, batch, head, query, keys, seen, p);
    }
  }

  std::size_t operands_;
  Tiles t_;
  Tile dy_, y_, dp_, dq_, dk_, dv_;
  float *capped_, *delta_;
  ScoreDropout dropout_;
  Product slope_, to_keys_, to_values_, to_queries_;
  Flops flops_;
};

}  // namespace

KernelPointer prepare_flash_attention(const KernelRequest& request) {
  return std::make_unique<FlashAttention>(request);
}

KernelPointer prepare_flash_attention_backward(const KernelRequest& request) {
  return std::make_unique<FlashAttentionBackward>(request);
}

}  // namespace plimsoll
