// Trace validation replays recorded allocations and checks whether the simulated allocator did the
// same.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "models/framework/allocator_trace.h"
#include "simulator/memory/trace_replay.h"

namespace plimsoll {

struct ValidatedTraces {
  std::string name;  ///< name of their file, without .json
  std::vector<std::string> ids;
  std::vector<TraceReplay> replays;  ///< one for each id
};

ValidatedTraces validate_traces(const std::string& name, std::span<const AllocatorTrace> traces);

std::string traces_text(std::span<const ValidatedTraces> files);
Json traces_json(std::span<const ValidatedTraces> files);  ///< a row for each trace

}  // namespace plimsoll
