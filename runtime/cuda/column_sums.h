// Sums of columns: gradients of what was added to every row. In two stages of a fixed order, so
// that equal runs give equal bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/cuda/kernels.h"

namespace plimsoll {

/// Which rows are summed: row j is `begin` + j / run * stride + j % run.
struct SummedRows {
  std::int64_t count = 0, run = 0, stride = 0, begin = 0;
  static SummedRows all(std::int64_t rows) { return {rows, rows, 0, 0}; }
};

/// Prepared: target += the sum of the rows' columns.
class ColumnSums {
 public:
  /// Takes what it needs of the scratch memory.
  ColumnSums(const CudaDevice& device, const SummedRows& rows, std::int64_t columns, DType type,
             DType target, DeviceScratch& scratch);
  void run(const std::byte* x, std::byte* target) const;

 private:
  const CudaDevice* device_;
  SummedRows rows_;
  std::int64_t columns_;
  DType type_, target_;
  std::int64_t groups_;       ///< of rows, each summed on its own
  float* partial_ = nullptr;  ///< [groups, columns]
};

/// Sums of groups of rows, and where they are added.
struct PartialSums {
  const float* partial = nullptr;  ///< [groups, columns]
  DType type = DType::f32;         ///< of the target
  std::byte* target = nullptr;     ///< [columns]
};
/// target += the sum of all groups, of one array or of two in one launch.
void add_partial_sums(const CudaDevice& device, std::int64_t groups, std::int64_t columns,
                      std::span<const PartialSums> arrays);

}  // namespace plimsoll
