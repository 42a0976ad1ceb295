#include "published/memory_interval.h"

#include <algorithm>
#include <cmath>

namespace plimsoll {
namespace {

constexpr double kPassing = 0.068, kPower = 1.25, kKept = 0.075, kOutside = 0.4;
/// For executors of sharded modules: the tensors that their layers, compiled or not, allocate in
/// between, and the growth of their streams' pools, are known by sizes, not by order.
constexpr double kPools = 0.07;

double part(Bytes of, Bytes whole) {
  return whole == Bytes() ? 0 : double(of.count()) / double(whole.count());
}

}  // namespace

double memory_half_width(MemoryKind kind, const Framework& framework,
                         const PredictedMemory& memory) {
  const bool arena = framework.allocator.kind == AllocatorKind::arena;
  const double lasting = std::min(1.0, part(memory.lasting, memory.allocated));
  const double allocated = arena ? 0 : kPassing * std::pow(1 - lasting, kPower);
  if (kind == MemoryKind::allocated) return allocated;
  const double pools = framework.shard_memory == ShardMemory::flat_copies ? kPools : 0;
  const double reserved = arena ? 0 : std::hypot(allocated, kKept, pools);
  if (kind == MemoryKind::reserved) return reserved;
  const double outside = part(memory.outside, memory.reserved + memory.outside);
  return std::hypot(reserved * (1 - outside), kOutside * outside);
}

}  // namespace plimsoll
