// A MemoryAccount counts live bytes and their first peak by role, as blocks are acquired and
// released.
#pragma once

#include "base/units.h"
#include "graph/tensor.h"

namespace plimsoll {

class MemoryAccount {
 public:
  /// Says that a block of `needed` bytes becomes alive. It counts rounded up to kBlockAlignment.
  void acquire(TensorRole role, Bytes needed);
  /// Says that the block dies. Releasing more than was acquired breaks an invariant.
  void release(TensorRole role, Bytes needed);

  Bytes live() const { return live_; }
  const BytesByRole& by_role() const { return by_role_; }
  Bytes peak() const { return peak_; }
  /// Returns the live bytes at the time when the peak was first reached.
  const BytesByRole& peak_by_role() const { return peak_by_role_; }

 private:
  Bytes live_, peak_;
  BytesByRole by_role_ = {}, peak_by_role_ = {};
};

}  // namespace plimsoll
