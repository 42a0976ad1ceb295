// A Measured holds what a run of a plan showed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "graph/timeline.h"
#include "graph/traffic.h"

namespace plimsoll {

inline constexpr std::int64_t kMeasuredVersion = 1;

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
  Bytes resident;  ///< peak RSS of the process
  /// Accelerators only: the device of rank 0, and how much of its memory all processes took
  /// (contexts included) before any rank's arena was made, and after the last step.
  std::string device;
  Bytes device_memory_before, device_memory;
};

/// Reads the file that `planner run` writes. Keys are the field names with their unit
/// (`median_step_time_s`, `resident_bytes`), and the timeline is as in the plan. loss_scales and
/// skipped_steps are there only where the loss is scaled. A loss or norm that is not finite is
/// null. Readers throw InputError unless the keys are exactly these.
Measured read_measured(const std::filesystem::path& path);
Measured parse_measured(std::string_view text, const std::string& file);
std::string measured_text(const Measured& measured);

}  // namespace plimsoll
