// Keys and values of latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1) are taken apart
// from the product that gives both, and the rope key that all heads share is put before each key.
#include <cstring>

#include "runtime/cpu/kernels.h"
#include "runtime/cpu/storage.h"
#include "runtime/cpu/vectorize.h"

namespace plimsoll {

namespace {

/// Columns of one head: of the rope key, of the rest of a key, and of a value.
struct LatentHeads {
  std::int64_t rows, heads, rope, nope, value;

  LatentHeads(const Tensor& k, const Tensor& v, const Tensor& rope_key)
      : rows(k.shape[0]),
        heads(k.shape[2]),
        rope(rope_key.shape[3]),
        nope(k.shape[3] - rope_key.shape[3]),
        value(v.shape[3]) {}
  std::int64_t key() const { return rope + nope; }
  std::int64_t joined() const { return nope + value; }
};

}  // namespace

KernelPointer prepare_share_rope_key(const KernelRequest& request) {
  const LatentHeads s(request.output(0), request.output(1), request.input(1));
  const std::int64_t element = element_bytes(request.input(0).dtype);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    const auto copy = [&](std::byte*& to, const std::byte*& from, std::int64_t columns) {
      std::memcpy(to, from, std::size_t(columns * element));
      to += columns * element;
      from += columns * element;
    };
    const std::byte* joined = in[0];
    std::byte *k = out[0], *v = out[1];
    for (std::int64_t row = 0; row < s.rows; ++row) {
      for (std::int64_t head = 0; head < s.heads; ++head) {
        const std::byte* shared = in[1] + row * s.rope * element;
        copy(k, shared, s.rope);
        copy(k, joined, s.nope);
        copy(v, joined, s.value);
      }
    }
  });
}

/// Sums over heads are f32, in order.
KernelPointer prepare_share_rope_key_backward(const KernelRequest& request) {
  const LatentHeads s(request.input(0), request.input(1), request.output(1));
  Scratch scratch(request);
  const Rows dk(request.input(0), {s.rows, s.heads * s.key(), 1}, scratch),
      dv(request.input(1), {s.rows, s.heads * s.value, 1}, scratch),
      dkv(request.output(0), {s.rows, s.heads * s.joined(), 1}, scratch),
      drope(request.output(1), {s.rows, s.rope, 1}, scratch);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    for (std::int64_t row = 0; row < s.rows; ++row) {
      const float *key = dk.read(in[0], row, 1), *value = dv.read(in[1], row, 1);
      float *joined = dkv.target(out[0], row), *shared = drope.target(out[1], row);
      fill_floats(shared, s.rope, 0);
      for (std::int64_t head = 0; head < s.heads; ++head) {
        add_rows(shared, key, shared, s.rope);
        std::memcpy(joined, key + s.rope, std::size_t(s.nope) * sizeof(float));
        std::memcpy(joined + s.nope, value, std::size_t(s.value) * sizeof(float));
        key += s.key();
        value += s.value;
        joined += s.joined();
      }
      dkv.store(out[0], row, 1);
      drope.store(out[1], row, 1);
    }
  });
}

}  // namespace plimsoll
