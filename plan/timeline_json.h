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

#include "base/json.h"
#include "graph/timeline.h"

namespace plimsoll {

/// Returns the names of all nine classes, in order of TensorRole.
std::span<const std::string_view> role_texts();

Json timeline_json(const Timeline& timeline);
/// Reads a timeline, and keeps the order of intervals. Throws InputError.
Timeline timeline_from(JsonObject object);

}  // namespace plimsoll
