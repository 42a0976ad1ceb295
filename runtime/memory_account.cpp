// Memory account: live bytes and their first peak by role.
#include "runtime/memory_account.h"

#include "base/error.h"
#include "graph/program.h"

namespace plimsoll {

void MemoryAccount::acquire(TensorRole role, Bytes needed) {
  const Bytes size = round_up(needed, kBlockAlignment);
  by_role_[std::size_t(role)] += size;
  live_ += size;
  if (live_ > peak_) {
    peak_ = live_;
    peak_by_role_ = by_role_;
  }
}

void MemoryAccount::release(TensorRole role, Bytes needed) {
  const Bytes size = round_up(needed, kBlockAlignment);
  by_role_[std::size_t(role)] -= size;
  live_ -= size;
  INVARIANT(by_role_[std::size_t(role)] >= Bytes(0), "more memory released than acquired");
}

}  // namespace plimsoll
