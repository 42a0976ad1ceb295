// Dates the changes of a Program's live memory.
#include <algorithm>

#include "simulator/simulate.h"

namespace plimsoll {

RankMemory memory_over_time(const Program& program, std::int64_t rank,
                            std::span<const Picoseconds> call_begins) {
  const MemoryPeak most = memory_peak(program);
  const std::vector<BytesByRole> live = live_bytes(program);
  RankMemory result{rank, most.peak, most.by_role, program.arena_bytes, {}};
  Picoseconds time;
  for (std::size_t c = 0; c < live.size(); ++c) {
    time = c == 0 ? call_begins[0] : std::max(time, call_begins[c]);
    if (c == 0 || live[c] != live[c - 1]) result.curve.push_back({time, live[c]});
  }
  return result;
}

}  // namespace plimsoll
