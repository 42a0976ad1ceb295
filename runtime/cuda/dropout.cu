// Dropout: the same mask as runtime/cpu/dropout.cpp, by the same random words. No mask is stored.
#include "runtime/batch_place.h"
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/philox.h"
#include "runtime/cuda/storage.h"

namespace plimsoll {

namespace {

struct DropoutPlace {
  GlobalRuns runs;
  BatchPlace batch;
  std::int64_t seed, site;
  std::uint32_t threshold;
  float scale;

  /// Keeps all of a text that is held out.
  __device__ void keep_held_out(std::int64_t step) {
    if (step >= 0) return;
    threshold = 0;
    scale = 1;
  }
};

/// A thread draws four words and works on the four elements of the global tensor that they are for,
/// as far as they lie in the run. Runs that start within such four are read one by one.
template <class T>
__global__ void dropout(DropoutPlace place, const RunPosition* position, bool whole, const T* x,
                        T* y) {
  place.keep_held_out(position->step);
  const std::uint64_t key = device_philox_key(place.seed, position->step, place.site);
  const std::int64_t begin =
      place.batch.first_sequence(position->micro_batch) * place.runs.per_sequence +
      place.runs.first;
  const std::int64_t fours = place.runs.run / 4 + 2;  // of a run, with those cut at its ends
  for (std::int64_t item = global_thread(); item < place.runs.runs * fours;
       item += global_threads()) {
    const std::int64_t run = item / fours;
    const std::int64_t first = begin + run * place.runs.stride;  // global index of the run
    const auto four = std::uint64_t(first / 4 + item % fours);
    const std::int64_t at = std::int64_t(four) * 4 - first;  // within the run
    if (at >= place.runs.run) continue;
    const PhiloxWords drawn = device_philox(std::uint32_t(four), std::uint32_t(four >> 32),
                                            std::uint32_t(position->layer), 0, std::uint32_t(key),
                                            std::uint32_t(key >> 32));
    const std::int64_t base = run * place.runs.run + at;
    if (whole && at >= 0 && at + 4 <= place.runs.run && base % 4 == 0) {
      float values[4];
      load(x + base, values);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        values[i] = drawn.words[i] >= place.threshold ? values[i] * place.scale : 0.0f;
      store(y + base, values);
      continue;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (at + i < 0 || at + i >= place.runs.run) continue;
      const float value = to_float(x[base + i]) * place.scale;
      y[base + i] = from_float<T>(drawn.words[i] >= place.threshold ? value : 0.0f);
    }
  }
}

/// Dropout where ranks share sequences: a thread draws for one element.
template <class T>
__global__ void dropout_of_parts(DropoutPlace place, const RunPosition* position, const T* x,
                                 T* y) {
  place.keep_held_out(position->step);
  const std::uint64_t key = device_philox_key(place.seed, position->step, place.site);
  const GlobalRuns& runs = place.runs;
  const std::int64_t begin =
      place.batch.first_sequence(position->micro_batch) * runs.own_per_sequence() + runs.first;
  for (std::int64_t i = global_thread(); i < runs.runs * runs.run; i += global_threads()) {
    const auto index =
        std::uint64_t(runs.global(begin + i / runs.run * runs.stride + i % runs.run));
    const std::uint64_t four = index / 4;
    const PhiloxWords drawn = device_philox(std::uint32_t(four), std::uint32_t(four >> 32),
                                            std::uint32_t(position->layer), 0, std::uint32_t(key),
                                            std::uint32_t(key >> 32));
    const bool kept = drawn.words[index % 4] >= place.threshold;
    y[i] = from_float<T>(kept ? to_float(x[i]) * place.scale : 0.0f);
  }
}

}  // namespace

CudaKernelPointer prepare_dropout(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const DropoutParams params = request.params<DropoutParams>();
  const BatchPlace batch(request.context);
  const DropoutPlace place{
      global_runs(request.input(0), request.context, batch.micro_batch),
      batch,
      params.seed,
      params.site,
      std::uint32_t(params.rate * 0x1p32),
      float(1 / (1 - params.rate)),
  };
  return make_typed_kernel(request.output(0).dtype, [=, &device](auto zero, auto in, auto out) {
    using T = decltype(zero);
    const T* x = input_at<T>(in, 0);
    T* y = output_at<T>(out, 0);
    if (place.runs.part.ranks > 1) {
      const std::int64_t elements = place.runs.runs * place.runs.run;
      launch(device.stream, blocks_for(device, elements), kThreads, 0, dropout_of_parts<T>, place,
             device.position, x, y);
      return;
    }
    const std::int64_t items = place.runs.runs * (place.runs.run / 4 + 2);
    launch(device.stream, blocks_for(device, items), kThreads, 0, dropout<T>, place,
           device.position, aligned({x, y}), x, y);
  });
}

}  // namespace plimsoll
