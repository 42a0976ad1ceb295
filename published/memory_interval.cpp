// Intervals of predicted memory, from models/presets/spreads/memory.json.
#include "published/memory_interval.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/json.h"
#include "models/presets/presets.h"

namespace plimsoll {
namespace {

/// Relative half widths of 90 % intervals.
struct MemorySpread {
  double passing = 0;  ///< of what comes and goes, were it all that there is
  double power = 0;    ///< of the share that comes and goes, with which its part falls
  double kept = 0;     ///< of what an allocator keeps
  /// For executors of sharded modules: the tensors that their layers, compiled or not, allocate in
  /// between, and the growth of their streams' pools, are known by sizes, not by order.
  double flat_copies = 0;
  double outside = 0;  ///< of context and communicators
};

MemorySpread read_spread() {
  const auto text = find_preset(spread_presets(), "memory");
  INVARIANT(text, "the preset of memory's spread");
  const std::string file = "memory.json";
  const Json json = parse_json(*text, file);
  JsonObject object(json, file);
  object.text("source");
  MemorySpread spread;
  spread.passing = object.number("passing", 0, 1);
  spread.power = object.number("power", 0, 10);
  spread.kept = object.number("kept", 0, 1);
  spread.flat_copies = object.number("flat_copies", 0, 1);
  spread.outside = object.number("outside", 0, 1);
  object.finish();
  return spread;
}

double part(Bytes of, Bytes whole) {
  return whole == Bytes() ? 0 : double(of.count()) / double(whole.count());
}

}  // namespace

double memory_half_width(MemoryKind kind, const Framework& framework,
                         const PredictedMemory& memory) {
  static const MemorySpread spread = read_spread();
  const bool arena = framework.allocator.kind == AllocatorKind::arena;
  const double lasting = std::min(1.0, part(memory.lasting, memory.allocated));
  const double allocated = arena ? 0 : spread.passing * std::pow(1 - lasting, spread.power);
  if (kind == MemoryKind::allocated) return allocated;
  const double pools = framework.shard_memory == ShardMemory::flat_copies ? spread.flat_copies : 0;
  const double reserved = arena ? 0 : std::hypot(allocated, spread.kept, pools);
  if (kind == MemoryKind::reserved) return reserved;
  const double outside = part(memory.outside, memory.reserved + memory.outside);
  return std::hypot(reserved * (1 - outside), spread.outside * outside);
}

}  // namespace plimsoll
