// Tensors of 16-bit floating types are converted to f32 a block of rows at a time, computed on in
// f32, and rounded when stored.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "graph/tensor.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/onednn.h"
#include "runtime/cpu/vectorize.h"
#include "runtime/half.h"

namespace plimsoll {

/// RowBlocks says how a kernel walks over its rows.
struct RowBlocks {
  std::int64_t rows, columns;
  std::int64_t block;  ///< rows at a time; the last block may have fewer

  /// Returns blocks that stay in the cache while they are converted.
  static RowBlocks in_cache(std::int64_t rows, std::int64_t columns) {
    constexpr std::int64_t kElements = 16'384;  // 64 KiB of f32, a fraction of any L2 cache
    const std::int64_t most = std::max<std::int64_t>(rows, 1);
    return {rows, columns, std::clamp<std::int64_t>(kElements / columns, 1, most)};
  }
  /// Returns one block where nothing has to be converted, else blocks that stay in the cache.
  static RowBlocks for_type(DType type, std::int64_t rows, std::int64_t columns) {
    return type == DType::f32 ? RowBlocks{rows, columns, rows} : in_cache(rows, columns);
  }
  /// Returns the rows of the last block where it is not a full one, else 0.
  std::int64_t rest() const { return block == 0 ? 0 : rows % block; }

  /// Calls visit(first row, rows) for each block.
  template <class Visit>
  void each(Visit visit) const {
    for (std::int64_t row = 0; row < rows; row += block) visit(row, std::min(block, rows - row));
  }
};

/// Rows gives the rows of one operand as f32: the operand itself, or scratch memory for one block.
class Rows {
 public:
  Rows(const Tensor& tensor, const RowBlocks& blocks, Scratch& scratch)
      : type_(tensor.dtype), columns_(blocks.columns) {
    if (type_ != DType::f32) block_ = scratch.take_floats(blocks.block * columns_);
  }
  /// Returns rows [first, first + count) of the operand at `base`, which are valid until the next
  /// read.
  const float* read(const std::byte* base, std::int64_t first, std::int64_t count) const {
    const std::byte* from = base + first * columns_ * element_bytes(type_);
    if (type_ == DType::f32) return reinterpret_cast<const float*>(from);
    to_f32(type_, from, block_, count * columns_);
    return block_;
  }
  /// Returns where to write rows from `first` on. They reach memory with store().
  float* target(std::byte* base, std::int64_t first) const {
    return type_ == DType::f32 ? reinterpret_cast<float*>(base) + first * columns_ : block_;
  }
  void store(std::byte* base, std::int64_t first, std::int64_t count) const {
    if (type_ == DType::f32) return;
    from_f32(type_, block_, base + first * columns_ * element_bytes(type_), count * columns_);
  }
  /// Adds `more` to rows [first, first + count) of the operand.
  void add(std::byte* base, std::int64_t first, const float* more, std::int64_t count) const {
    add_rows(read(base, first, count), more, target(base, first), count * columns_);
    store(base, first, count);
  }

 private:
  DType type_;
  std::int64_t columns_;
  float* block_ = nullptr;
};

/// Returns a whole operand as one row, e.g. a bias.
inline Rows whole_row(const Tensor& tensor, Scratch& scratch) {
  return {tensor, {1, elements(tensor.shape), 1}, scratch};
}

/// A BlockPrimitive has one f32 primitive for full blocks of rows and one for the last block.
class BlockPrimitive {
 public:
  /// make(rows) prepares the primitive for that many rows.
  template <class Make>
  BlockPrimitive(const RowBlocks& blocks, Make make)
      : block_(blocks.block), full_(make(blocks.block)) {
    if (blocks.rest() != 0) rest_.emplace(make(blocks.rest()));
  }
  Primitive& for_rows(std::int64_t rows) { return rows == block_ ? full_ : *rest_; }
  /// Sets an argument that has the same address in every run.
  void set(int argument, const void* address) {
    full_.set(argument, address);
    if (rest_) rest_->set(argument, address);
  }

 private:
  std::int64_t block_;
  Primitive full_;
  std::optional<Primitive> rest_;
};

/// A RowsRun is what a kernel of map_rows() gets for each block of rows.
template <std::size_t kInputs>
struct RowsRun {
  std::array<const float*, kInputs> x;  ///< of the first inputs
  float* y;                             ///< of the first output
  std::int64_t first, count;            ///< rows
  Addresses in, out;                    ///< whole operands
  RunPosition position;
};
/// Returns a kernel that calls function(run) for each block of rows. Operands have as many rows,
/// and may differ in their columns.
template <std::size_t kInputs, class Function>
KernelPointer map_rows(const KernelRequest& request, const RowBlocks& blocks, Scratch& scratch,
                       Function function) {
  const auto rows_of = [&](const Tensor& tensor) {
    return Rows(tensor, {blocks.rows, elements(tensor.shape) / blocks.rows, blocks.block}, scratch);
  };
  std::vector<Rows> x;
  for (std::size_t i = 0; i < kInputs; ++i) x.push_back(rows_of(request.input(i)));
  const Rows y = rows_of(request.output(0));
  return make_kernel([=](Addresses in, Addresses out, const RunPosition& position) mutable {
    blocks.each([&](std::int64_t first, std::int64_t count) {
      RowsRun<kInputs> run{{}, y.target(out[0], first), first, count, in, out, position};
      for (std::size_t i = 0; i < kInputs; ++i) run.x[i] = x[i].read(in[i], first, count);
      function(run);
      y.store(out[0], first, count);
    });
  });
}
template <std::size_t kInputs, class Function>
KernelPointer map_rows(const KernelRequest& request, const RowBlocks& blocks, Function function) {
  Scratch scratch(request);
  return map_rows<kInputs>(request, blocks, scratch, std::move(function));
}

}  // namespace plimsoll
