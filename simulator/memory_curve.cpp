// Dates the changes of a Program's live memory.
#include <algorithm>

#include "simulator/simulate.h"

namespace plimsoll {

RankMemory memory_over_time(const Program& program, std::int64_t rank,
                            std::span<const Picoseconds> call_begins) {
  const MemoryPeak replay = memory_peak(program);
  RankMemory result{rank, replay.peak, replay.by_role, program.arena_bytes, {}};
  Picoseconds time;
  for (std::size_t c = 0; c < replay.live.size(); ++c) {
    time = c == 0 ? call_begins[0] : std::max(time, call_begins[c]);
    if (c == 0 || replay.live[c] != replay.live[c - 1])
      result.curve.push_back({time, replay.live[c]});
  }
  return result;
}

}  // namespace plimsoll
