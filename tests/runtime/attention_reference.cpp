// The float64 reference of flash attention: the whole matrix of probabilities, head by head.
#include <cmath>

#include "tests/runtime/op_families.h"

namespace plimsoll {

namespace {

/// Where the elements of q, k and v lie in one, two or three operands.
class Heads {
 public:
  Heads(const Operands& o, bool backward)
      : first_(backward ? 1 : 0),
        operands_(o.c.op.inputs.size() - (backward ? 3 : 0)),
        heads(o.in_dim(first_, 2)),
        key_heads(operands_ == 1 ? heads : o.in_dim(first_ + 1, 2)),
        depth(o.in_dim(first_, 3)),
        sequence(std::size_t(o.params<AttentionParams>().sequence)),
        batch(o.in_dim(first_, 0) / sequence) {}

  std::size_t query(std::size_t token, std::size_t head, std::size_t i) const {
    return (token * (operands_ == 1 ? 3 : 1) * heads + head) * depth + i;
  }
  /// Part 0: keys, 1: values.
  std::size_t key(std::size_t part, std::size_t token, std::size_t head, std::size_t i) const {
    if (operands_ == 3) return (token * key_heads + head) * depth + i;
    const std::size_t parts = operands_ == 1 ? 3 : 2, before = operands_ == 1 ? 1 : 0;
    return ((token * parts + before + part) * key_heads + head) * depth + i;
  }
  std::size_t operand(std::size_t part) const { return first_ + gradient(part); }
  std::size_t gradient(std::size_t part) const {
    return operands_ == 1 ? 0 : operands_ == 2 ? 1 : 1 + part;
  }
  std::size_t y(std::size_t token, std::size_t head, std::size_t i) const {
    return (token * heads + head) * depth + i;
  }
  std::size_t statistic(std::size_t b, std::size_t head, std::size_t s) const {
    return (b * heads + head) * sequence + s;
  }

 private:
  std::size_t first_, operands_;

 public:
  std::size_t heads, key_heads, depth, sequence, batch;
};

/// visit(batch, head, key head, query position, key position, scaled score) of what is seen.
template <class Visit>
void for_each_score(const Operands& o, const Heads& h, const Numbers& q, const Numbers& k,
                    Visit visit) {
  const auto& params = o.params<AttentionParams>();
  for (std::size_t b = 0; b < h.batch; ++b) {
    for (std::size_t a = 0; a < h.heads; ++a) {
      const std::size_t group = a / (h.heads / h.key_heads);
      for (std::size_t i = 0; i < h.sequence; ++i) {
        const std::size_t seen = params.causal ? i + 1 : h.sequence;
        const auto window = std::size_t(params.window > 0 ? params.window : params.sequence);
        for (std::size_t j = seen > window ? seen - window : 0; j < seen; ++j) {
          double score = 0;
          for (std::size_t d = 0; d < h.depth; ++d) {
            score +=
                q[h.query(b * h.sequence + i, a, d)] * k[h.key(0, b * h.sequence + j, group, d)];
          }
          visit(b, a, group, i, j, params.scale * score);
        }
      }
    }
  }
}

void forward(const Operands& o) {
  const Heads h(o, false);
  const Numbers &q = o.in(0), &k = o.in(h.operand(0)), &v = o.in(h.operand(1));
  Numbers &y = o.out(0), &sums = o.out(1);
  y.assign(y.size(), 0);
  sums.assign(sums.size(), 0);
  for_each_score(o, h, q, k,
                 [&](std::size_t b, std::size_t a, std::size_t group, std::size_t i, std::size_t j,
                     double score) {
                   sums[h.statistic(b, a, i)] += std::exp(score);
                   for (std::size_t d = 0; d < h.depth; ++d) {
                     y[h.y(b * h.sequence + i, a, d)] +=
                         std::exp(score) * v[h.key(1, b * h.sequence + j, group, d)];
                   }
                 });
  for (std::size_t b = 0; b < h.batch; ++b) {
    for (std::size_t a = 0; a < h.heads; ++a) {
      for (std::size_t i = 0; i < h.sequence; ++i) {
        double& sum = sums[h.statistic(b, a, i)];
        for (std::size_t d = 0; d < h.depth; ++d) y[h.y(b * h.sequence + i, a, d)] /= sum;
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
  const double scale = o.params<AttentionParams>().scale;
  for_each_score(o, h, q, k,
                 [&](std::size_t b, std::size_t a, std::size_t group, std::size_t i, std::size_t j,
                     double score) {
                   const std::size_t from = b * h.sequence + i, to = b * h.sequence + j;
                   const double p = std::exp(score - sums[h.statistic(b, a, i)]);
                   double dp = 0, delta = 0;
                   for (std::size_t d = 0; d < h.depth; ++d) {
                     const double slope = dy[h.y(from, a, d)];
                     dp += slope * v[h.key(1, to, group, d)];
                     delta += slope * y[h.y(from, a, d)];
                     dv[h.key(1, to, group, d)] += p * slope;
                   }
                   const double ds = scale * p * (dp - delta);
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
