// Each rank of a run leaves a record, and a measurement is made of all records.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/program.h"
#include "graph/timeline.h"
#include "graph/traffic.h"
#include "models/job/job.h"
#include "plan/measured.h"
#include "runtime/executor.h"

namespace plimsoll {

struct RankRecord {
  std::int64_t rank = 0;
  bool has_loss = false;  ///< its Program computes the loss
  std::vector<StepResult> steps;
  Timeline trace;                            ///< intervals of the last step
  std::vector<float> gradients, parameters;  ///< when kept
  std::vector<Traffic> traffic;              ///< communications of the last step
  PhaseFlops flops = {};                     ///< FLOPs of the last step
  std::vector<RoutedRows> routed;            ///< rows of experts in the last step
  Bytes resident;      ///< memory of its process; 0 where another rank of the process counts it
  std::string device;  ///< accelerators only, as in Measured
  Bytes device_memory_before, device_memory;
};

/// to_bytes() packs a record for another process of the same program. `record_from` throws
/// std::runtime_error for bytes that are no record.
std::string to_bytes(const RankRecord& record);
RankRecord record_from(const std::string& bytes);

/// Returns the model name of this machine's processor.
std::string cpu_name();
/// Returns the largest resident memory of this process so far.
Bytes peak_resident();

/// Returns the time from when the last rank could begin a step to when the last rank ended it.
Seconds step_time(const std::vector<RankRecord>& records, std::int64_t step);
/// Returns the index of the lowest rank that computes the loss, which is that of the whole batch.
std::size_t loss_record(const std::vector<RankRecord>& records);

/// Returns the measurement of a run, from the records of all ranks in ascending order, and moves
/// their traces into it. The caller sets the backend, the communicator and the facts about the
/// machine.
Measured measure(std::vector<RankRecord>& records, std::int64_t warm_up_steps, bool scales_loss);

/// Returns one entry for each layer with experts, ascending, from the records of all ranks in
/// ascending order. There are none where no rank could read what its routers chose.
std::vector<MeasuredExperts> measured_experts(std::span<const Program> programs, const Job& job,
                                              std::span<const RankRecord> records);

}  // namespace plimsoll
