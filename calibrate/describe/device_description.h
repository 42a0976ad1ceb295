// A device description is what a cluster file says of an accelerator that was measured.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "calibrate/schedule/bench_case.h"
#include "calibrate/schedule/sweep.h"
#include "models/calibration/calibration.h"
#include "models/cluster/cluster.h"
#include "runtime/rank_device.h"

namespace plimsoll {

/// An AttentionTiming is one flash attention, forward or backward.
struct AttentionTiming {
  bool backward = false;
  Flops work;              ///< of all products, as efficient_attention() counts them
  std::int64_t tiles = 0;  ///< as efficient_attention() counts them
  Seconds time;
};
struct AttentionTest {
  BenchCase bench_case;
  AttentionTiming timing;  ///< the time is not set
};

/// Returns the causal attentions to time, in the sizes of training: one sequence of 512 tokens up
/// to 16 sequences of 4096.
std::vector<AttentionTest> attention_tests(SweepSize size, DType precision);

/// Sets the cluster's device and efficiency, and returns in words where they come from. Peak rates
/// are the datasheet's where the device's generation is known, else the best measured rates. The
/// fractions of them that attention reaches are fitted on `attention`, if it is not empty.
std::string describe_device(Cluster& cluster, const Calibration& calibration,
                            const DeviceFacts& facts, DType precision,
                            std::span<const AttentionTiming> attention);

}  // namespace plimsoll
