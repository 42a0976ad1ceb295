// Small kernels that no op is: where a call is, what ranks that share a GPU exchange, and a bias
// that a product does not add itself.
#pragma once

#include <cstdint>
#include <span>

#include "graph/op.h"
#include "graph/tensor.h"
#include "runtime/backend.h"
#include "runtime/cuda/device.h"

namespace plimsoll {

/// Kernels' arguments hold this many addresses.
inline constexpr std::size_t kMostLocalMembers = 64;

/// Enqueued: what kernels read at CudaDevice::position. The step is the same throughout it; the
/// rest belongs to a call, and may be captured with its kernels.
void set_step(const CudaDevice& device, RunPosition* position, std::int64_t step);
void set_call(const CudaDevice& device, RunPosition* position, std::int64_t micro_batch,
              std::int64_t layer);

/// Enqueued: element i of every target becomes the sum, or the maximum, of element i of all
/// sources, taken in their order in f32 and rounded once. NaN wins a maximum. A target may be a
/// source. At most kMostLocalMembers of each.
void reduce_in_order(const CudaDevice& device, Reduction reduction, DType dtype,
                     std::int64_t elements, std::span<const std::byte* const> sources,
                     std::span<std::byte* const> targets);

/// Enqueued: adds `row` to each of the rows of a dense matrix, in f32; each element is rounded
/// once.
void add_to_rows(const CudaDevice& device, DType dtype, std::byte* matrix, std::int64_t rows,
                 std::int64_t columns, DType row_type, const std::byte* row);

}  // namespace plimsoll
