// Records of the ranks of a run, and the measurement that is made of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/timeline.h"
#include "graph/traffic.h"
#include "plan/measured.h"
#include "runtime/executor.h"

namespace plimsoll {

struct RankRecord {
  std::int64_t rank = 0;
  std::int64_t stage = 0;
  Picoseconds ready;  ///< when this rank could begin, on the clock of all
  std::vector<StepResult> steps;
  Timeline trace;                            ///< of the last step
  std::vector<float> gradients, parameters;  ///< when kept
  std::vector<Traffic> traffic;              ///< of the last step
  PhaseFlops flops = {};                     ///< of the last step
  Bytes resident;                            ///< of its process; 0 where another rank counts it
  std::string device;                        ///< accelerators only, as in Measured
  Bytes device_memory_before, device_memory;
};

/// For another process of the same program. `record_from` throws std::runtime_error for bytes that
/// are none.
std::string to_bytes(const RankRecord& record);
RankRecord record_from(const std::string& bytes);

/// When the last rank ended a step; before the first (-1), when all were ready.
Picoseconds end_of(const std::vector<RankRecord>& records, std::int64_t step);
/// Index of the lowest rank of the last stage: its loss is that of the whole batch.
std::size_t loss_record(const std::vector<RankRecord>& records);

/// The measurement of a run of `steps` steps, from the records of all ranks in ascending order,
/// whose traces it takes. Backend, communicator and what is about the machine is left to the
/// caller.
Measured measure(std::vector<RankRecord>& records, std::int64_t warm_up_steps, bool scales_loss);

}  // namespace plimsoll
