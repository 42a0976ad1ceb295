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

#include "base/json.h"
#include "graph/timeline.h"

namespace plimsoll {

/// Lists the bytes of all nine classes by their names, in order of TensorRole.
inline constexpr auto kByClass = [](auto& fields, auto& by_role) {
  for (std::size_t role = 0; role < kTensorRoles; ++role)
    fields.required(to_text(TensorRole(role)), by_role[role]);
};

Json timeline_json(const Timeline& timeline);
/// Reads a timeline, and keeps the order of intervals. Throws InputError.
Timeline timeline_from(JsonObject object);

}  // namespace plimsoll
