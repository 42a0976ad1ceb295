// Step account: what a rank's step costs, how the costs are known, and how far they may be off.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "simulator/ranks/topology.h"

namespace plimsoll {

/// The time of one rank's ops by how their costs are known.
struct StepAccount {
  std::array<Seconds, kProvenances> by_provenance;
  Provenance worst = Provenance::measured;
  Picoseconds local;  ///< without communications
};
StepAccount account_for(const Expansion& expansion, const RankTopology& topology,
                        std::int64_t rank);

/// Returns the half width of the 90 % interval of the sum of all op times. Interpolations of
/// different ops are off independently of each other, so their half widths add up as squares. All
/// calls of one op are off alike. So is everything that was measured (one machine, in one state),
/// extrapolated, or read off a datasheet (kDatasheetHalfWidth of it). These half widths add up.
Seconds open_time(const Expansion& expansion, const RankTopology& topology, std::int64_t rank);

/// The shares of a rank's op time that were measured on the machine itself
/// (Estimate::of_calibration).
struct MeasuredShares {
  double kernels = 0;         ///< of the time of its local ops
  double communications = 0;  ///< of the time of its communications
  /// Half width of the 90 % interval of the measured communications together, relative to their
  /// time: all are off alike, since one machine was measured in one state.
  double communications_open = 0;
};
MeasuredShares measured_shares(const Expansion& expansion, const RankTopology& topology,
                               std::int64_t rank);

/// Ops beyond the range that was measured or fitted, and the time of all their calls.
struct OutOfRange {
  std::string what;  ///< "matmul 4096x512x1024 bf16", "all_reduce 3.2 GiB bf16 over 16 ranks"
  Seconds time;      ///< of the rank's step
  bool operator==(const OutOfRange&) const = default;
};
/// Returns them longest first. Ops with the same text are one entry.
std::vector<OutOfRange> out_of_range(const Expansion& expansion, const RankTopology& topology,
                                     std::int64_t rank);

}  // namespace plimsoll
