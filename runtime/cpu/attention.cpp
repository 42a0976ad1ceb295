// Causal softmax (own mask, oneDNN softmax) and the copies between [n,3,a,d] and [b,a,s,d].
#include <cstring>
#include <limits>

#include "runtime/cpu/kernels.h"
#include "runtime/cpu/onednn.h"
#include "runtime/cpu/vectorize.h"

namespace plimsoll {

namespace {

/// Rows of the last dimension.
dnnl::memory::desc softmax_layout(const Tensor& scores) {
  const std::int64_t columns = scores.shape.back();
  return dense({elements(scores.shape) / columns, columns});
}

dnnl::softmax_forward::primitive_desc describe_softmax(const KernelRequest& request,
                                                       const dnnl::memory::desc& layout) {
  return {{dnnl::prop_kind::forward_training, layout, 1},
          scratchpad_attributes(),
          request.library.engine};
}

/// Copies scores with minus infinity above the diagonal of each sequence x sequence matrix.
void mask_future(const float* scores, float* masked, std::int64_t rows, std::int64_t sequence) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t visible = row % sequence + 1;
    float* to = masked + row * sequence;
    if (masked != scores) {
      std::memcpy(to, scores + row * sequence, std::size_t(visible) * sizeof(float));
    }
    fill_floats(to + visible, sequence - visible, -std::numeric_limits<float>::infinity());
  }
}

/// Sizes of heads [b,a,s,d].
struct Heads {
  std::int64_t batch, heads, sequence, depth;
  explicit Heads(const Tensor& tensor)
      : batch(tensor.shape[0]),
        heads(tensor.shape[1]),
        sequence(tensor.shape[2]),
        depth(tensor.shape[3]) {}
};

/// Calls copy(from heads offset, to token offset): rows of `depth` floats, where tokens are
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

void heads_to_tokens(const Heads& shape, std::int64_t parts, std::int64_t part, const float* heads,
                     float* tokens) {
  const std::size_t bytes = std::size_t(shape.depth) * sizeof(float);
  for_each_row(shape, parts, part, [=](std::int64_t in_heads, std::int64_t in_tokens) {
    std::memcpy(tokens + in_tokens, heads + in_heads, bytes);
  });
}

void tokens_to_heads(const Heads& shape, std::int64_t parts, std::int64_t part, const float* tokens,
                     float* heads) {
  const std::size_t bytes = std::size_t(shape.depth) * sizeof(float);
  for_each_row(shape, parts, part, [=](std::int64_t in_heads, std::int64_t in_tokens) {
    std::memcpy(heads + in_heads, tokens + in_tokens, bytes);
  });
}

}  // namespace

KernelPointer prepare_causal_softmax(const KernelRequest& request) {
  const auto layout = softmax_layout(request.input(0));
  Scratch scratch(request);
  Primitive softmax(request.library, describe_softmax(request, layout), scratch);
  softmax.declare(DNNL_ARG_SRC, layout);
  softmax.declare(DNNL_ARG_DST, layout);
  const std::int64_t sequence = request.input(0).shape.back();
  const std::int64_t rows = request.input_elements(0) / sequence;
  return make_kernel(
      [softmax, rows, sequence](Addresses in, Addresses out, const RunPosition&) mutable {
        mask_future(floats(in, 0), floats_out(out, 0), rows, sequence);
        softmax.set(DNNL_ARG_SRC, out[0]);
        softmax.set(DNNL_ARG_DST, out[0]);
        softmax.execute();
      });
}

// Probabilities above the diagonal are 0, and so are the products: no mask is needed.
KernelPointer prepare_causal_softmax_backward(const KernelRequest& request) {
  const auto layout = softmax_layout(request.input(0));
  const dnnl::softmax_backward::primitive_desc descriptor(
      {layout, layout, 1}, scratchpad_attributes(), request.library.engine,
      describe_softmax(request, layout));
  Scratch scratch(request);
  Primitive softmax(request.library, descriptor, scratch);
  softmax.declare(DNNL_ARG_DIFF_DST, layout);
  softmax.declare(DNNL_ARG_DST, layout);
  softmax.declare(DNNL_ARG_DIFF_SRC, layout);
  return make_kernel([softmax](Addresses in, Addresses out, const RunPosition&) mutable {
    softmax.set(DNNL_ARG_DIFF_DST, in[0]);
    softmax.set(DNNL_ARG_DST, in[1]);
    softmax.set(DNNL_ARG_DIFF_SRC, out[0]);
    softmax.execute();
  });
}

KernelPointer prepare_split_heads(const KernelRequest& request) {
  const Heads shape(request.output(0));
  return make_kernel([shape](Addresses in, Addresses out, const RunPosition&) {
    for (std::size_t i = 0; i < 3; ++i)
      tokens_to_heads(shape, 3, std::int64_t(i), floats(in, 0), floats_out(out, i));
  });
}

KernelPointer prepare_split_heads_backward(const KernelRequest& request) {
  const Heads shape(request.input(0));
  return make_kernel([shape](Addresses in, Addresses out, const RunPosition&) {
    for (std::size_t i = 0; i < 3; ++i)
      heads_to_tokens(shape, 3, std::int64_t(i), floats(in, i), floats_out(out, 0));
  });
}

KernelPointer prepare_merge_heads(const KernelRequest& request) {
  const Heads shape(request.input(0));
  return make_kernel([shape](Addresses in, Addresses out, const RunPosition&) {
    heads_to_tokens(shape, 1, 0, floats(in, 0), floats_out(out, 0));
  });
}

KernelPointer prepare_merge_heads_backward(const KernelRequest& request) {
  const Heads shape(request.output(0));
  return make_kernel([shape](Addresses in, Addresses out, const RunPosition&) {
    tokens_to_heads(shape, 1, 0, floats(in, 0), floats_out(out, 0));
  });
}

}  // namespace plimsoll
