// A Measured holds what a run of a plan showed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "graph/timeline.h"
#include "graph/traffic.h"

namespace plimsoll {

inline constexpr std::int64_t kMeasuredVersion = 1;

/// A MeasuredExperts holds what one layer's router chose in the traced step.
struct MeasuredExperts {
  std::int64_t layer = 0;    ///< counted over the model
  std::int64_t choices = 0;  ///< of all tokens of the step
  std::int64_t dropped = 0;  ///< those for which there was no room
  /// Rows of the rank that got most of those that share out the experts, over the mean of these
  /// ranks: the mean over micro-batches, and the highest. Both are 0 where no ranks share them out.
  double load = 0, highest_load = 0;
  bool operator==(const MeasuredExperts&) const = default;
};

struct Measured {
  std::string plan_digest;  ///< digest(plan_text(plan)) of the plan that ran
  std::string backend, communicator;
  std::string date, host_cpu;
  std::int64_t steps = 0;
  std::int64_t warm_up_steps = 0;   ///< steps that are not in step_times
  std::vector<Seconds> step_times;  ///< every untraced step after warm-up
  Seconds median_step_time;
  std::vector<double> losses;          ///< every step
  std::vector<double> gradient_norms;  ///< every step, unscaled and before clipping
  /// Dynamic loss scaling only: the scale of every step, and the number of steps that updated
  /// nothing.
  std::vector<double> loss_scales;
  std::int64_t skipped_steps = 0;
  Timeline timeline;  ///< traced last step; memory counted as it happened
  /// The bytes sent in the traced step, by rank, counted as communications were posted.
  std::vector<std::vector<Traffic>> traffic;
  std::vector<MeasuredExperts> experts;  ///< by layer with experts, of backends on the host
  Bytes resident;                        ///< peak RSS of the process
  /// Accelerators only: the device of rank 0, and how much of its memory all processes took
  /// (contexts included) before any rank's arena was made, and after the last step.
  std::string device;
  Bytes device_memory_before, device_memory;
};

/// Returns the mean load over layers; nothing where it was not measured.
std::optional<double> measured_load(const Measured& measured);

/// Reads the file that `planner run` writes. Keys are the field names with their unit
/// (`median_step_time_s`, `resident_bytes`), and the timeline is as in the plan. loss_scales and
/// skipped_steps are there only where the loss is scaled, experts only where they were read. A loss
/// or norm that is not finite is null. Readers throw InputError unless the keys are exactly these.
Measured read_measured(const std::filesystem::path& path);
Measured parse_measured(std::string_view text, const std::string& file);
std::string measured_text(const Measured& measured);

}  // namespace plimsoll
