// Device description: what a cluster file says of an accelerator that was measured.
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
#include "runtime/device_facts.h"

namespace plimsoll {

/// One flash attention, forward or backward.
struct AttentionTiming {
  bool backward = false;
  Flops work;
  std::int64_t tiles = 0;  ///< as efficient_attention() counts them
  Seconds time;
};
struct AttentionTest {
  BenchCase bench_case;
  AttentionTiming timing;  ///< all but the time
};

/// Causal, in the sizes of training: one sequence of 512 tokens up to 16 of 4096.
std::vector<AttentionTest> attention_tests(SweepSize size, DType precision);

/// Sets device and efficiency, and says where they come from. Peak rates are of the datasheet, as
/// far as the device's generation is known, else the best measured ones; the fractions of them that
/// attention reaches are fitted on `attention`, if there is any.
std::string describe_device(Cluster& cluster, const Calibration& calibration,
                            const DeviceFacts& facts, DType precision,
                            std::span<const AttentionTiming> attention);

}  // namespace plimsoll
