// Memory account: live bytes and their first peak by role, counted as blocks come and go.
#pragma once

#include "base/units.h"
#include "graph/tensor.h"

namespace plimsoll {

class MemoryAccount {
 public:
  /// A block of `needed` bytes comes alive; it counts rounded up to kBlockAlignment.
  void acquire(TensorRole role, Bytes needed);
  /// Says that the block dies. More released than acquired breaks an invariant.
  void release(TensorRole role, Bytes needed);

  Bytes live() const { return live_; }
  const BytesByRole& by_role() const { return by_role_; }
  Bytes peak() const { return peak_; }
  /// Live bytes when the peak was reached for the first time.
  const BytesByRole& peak_by_role() const { return peak_by_role_; }

 private:
  Bytes live_, peak_;
  BytesByRole by_role_ = {}, peak_by_role_ = {};
};

}  // namespace plimsoll
