// A collective measurement is a communication that somebody timed, as a point of a cases file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "graph/op.h"

namespace plimsoll {

struct CollectiveMeasurement {
  OpKind kind = OpKind::all_reduce;
  std::string gpu, source;           ///< source: "repository or document, place in it"
  std::vector<std::string> devices;  ///< names of devices of clusters that the GPU is
  std::int64_t ranks = 2;            ///< ranks of the group, on consecutive devices
  Bytes payload;                     ///< the full buffer on one rank
  Seconds time;
  bool operator==(const CollectiveMeasurement&) const = default;
};

/// Returns whether a cases file holds collectives, i.e. its rows have a "collective".
bool is_collective_measurements(std::string_view text, const std::string& file);

struct CollectiveMeasurements {
  std::vector<CollectiveMeasurement> points;
  std::int64_t skipped = 0;  ///< rows of other collectives, without ranks or without points
};
/// Parses rows as docs/reference/published-runs.md describes them; `file` is named in errors.
/// Throws InputError.
CollectiveMeasurements parse_collective_measurements(std::string_view text,
                                                     const std::string& file);

}  // namespace plimsoll
