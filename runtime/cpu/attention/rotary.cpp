// Rotary position embeddings and the growth of queries (runtime/rotary_angles.h). Angles are made
// when the kernel is prepared: 4 sequence * width bytes that frameworks keep outside their tensors
// too.
#include <cstring>
#include <memory>

#include "runtime/batch_place.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/storage.h"
#include "runtime/cpu/vectorize.h"
#include "runtime/example_reader.h"
#include "runtime/rotary_angles.h"

namespace plimsoll {

namespace {

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
  const SequencePart part = own_tokens(request.context, params.sequence);
  const SequencePart whole{.tokens = part.tokens * part.ranks};
  ExampleReader examples(request.context);
  const auto angles = std::make_shared<const RotaryAngles>(
      rotary_angles(params, examples.reads() ? whole : part, of_head, direction));
  const std::int64_t half = of_head / 2;
  const std::int64_t turned = params.rotated * shape[2] * depth, sequence = params.sequence;
  const std::int64_t grown = angles->growth.empty() ? 0 : shape[2] * depth;
  Scratch scratch(request);
  const Rows before(request.input(0), {rows, width, 1}, scratch),
      after(request.output(0), {rows, width, 1}, scratch);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition& run) mutable {
    examples.read(run);
    for (std::int64_t row = 0; row < rows; ++row) {
      std::int64_t token = row % sequence;
      if (examples.reads()) {  // positions count from the first token of an example
        token = examples.position(part, row / sequence, token);
        token -= examples.begin(row / sequence, token);
      }
      const std::int64_t at = token * half;
      const float* x = before.read(in[0], row, 1);
      float* y = after.target(out[0], row);
      for (std::int64_t i = 0; i < turned; i += depth) {
        rotate(x + i, angles->cosine.data() + at, angles->sine.data() + at, y + i, half);
        if (x != y)
          std::memcpy(y + i + of_head, x + i + of_head,
                      std::size_t(depth - of_head) * sizeof(float));
      }
      if (x != y) std::memcpy(y + turned, x + turned, std::size_t(width - turned) * sizeof(float));
      for (std::int64_t i = 0; i < grown; ++i) y[i] *= angles->growth[std::size_t(token)];
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
