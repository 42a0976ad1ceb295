// Dropout keeps an element, and divides it by the probability of that, where its random word says
// so. The word depends on seed, step, op site, layer and the element's index in the global batch.
// So any split of the job draws the same mask, and backward draws it again: no mask is stored.
#include <algorithm>
#include <array>

#include "models/job/philox.h"
#include "runtime/batch_place.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/storage.h"
#include "runtime/cpu/vectorize.h"

namespace plimsoll {

namespace {

constexpr std::int64_t kChunk = 256;  // elements drawn for at a time

PLIMSOLL_VECTORIZE void keep(const float* x, const std::uint32_t* words, std::uint32_t threshold,
                             float scale, float* y, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] = words[i] >= threshold ? x[i] * scale : 0.0f;
}

}  // namespace

KernelPointer prepare_dropout(const KernelRequest& request) {
  const DropoutParams params = request.params<DropoutParams>();
  const BatchPlace place(request.context);
  const GlobalRuns runs = global_runs(request.input(0), request.context, place.micro_batch);
  Scratch scratch(request);
  const RowBlocks chunks{request.input_elements(0), 1, kChunk};
  const Rows before(request.input(0), chunks, scratch), after(request.output(0), chunks, scratch);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition& position) {
    std::array<std::uint32_t, kChunk> words;
    const double rate = position.step < 0 ? 0 : params.rate;  // held out: all is kept
    const auto threshold = std::uint32_t(rate * 0x1p32);
    const auto scale = float(1 / (1 - rate));
    const PhiloxKey key = philox_key(params.seed, position.step, params.site);
    const std::int64_t begin =
        place.first_sequence(position.micro_batch) * runs.own_per_sequence() + runs.first;
    for (std::int64_t run = 0; run < runs.runs; ++run) {
      for (std::int64_t i = 0, count = 0; i < runs.run; i += count) {
        const std::int64_t index = begin + run * runs.stride + i, at = run * runs.run + i;
        count = std::min({kChunk, runs.run - i, runs.contiguous(index) - index});
        philox_words(key, position.layer, runs.global(index), count, words.data());
        keep(before.read(in[0], at, count), words.data(), threshold, scale,
             after.target(out[0], at), count);
        after.store(out[0], at, count);
      }
    }
  });
}

}  // namespace plimsoll
