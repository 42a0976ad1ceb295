// Attention on the CPU has softmax (own causal mask, oneDNN softmax) and copies between
// [n,parts,a,d] and [b,a,s,d].
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "runtime/cpu/kernels.h"
#include "runtime/cpu/onednn.h"
#include "runtime/cpu/storage.h"
#include "runtime/cpu/vectorize.h"
#include "runtime/example_reader.h"
#include "runtime/sequence_part.h"

namespace plimsoll {

namespace {

/// Rows of the last dimension.
RowBlocks softmax_rows(const Tensor& scores) {
  const std::int64_t columns = scores.shape.back();
  return RowBlocks::for_type(scores.dtype, elements(scores.shape) / columns, columns);
}

dnnl::softmax_forward::primitive_desc describe_softmax(const KernelRequest& request,
                                                       const dnnl::memory::desc& layout) {
  return {{dnnl::prop_kind::forward_training, layout, 1},
          scratchpad_attributes(),
          request.library.engine};
}

/// Copies `rows` rows of scores from row `first` on, with minus infinity for keys that a query does
/// not see: those after it, those of another example, and those that are not among the last
/// `window`, or not in the chunk of `window` keys. A sequence has `per_sequence` rows.
struct Mask {
  std::int64_t sequence, per_sequence, window;
  bool chunks;

  void apply(const ExampleReader& examples, const float* scores, float* masked, std::int64_t first,
             std::int64_t rows) const {
    constexpr float kUnseen = -std::numeric_limits<float>::infinity();
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t query = (first + row) % sequence, visible = query + 1;
      const std::int64_t start = examples.begin((first + row) / per_sequence, query);
      const std::int64_t before = query - start;
      const std::int64_t begin = start + (chunks ? before / window * window
                                                 : std::max<std::int64_t>(before + 1 - window, 0));
      float* to = masked + row * sequence;
      if (masked != scores) {
        std::memcpy(to + begin, scores + row * sequence + begin,
                    std::size_t(visible - begin) * sizeof(float));
      }
      fill_floats(to, begin, kUnseen);
      fill_floats(to + visible, sequence - visible, kUnseen);
    }
  }
};

/// HeadBiases are added to the scores of heads, and to the sums of their exponentials.
class HeadBiases {
 public:
  HeadBiases(const KernelRequest& request, std::int64_t most_rows, Scratch& scratch)
      : sequence_(request.input(0).shape.back()),
        heads_(request.input(0).shape[1] * (request.input(0).shape[2] / sequence_)),
        first_(request.context.at[std::size_t(Axis::mp)] * heads_),
        alibi_heads_(request.params<AttentionParams>().alibi_heads),
        alibi_scale_(float(request.params<AttentionParams>().alibi_scale)) {
    if (request.op.inputs.size() < 2) return;
    sinks_.emplace(whole_row(request.input(1), scratch));
    sums_ = scratch.take_floats(most_rows);
  }

  bool has_alibi() const { return alibi_heads_ > 0; }
  /// Adds slope (j - i) to score j of the row of query i.
  void add_distances(float* scores, std::int64_t first, std::int64_t rows) const {
    for (std::int64_t row = first; row < first + rows; ++row, scores += sequence_) {
      const float slope =
          alibi_slope(first_ + row / sequence_ % heads_, alibi_heads_, alibi_scale_);
      for (std::int64_t j = 0; j < sequence_; ++j) scores[j] += slope * float(j - row % sequence_);
    }
  }
  /// Keeps the log-sum-exp of each row of scores.
  void sum(const float* scores, std::int64_t rows) const {
    if (!sinks_) return;
    for (std::int64_t row = 0; row < rows; ++row, scores += sequence_) {
      const float most = *std::max_element(scores, scores + sequence_);
      float sum = 0;
      for (std::int64_t j = 0; j < sequence_; ++j) sum += std::exp(scores[j] - most);
      sums_[row] = most + std::log(sum);
    }
  }
  /// Gives the sink its share of the probabilities of each row.
  void sink(Addresses in, float* p, std::int64_t first, std::int64_t rows) const {
    if (!sinks_) return;
    const float* logits = sinks_->read(in[1], 0, 1);
    for (std::int64_t row = 0; row < rows; ++row, p += sequence_) {
      const float logit = logits[(first + row) / sequence_ % heads_];
      const float share = 1 / (1 + std::exp(logit - sums_[row]));
      for (std::int64_t j = 0; j < sequence_; ++j) p[j] *= share;
    }
  }

 private:
  std::int64_t sequence_, heads_, first_, alibi_heads_;
  float alibi_scale_;
  std::optional<Rows> sinks_;
  float* sums_ = nullptr;
};

/// Sizes of heads [b,a,s,d], or of grouped ones [b,kv,g*s,d], the same memory with a = kv*g.
struct Heads {
  std::int64_t batch, heads, sequence, depth;
  std::int64_t element;  ///< bytes
  Heads(const Tensor& tensor, std::int64_t sequence)
      : batch(tensor.shape[0]),
        heads(tensor.shape[1] * tensor.shape[2] / sequence),
        sequence(sequence),
        depth(tensor.shape[3]),
        element(element_bytes(tensor.dtype)) {}
};

/// Calls copy(from heads offset, to token offset): rows of `depth` elements, where tokens are
/// [b, s, parts, a, d] and this is part `part`.
template <class Copy>
void for_each_row(const Heads& shape, std::int64_t parts, std::int64_t part, Copy copy) {
  const std::int64_t width = shape.heads * shape.depth;
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t a = 0; a < shape.heads; ++a) {
      std::int64_t in_heads = (b * shape.heads + a) * shape.sequence * shape.depth;
      std::int64_t in_tokens = (b * shape.sequence * parts + part) * width + a * shape.depth;
      for (std::int64_t s = 0; s < shape.sequence; ++s) {
        copy(in_heads, in_tokens);
        in_heads += shape.depth;
        in_tokens += parts * width;
      }
    }
  }
}

