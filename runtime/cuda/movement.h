// These small kernels belong to no op: they write the position of a call, exchange data of ranks
// that share a GPU, and add a bias that a product does not add itself.
#pragma once

#include <cstdint>
#include <span>

#include "graph/op.h"
#include "graph/tensor.h"
#include "runtime/backend.h"
#include "runtime/cuda/device.h"

namespace plimsoll {

/// The number of addresses that a kernel's arguments hold.
inline constexpr std::size_t kMostLocalMembers = 64;

/// Enqueue writes of the position that kernels read at CudaDevice::position. The step is the same
/// throughout it. The rest belongs to a call, and may be captured with its kernels.
void set_step(const CudaDevice& device, RunPosition* position, std::int64_t step);
void set_call(const CudaDevice& device, RunPosition* position, const RunPosition& call);

/// Enqueues a reduction. Element i of every target becomes the sum, or the maximum, of element i of
/// all sources, in their order, in f32 and rounded once. NaN wins a maximum. A target may be a
/// source. There are at most kMostLocalMembers of each.
void reduce_in_order(const CudaDevice& device, Reduction reduction, DType dtype,
                     std::int64_t elements, std::span<const std::byte* const> sources,
                     std::span<std::byte* const> targets);

/// Enqueues an addition of `row` to each row of a dense matrix, in f32. Each element is rounded
/// once.
void add_to_rows(const CudaDevice& device, DType dtype, std::byte* matrix, std::int64_t rows,
                 std::int64_t columns, DType row_type, const std::byte* row);

}  // namespace plimsoll
