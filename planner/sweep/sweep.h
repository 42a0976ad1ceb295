// Sweep: the best plan at each of many points, which differ in cluster, devices, batch and so on,
// with the days, the hours of devices and the cost of a training at each.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/training/training.h"
#include "planner/explore/search_request.h"

namespace plimsoll {

struct SweepPoint {
  std::string cluster, framework;  ///< by their own names
  std::int64_t devices = 0, global_batch = 0, sequence = 0;
  /// The bandwidth between nodes, per device, where it takes the place of the cluster file's.
  std::optional<BytesPerSecond> network = std::nullopt;
};

/// The best plan of a point.
struct PointPlan {
  Strategy strategy;
  std::string layout;  ///< the strategy in the field's words
  Seconds step_time, step_time_low, step_time_high;
  double tokens_per_second = 0, mfu = 0;
  Bytes taken, capacity;  ///< of the device of the fullest stage, as Filling has them
  double filled = 0;      ///< taken share of the capacity
  bool proven = false;    ///< the best of its space
  double gap = 0;         ///< as SearchSummary::gap, where it is not proven
  std::string costs;      ///< what its costs rest on
  std::optional<Training> training;
};

/// A point with its plan, or with the reason why it has none.
struct SweepRow {
  SweepPoint point;
  std::optional<PointPlan> plan;
  std::string reason;
  bool unfinished = false;  ///< a time limit ended the search before it found a plan
};

/// A goal is how much is trained, and by when.
struct SweepGoal {
  std::optional<double> tokens;
  std::optional<Seconds> deadline;  ///< only with tokens
};

/// A point that is ready to be searched.
struct LoadedPoint {
  SearchRequest request;
  SweepPoint point;
  std::string costs;
  std::optional<double> price;  ///< of one device for an hour
};

struct SweepRequest {
  std::size_t points = 0;
  /// Loads the point with this index. InfeasibleError and InputError become the row's reason.
  std::function<LoadedPoint(std::size_t)> load;
  /// Names a point that cannot be loaded.
  std::function<SweepPoint(std::size_t)> name;
  SweepGoal goal;
  std::int64_t threads = 0;            ///< as SearchRequest::threads; rows do not depend on it
  std::optional<Seconds> time_limit;   ///< of all points
  std::optional<Seconds> point_limit;  ///< of each point
  std::function<bool()> stop;          ///< ends the sweep before the next row
  /// Called from time to time with the number of finished points, which never falls.
  std::function<void(std::size_t done, std::size_t of)> progress;
};

/// The rows of the points that were finished, in the order of the points.
struct Sweep {
  SweepGoal goal;
  std::vector<SweepRow> rows;
  std::size_t left = 0;      ///< points that a time limit or `stop` left out
  bool has_prices = false;   ///< every row with a plan has one
  std::string job, command;  ///< for texts
  Bytes reserve;
};

/// Searches the points one after the other, each on all threads.
Sweep run_sweep(const SweepRequest& request);

enum class Deadline : std::uint8_t { kept, open, missed };
/// Whether a training ends in time: `open` where the deadline is within its interval.
Deadline deadline_of(const Training& training, Seconds deadline);
std::string_view to_text(Deadline deadline);

/// The rows that answer what to rent. Indices into Sweep::rows; nothing where no row qualifies.
struct SweepAnswer {
  std::optional<std::size_t> fastest;  ///< most tokens per second
  /// Least cost, or without prices the fewest hours of devices, among rows whose predicted days are
  /// within the deadline. Of equals it is the faster one.
  std::optional<std::size_t> cheapest;
  /// Rows within the deadline whose interval of cost overlaps the cheapest one's.
  std::int64_t not_told_apart = 0;
};
SweepAnswer answer_of(const Sweep& sweep);

}  // namespace plimsoll
