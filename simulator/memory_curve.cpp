// Replays a Program's buffers over the issue order and dates the changes.
#include <algorithm>

#include "simulator/simulate.h"

namespace plimsoll {

RankMemory memory_over_time(const Program& program, std::int64_t rank,
                            std::span<const Picoseconds> call_begins) {
  const std::size_t calls = program.calls.size();
  std::vector<std::vector<const Buffer*>> begins(calls), ends(calls);
  for (const Buffer& buffer : program.buffers) {
    if (buffer.begin >= buffer.end) continue;
    begins[buffer.begin].push_back(&buffer);
    if (buffer.end < calls) ends[buffer.end].push_back(&buffer);
  }
  const MemoryPeak peak = memory_peak(program);
  RankMemory result{rank, peak.peak, peak.by_role, program.arena_bytes, {}};
  BytesByRole live{};
  Picoseconds time;
  for (std::size_t c = 0; c < calls; ++c) {
    const BytesByRole before = live;
    for (const Buffer* buffer : ends[c]) {
      live[std::size_t(buffer->role)] -= round_up(buffer->bytes, kBlockAlignment);
    }
    for (const Buffer* buffer : begins[c]) {
      live[std::size_t(buffer->role)] += round_up(buffer->bytes, kBlockAlignment);
    }
    time = c == 0 ? call_begins[0] : std::max(time, call_begins[c]);
    if (c == 0 || live != before) result.curve.push_back({time, live});
  }
  return result;
}

}  // namespace plimsoll
