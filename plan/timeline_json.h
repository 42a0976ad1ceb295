// The JSON of a Timeline is shared by plans (predicted) and measurements.
//
//   {"intervals": [{rank, stream, kind, phase, routine, layer?, micro_batch?,
//                   posted_ps?, begin_ps, end_ps, ops?}, ...],
//    "memory": [{rank, peak_bytes, by_class {role: bytes}, arena_bytes,
//                curve {time_ps [], by_class {role: []}}}, ...]}
//
// posted_ps is written where it differs from begin_ps, layer and micro_batch where they are known,
// ops where it is above 1.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "graph/timeline.h"
#include "plan/timeline_detail.h"

namespace plimsoll {

/// The largest magnitude of an integer in a file, which a double still holds exactly.
inline constexpr std::int64_t kMostJsonInteger = std::int64_t{1} << 53;

/// The bound of a time in seconds in a plan or a measurement, 11 days. A clock in picoseconds holds
/// it with room for sums.
inline constexpr double kMostJsonSeconds = 1e6;

/// Returns all nine classes, in order of TensorRole.
Json by_role_json(const BytesByRole& by_role);
BytesByRole by_role_from(JsonObject object);

Json timeline_json(const Timeline& timeline);
/// Reads a timeline, and keeps the order of intervals. Throws InputError.
Timeline timeline_from(JsonObject object);

Json rank_times_json(const std::vector<RankTimes>& times);
std::vector<RankTimes> rank_times_from(JsonObject& object);  ///< read from the key `rank_times`

/// Returns a byte count of a file written by a program: a non-negative integer.
Bytes byte_count(JsonObject& object, std::string_view key);

}  // namespace plimsoll
