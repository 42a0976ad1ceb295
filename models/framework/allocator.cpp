// The constants of the allocators of PyTorch and Paddle are set here.
#include "models/framework/allocator.h"

namespace plimsoll {

Allocator pytorch_allocator() {
  Allocator allocator;
  allocator.kind = AllocatorKind::caching;
  return allocator;
}

Allocator paddle_allocator() {
  Allocator allocator;
  allocator.kind = AllocatorKind::auto_growth;
  allocator.rounding = Bytes(256);
  return allocator;
}

}  // namespace plimsoll
