// Step account: what a rank's step costs, how that is known, and what it leaves open.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "simulator/ranks/folding.h"

namespace plimsoll {

/// Seconds of one rank's step by how the costs of its ops are known.
struct StepAccount {
  std::array<Seconds, kProvenances> by_provenance;
  Provenance worst = Provenance::measured;
  Picoseconds local;  ///< without communications
};
StepAccount account_for(const Expansion& expansion, const LinkTopology& topology,
                        std::int64_t rank);

/// Half width of the 90 % interval of the sum of all op times. Interpolations of different ops are
/// off independently of each other, so their half widths add up as squares; those of one op, which
/// is called again and again, are off alike, and so is all that was measured (one machine, in one
/// state), extrapolated or read off a datasheet (kDatasheetHalfWidth of it): these are summed.
Seconds open_time(const Expansion& expansion, const LinkTopology& topology, std::int64_t rank);

/// The shares of a rank's op time that were measured on the machine itself
/// (Estimate::of_calibration).
struct MeasuredShares {
  double kernels = 0;         ///< of the time of its local ops
  double communications = 0;  ///< of the time of its communications
  /// Half width of the 90 % interval of these communications together, relative to their time: they
  /// are off alike, as one machine was measured in one state.
  double communications_open = 0;
};
MeasuredShares measured_shares(const Expansion& expansion, const LinkTopology& topology,
                               std::int64_t rank);

/// Ops beyond what was measured or fitted, and what all of them take.
struct OutOfRange {
  std::string what;  ///< "matmul 4096x512x1024 bf16", "all_reduce 3.2 GiB bf16 over 16 ranks"
  Seconds time;      ///< of the rank's step
  bool operator==(const OutOfRange&) const = default;
};
/// Longest first. Several ranges are one entry where it reads alike.
std::vector<OutOfRange> out_of_range(const Expansion& expansion, const LinkTopology& topology,
                                     std::int64_t rank);

}  // namespace plimsoll
