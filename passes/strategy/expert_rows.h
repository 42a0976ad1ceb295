// Expert rows: for how many rows the experts of a rank have memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "models/framework/framework.h"
#include "models/job/job.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

/// A RoomBasis says where the number of rows comes from.
enum class RoomBasis : std::uint8_t {
  stated,    ///< Strategy::experts.rows_percent
  all_rows,  ///< the most rows that can come, so that none is left over in any step
  likely,    ///< what a run gets, except for one run in kRunsForOverflow
};

inline constexpr std::string_view kRoomBases[] = {"stated", "all_rows", "likely"};

/// A RowsRoom is the memory for rows of a rank's experts, in percent of even routing.
struct RowsRoom {
  std::int64_t percent = 100;
  RoomBasis basis = RoomBasis::stated;
};

inline constexpr double kRunsForOverflow = 1000;
/// A run is this many micro-batches at each rank: 1,000 steps of 100 micro-batches.
inline constexpr double kMicroBatchesOfRun = 1e5;

/// Returns the percent of even routing with which every row of every token has room. A token has at
/// most one row at each expert, so that a rank gets at most min(chosen, experts of the rank) of its
/// rows.
std::int64_t most_rows_percent(const Experts& experts, std::int64_t ep);

/// Returns the room of a job with experts and ep above 1.
///
/// If the strategy states no percent, the room follows from what more rows would do:
///
/// - Memory is planned before the run, and rows without room end it. Then there is room for all
///   rows. In the first steps of an untrained router almost all tokens choose the same experts
///   (docs/how-it-works/experts.md has measured loads), so no smaller number is safe.
/// - The framework allocates the rows that come, or the job drops those without room. Then the room
///   is the job's load times what chance adds. Choices of tokens are taken as independent, so that
///   the rows of a rank have a binomial distribution with n k draws of probability 1/ep for n
///   tokens. Drawing k experts without replacement varies less than that (Hoeffding 1963, JASA 58,
///   theorem 4). A rank gets at least x times the even rows with probability at most
///   exp(-n k D(x/ep, 1/ep)), where D is the relative entropy of two coins (Hoeffding 1963,
///   theorem 1). x is the least value for which the sum of this over all layers, ranks of ep and
///   micro-batches of a run is at most 1/kRunsForOverflow. An allocator holds the rows of all
///   layers of a stage at once, so that n counts the tokens of these layers together.
///
/// The percent is rounded up to a multiple of 5, and is at most most_rows_percent().
RowsRoom rows_room(const Job& job, const Framework& framework, const Strategy& strategy);
/// Returns one line that states the room and its basis.
std::string describe(const RowsRoom& room, const Experts& experts);

}  // namespace plimsoll
