// Rotary position embeddings (Su et al. 2021, arXiv 2104.09864): element i and i + w/2 of a head
// are turned by position * base^(-2i/w), where w columns of it are turned. It is the pairing of
// GPT-NeoX and of LLaMA in Hugging Face.
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "runtime/batch_place.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/storage.h"
#include "runtime/cpu/vectorize.h"

namespace plimsoll {

namespace {

/// Cosines and sines of the rank's tokens of a sequence: made when the kernel is prepared, 4
/// sequence * width bytes that frameworks keep outside their tensors too.
struct RotaryAngles {
  std::int64_t half;
  std::vector<float> cosine, sine;

  RotaryAngles(const RotaryParams& params, const SequencePart& part, std::int64_t width,
               double direction)
      : half(width / 2) {
    for (std::int64_t token = 0; token < part.tokens; ++token) {
      const std::int64_t position = part.position(token);
      for (std::int64_t i = 0; i < half; ++i) {
        const double frequency = std::pow(params.base, -2.0 * double(i) / double(width));
        const double angle = double(position) * frequency;
        cosine.push_back(float(std::cos(angle)));
        sine.push_back(float(direction * std::sin(angle)));
      }
    }
  }
};

/// x and y may be the same.
PLIMSOLL_VECTORIZE void rotate(const float* x, const float* cosine, const float* sine, float* y,
                               std::int64_t half) {
#pragma omp simd
  for (std::int64_t i = 0; i < half; ++i) {
    const float first = x[i], second = x[i + half];
    y[i] = first * cosine[i] - second * sine[i];
    y[i + half] = second * cosine[i] + first * sine[i];
  }
}

KernelPointer prepare_turns(const KernelRequest& request, double direction) {
  const auto& params = request.params<RotaryParams>();
  const Shape& shape = request.input(0).shape;  // [n, parts, heads, d]
  const std::int64_t rows = shape[0], depth = shape[3], width = shape[1] * shape[2] * depth;
  const std::int64_t of_head = params.width == 0 ? depth : params.width;
  const auto angles = std::make_shared<const RotaryAngles>(
      params, own_tokens(request.context, params.sequence), of_head, direction);
  const std::int64_t turned = params.rotated * shape[2] * depth, sequence = params.sequence;
  Scratch scratch(request);
  const Rows before(request.input(0), {rows, width, 1}, scratch),
      after(request.output(0), {rows, width, 1}, scratch);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t at = row % sequence * angles->half;
      const float* x = before.read(in[0], row, 1);
      float* y = after.target(out[0], row);
      for (std::int64_t i = 0; i < turned; i += depth) {
        rotate(x + i, angles->cosine.data() + at, angles->sine.data() + at, y + i, angles->half);
        if (x != y)
          std::memcpy(y + i + of_head, x + i + of_head,
                      std::size_t(depth - of_head) * sizeof(float));
      }
      if (x != y) std::memcpy(y + turned, x + turned, std::size_t(width - turned) * sizeof(float));
      after.store(out[0], row, 1);
    }
  });
}

}  // namespace

KernelPointer prepare_rotary(const KernelRequest& request) { return prepare_turns(request, 1); }

KernelPointer prepare_rotary_backward(const KernelRequest& request) {
  return prepare_turns(request, -1);
}

}  // namespace plimsoll
