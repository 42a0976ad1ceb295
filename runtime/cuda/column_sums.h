// Column sums are gradients of a value that was added to every row. They are taken in two stages of
// a fixed order, so that equal runs give equal bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/cuda/kernels.h"

namespace plimsoll {

/// SummedRows says which rows are summed: row j is `begin` + j / run * stride + j % run.
struct SummedRows {
  std::int64_t count = 0, run = 0, stride = 0, begin = 0;
  static SummedRows all(std::int64_t rows) { return {rows, rows, 0, 0}; }
};

/// A ColumnSums is prepared once and adds the sum of the rows' columns to a target.
class ColumnSums {
 public:
  /// Takes its scratch memory from `scratch`.
  ColumnSums(const CudaDevice& device, const SummedRows& rows, std::int64_t columns, DType type,
             DType target, DeviceScratch& scratch);
  void run(const std::byte* x, std::byte* target) const;

 private:
  const CudaDevice* device_;
  SummedRows rows_;
  std::int64_t columns_;
  DType type_, target_;
  std::int64_t groups_;       ///< groups of rows, each summed on its own
  float* partial_ = nullptr;  ///< [groups, columns]
};

/// PartialSums are the sums of groups of rows, and the target to which they are added.
struct PartialSums {
  const float* partial = nullptr;  ///< [groups, columns]
  DType type = DType::f32;         ///< type of the target
  std::byte* target = nullptr;     ///< [columns]
};
/// Adds the sum of all groups to each target, for one array or for two in one launch.
void add_partial_sums(const CudaDevice& device, std::int64_t groups, std::int64_t columns,
                      std::span<const PartialSums> arrays);

}  // namespace plimsoll
