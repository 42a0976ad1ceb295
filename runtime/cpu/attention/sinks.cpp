// Attention sinks (Agarwal et al. 2025, arXiv 2508.10925, section 2.2): a learned logit of each
// head counts in the sum of the softmax, and has no value. With the log-sum-exp L of the scores and
// the sink z, all results are multiplied by exp(L) / (exp(L) + exp(z)).
#include <cmath>

#include "runtime/cpu/kernels.h"
#include "runtime/cpu/storage.h"
#include "runtime/cpu/vectorize.h"

namespace plimsoll {

namespace {

/// Results [n,a*d] of attention and their sums [b,a,s].
struct SunkRows {
  std::int64_t tokens, heads, depth, sequence;
  SunkRows(const Tensor& y, const Tensor& sums, const Tensor& sinks)
      : tokens(y.shape[0]),
        heads(elements(sinks.shape)),
        depth(y.shape[1] / heads),
        sequence(tokens / sums.shape[0]) {}

  RowBlocks rows() const { return {tokens, heads * depth, 1}; }
  std::int64_t statistic(std::int64_t token, std::int64_t head) const {
    return (token / sequence * heads + head) * sequence + token % sequence;
  }
};

}  // namespace

KernelPointer prepare_add_sinks(const KernelRequest& request) {
  const SunkRows s(request.input(0), request.input(1), request.input(2));
  Scratch scratch(request);
  const Rows x(request.input(0), s.rows(), scratch), sinks = whole_row(request.input(2), scratch),
                                                     y(request.output(0), s.rows(), scratch);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    const float* logits = sinks.read(in[2], 0, 1);
    for (std::int64_t token = 0; token < s.tokens; ++token) {
      const float* from = x.read(in[0], token, 1);
      float* to = y.target(out[0], token);
      for (std::int64_t head = 0; head < s.heads; ++head) {
        const float sum = floats(in, 1)[s.statistic(token, head)], sink = logits[head];
        const float most = std::max(sum, sink);
        const float total = most + std::log(std::exp(sum - most) + std::exp(sink - most));
        const float share = std::exp(sum - total);
        for (std::int64_t i = head * s.depth; i < (head + 1) * s.depth; ++i)
          to[i] = from[i] * share;
        floats_out(out, 1)[s.statistic(token, head)] = total;
      }
      y.store(out[0], token, 1);
    }
  });
}

KernelPointer prepare_sinks_gradient(const KernelRequest& request) {
  const SunkRows s(request.input(1), request.input(2), request.input(3));
  Scratch scratch(request);
  const Rows dy(request.input(0), s.rows(), scratch), y(request.input(1), s.rows(), scratch),
      sinks = whole_row(request.input(3), scratch), dsinks = whole_row(request.output(0), scratch);
  float* gradients = scratch.take_floats(s.heads);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    const float* logits = sinks.read(in[3], 0, 1);
    std::fill_n(gradients, s.heads, 0.0f);
    for (std::int64_t token = 0; token < s.tokens; ++token) {
      const float *slopes = dy.read(in[0], token, 1), *values = y.read(in[1], token, 1);
      for (std::int64_t head = 0; head < s.heads; ++head) {
        const float total = floats(in, 2)[s.statistic(token, head)];
        gradients[head] -= std::exp(logits[head] - total) *
                           dot(slopes + head * s.depth, values + head * s.depth, s.depth);
      }
    }
    dsinks.add(out[0], 0, gradients, 1);
  });
}

KernelPointer prepare_softmax_sinks_gradient(const KernelRequest& request) {
  const std::int64_t columns = request.input(0).shape.back();
  const RowBlocks blocks{request.input_elements(0) / columns, columns, 1};
  const std::int64_t heads = request.output_elements(0);
  Scratch scratch(request);
  const Rows dp(request.input(0), blocks, scratch), p(request.input(1), blocks, scratch),
      dsinks = whole_row(request.output(0), scratch);
  float* gradients = scratch.take_floats(heads);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    std::fill_n(gradients, heads, 0.0f);
    for (std::int64_t row = 0; row < blocks.rows; ++row) {
      const float *slopes = dp.read(in[0], row, 1), *values = p.read(in[1], row, 1);
      float sum = 0;
      for (std::int64_t i = 0; i < columns; ++i) sum += values[i];
      gradients[row / columns % heads] -= (1 - sum) * dot(slopes, values, columns);
    }
    dsinks.add(out[0], 0, gradients, 1);
  });
}

}  // namespace plimsoll
