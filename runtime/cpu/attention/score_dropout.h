// Dropout of attention scores that are never all in memory.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/batch_place.h"
#include "runtime/cpu/attention/attention_operands.h"
#include "runtime/cpu/kernels.h"

namespace plimsoll {

/// A ScoreDropout draws which probabilities are dropped. It draws for elements of
/// [batch,heads,sequence,sequence] over all ranks, as dropout of the whole matrix does
/// (runtime/cpu/dropout.cpp).
class ScoreDropout {
 public:
  /// Tiles have up to so many columns.
  ScoreDropout(const KernelRequest& request, const AttentionOperands& shape, std::int64_t columns,
               Scratch& scratch);
  bool draws() const { return params_.dropout > 0; }
  /// Drops elements `seen` of the row of scores that `query` has with the keys of `tile`.
  void apply(const AttentionOperands& shape, const RunPosition& position, std::int64_t batch,
             std::int64_t head, std::int64_t query, RowRange tile, RowRange seen, float* row) const;

 private:
  AttentionParams params_;
  std::optional<BatchPlace> place_;
  std::int64_t sequence_ = 0;
  std::uint32_t threshold_ = 0;
  float scale_ = 1;
  std::uint32_t* words_ = nullptr;
};

}  // namespace plimsoll
