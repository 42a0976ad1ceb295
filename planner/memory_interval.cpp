#include "planner/memory_interval.h"

#include <cmath>

namespace plimsoll {
namespace {

constexpr double kAllocated = 0.03, kReserved = 0.07, kOutside = 0.4;

}  // namespace

double memory_half_width(MemoryKind kind, const Framework& framework, Bytes reserved,
                         Bytes outside) {
  const bool arena = framework.allocator.kind == AllocatorKind::arena;
  if (kind == MemoryKind::allocated) return arena ? 0 : kAllocated;
  const double of_tensors = arena ? 0 : kReserved;
  if (kind == MemoryKind::reserved) return of_tensors;
  const Bytes all = reserved + outside;
  if (all == Bytes()) return 0;
  const double share = double(outside.count()) / double(all.count());
  return std::hypot(of_tensors * (1 - share), kOutside * share);
}

}  // namespace plimsoll
