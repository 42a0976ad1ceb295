// Positions of calls, sums in rank order, biases.
#include "base/error.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/movement.h"
#include "runtime/cuda/storage.h"

namespace plimsoll {

namespace {

struct Addresses {
  std::byte* at[kMostLocalMembers];
  int count;
};

__global__ void store_step(RunPosition* position, std::int64_t step) { position->step = step; }

__global__ void store_call(RunPosition* position, RunPosition call) {
  position->micro_batch = call.micro_batch;
  position->layer = call.layer;
  position->part = call.part;
}

template <class T>
__global__ void reduce_elements(Addresses sources, Addresses targets, std::int64_t elements,
                                bool takes_maximum) {
  for (std::int64_t i = global_thread(); i < elements; i += global_threads()) {
    float result = to_float(reinterpret_cast<const T*>(sources.at[0])[i]);
    for (int member = 1; member < sources.count; ++member) {
      const float value = to_float(reinterpret_cast<const T*>(sources.at[member])[i]);
      if (!takes_maximum) {
        result += value;
      } else if (value > result || value != value) {
        result = value;
      }
    }
    for (int member = 0; member < targets.count; ++member)
      reinterpret_cast<T*>(targets.at[member])[i] = from_float<T>(result);
  }
}

template <class T>
__global__ void add_row(T* matrix, std::int64_t elements, std::int64_t columns, DType row_type,
                        const std::byte* row) {
  for (std::int64_t i = global_thread(); i < elements; i += global_threads())
    matrix[i] = from_float<T>(to_float(matrix[i]) + load_any(row_type, row, i % columns));
}

}  // namespace

void set_step(const CudaDevice& device, RunPosition* position, std::int64_t step) {
  launch(device.stream, 1, 1, 0, store_step, position, step);
}

void set_call(const CudaDevice& device, RunPosition* position, const RunPosition& call) {
  launch(device.stream, 1, 1, 0, store_call, position, call);
}

void reduce_in_order(const CudaDevice& device, Reduction reduction, DType dtype,
                     std::int64_t elements, std::span<const std::byte* const> sources,
                     std::span<std::byte* const> targets) {
  INVARIANT(sources.size() <= kMostLocalMembers && targets.size() <= kMostLocalMembers,
            "more members than a kernel takes");
  Addresses from = {}, to = {};
  for (const std::byte* source : sources) from.at[from.count++] = const_cast<std::byte*>(source);
  for (std::byte* target : targets) to.at[to.count++] = target;
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(device.stream, blocks_for(device, elements), kThreads, 0, reduce_elements<T>, from, to,
           elements, reduction == Reduction::max);
  });
}

void add_to_rows(const CudaDevice& device, DType dtype, std::byte* matrix, std::int64_t rows,
                 std::int64_t columns, DType row_type, const std::byte* row) {
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(device.stream, blocks_for(device, rows * columns), kThreads, 0, add_row<T>,
           reinterpret_cast<T*>(matrix), rows * columns, columns, row_type, row);
  });
}

}  // namespace plimsoll