void heads_to_tokens(const Heads& shape, std::int64_t parts, std::int64_t part,
                     const std::byte* heads, std::byte* tokens) {
  const std::int64_t size = shape.element;
  for_each_row(shape, parts, part, [=](std::int64_t in_heads, std::int64_t in_tokens) {
    std::memcpy(tokens + in_tokens * size, heads + in_heads * size,
                std::size_t(shape.depth * size));
  });
}

void tokens_to_heads(const Heads& shape, std::int64_t parts, std::int64_t part,
                     const std::byte* tokens, std::byte* heads) {
  const std::int64_t size = shape.element;
  for_each_row(shape, parts, part, [=](std::int64_t in_heads, std::int64_t in_tokens) {
    std::memcpy(heads + in_heads * size, tokens + in_tokens * size,
                std::size_t(shape.depth * size));
  });
}

}  // namespace

KernelPointer prepare_softmax(const KernelRequest& request) {
  const RowBlocks blocks = softmax_rows(request.input(0));
  const auto& params = request.params<AttentionParams>();
  const bool causal = params.causal;
  const Mask mask{blocks.columns, blocks.rows / request.input(0).shape[0],
                  params.window > 0 ? params.window : blocks.columns, params.chunks};
  ExampleReader examples(request.context);
  Scratch scratch(request);
  const HeadBiases biases(request, blocks.block, scratch);
  BlockPrimitive softmax(blocks, [&](std::int64_t rows) {
    const auto layout = dense({rows, blocks.columns});
    Primitive block(request.library, describe_softmax(request, layout), scratch);
    block.declare(DNNL_ARG_SRC, layout);
    block.declare(DNNL_ARG_DST, layout);
    return block;
  });
  return map_rows<1>(request, blocks, scratch, [=](const RowsRun<1>& run) mutable {
    const float* from = run.x[0];
    if (causal) {
      examples.read(run.position);
      mask.apply(examples, from, run.y, run.first, run.count);
    } else if (biases.has_alibi() && run.y != from) {
      std::copy_n(from, run.count * blocks.columns, run.y);
    }
    if (biases.has_alibi()) biases.add_distances(run.y, run.first, run.count);
    const float* masked = causal || biases.has_alibi() ? run.y : from;
    biases.sum(masked, run.count);
    Primitive& rows = softmax.for_rows(run.count);
    rows.set(DNNL_ARG_SRC, masked);
    rows.set(DNNL_ARG_DST, run.y);
    rows.execute();
    biases.sink(run.in, run.y, run.first, run.count);
  });
}

// Probabilities of what is masked are 0, and so are the products: no mask is needed.
KernelPointer prepare_softmax_backward(const KernelRequest& request) {
  const RowBlocks blocks = softmax_rows(request.input(0));
  Scratch scratch(request);
  BlockPrimitive softmax(blocks, [&](std::int64_t rows) {
    const auto layout = dense({rows, blocks.columns});
    const dnnl::softmax_backward::primitive_desc descriptor(
        {layout, layout, 1}, scratchpad_attributes(), request.library.engine,
        describe_softmax(request, layout));
    Primitive block(request.library, descriptor, scratch);
    for (int argument : {DNNL_ARG_DIFF_DST, DNNL_ARG_DST, DNNL_ARG_DIFF_SRC})
      block.declare(argument, layout);
    return block;
  });
  return map_rows<2>(request, blocks, scratch, [softmax](const RowsRun<2>& run) mutable {
    Primitive& rows = softmax.for_rows(run.count);
    rows.set(DNNL_ARG_DIFF_DST, run.x[0]);
    rows.set(DNNL_ARG_DST, run.x[1]);
    rows.set(DNNL_ARG_DIFF_SRC, run.y);
    rows.execute();
  });
}

KernelPointer prepare_split_heads(const KernelRequest& request) {
  const std::size_t parts = request.op.outputs.size();
  const Heads shape(request.output(0), request.params<AttentionParams>().sequence);
  return make_kernel([shape, parts](Addresses in, Addresses out, const RunPosition&) {
    for (std::size_t i = 0; i < parts; ++i)
      tokens_to_heads(shape, std::int64_t(parts), std::int64_t(i), in[0], out[i]);
  });
}

KernelPointer prepare_split_heads_backward(const KernelRequest& request) {
  const std::size_t parts = request.op.inputs.size();
  const Heads shape(request.input(0), request.params<AttentionParams>().sequence);
  return make_kernel([shape, parts](Addresses in, Addresses out, const RunPosition&) {
    for (std::size_t i = 0; i < parts; ++i)
      heads_to_tokens(shape, std::int64_t(parts), std::int64_t(i), in[i], out[0]);
  });
}

KernelPointer prepare_merge_heads(const KernelRequest& request) {
  const Heads shape(request.input(0), request.params<AttentionParams>().sequence);
  return make_kernel([shape](Addresses in, Addresses out, const RunPosition&) {
    heads_to_tokens(shape, 1, 0, in[0], out[0]);
  });
}

KernelPointer prepare_merge_heads_backward(const KernelRequest& request) {
  const Heads shape(request.output(0), request.params<AttentionParams>().sequence);
  return make_kernel([shape](Addresses in, Addresses out, const RunPosition&) {
    tokens_to_heads(shape, 1, 0, in[0], out[0]);
  });
}

}  // namespace plimsoll
