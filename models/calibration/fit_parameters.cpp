// The parameters of fits are listed.
#include "models/calibration/fit_parameters.h"

#include <fmt/format.h>

namespace plimsoll {
namespace {

using C = Cluster&;
using F = Framework&;
using L = std::size_t;
using ConstC = const Cluster&;
using ConstF = const Framework&;

/// A field of the cluster's efficiency, of kernels.
#define EFFICIENCY(field)                                            \
  [](ConstC c, ConstF, L) -> double { return c.efficiency->field; }, \
      [](C c, F, L, double v) { c.efficiency->field = v; }
#define EFFICIENCY_TIME(field)                                               \
  [](ConstC c, ConstF, L) -> double { return c.efficiency->field.value(); }, \
      [](C c, F, L, double v) { c.efficiency->field = Seconds(v); }

// Spreads: a rate that a datasheet or another card of the kind tells is good to 10 or 15 %;
// latencies and host times, to a factor of two or more. A product without work takes less than
// whole small products: 8 us on V100 (512 x 16 x 512, DeepBench), 14 us on B200 (SimuMax). More
// than about twice that would stand for something else that a layer does, and not hold for others.
std::vector<FitParameter> kernel_parameters() {
  return {
      {"matmul.peak_fraction", FitPart::products_of_16_bits, 0.1, 0.1, 1,
       EFFICIENCY(matmul.peak_fraction)},
      {"matmul.added_depth", FitPart::products, 0.5, 1, 2000, EFFICIENCY(matmul.added_depth)},
      {"matmul.half_rate_reuse", FitPart::products, 0.5, 1, 2000,
       EFFICIENCY(matmul.half_rate_reuse)},
      {"matmul.fixed_time", FitPart::products, 1.5, 1e-7, 3e-5, EFFICIENCY_TIME(matmul.fixed_time)},
      {"matmul.unaligned_rate", FitPart::products, 0.5, 0.02, 1, EFFICIENCY(matmul.unaligned_rate)},
      {"matmul.fp8_rate", FitPart::products_of_fp8, 0.15, 0.1, 2, EFFICIENCY(matmul.fp8_rate)},
      {"matmul.rowwise_rate", FitPart::products_by_rows, 0.15, 0.1, 1,
       EFFICIENCY(matmul.rowwise_rate)},
      {"attention_forward.peak_fraction", FitPart::attention_forward, 0.3, 0.05, 1,
       EFFICIENCY(attention_forward.peak_fraction)},
      {"attention_backward.peak_fraction", FitPart::attention_backward, 0.3, 0.05, 1,
       EFFICIENCY(attention_backward.peak_fraction)},
      {"memory.bandwidth_fraction", FitPart::memory, 0.15, 0.1, 1,
       EFFICIENCY(memory.bandwidth_fraction)},
      {"memory.fixed_time", FitPart::memory, 1.5, 1e-7, 3e-4, EFFICIENCY_TIME(memory.fixed_time)},
      {"overlap.compute_slowdown", FitPart::overlap, 0.1, 1, 2,
       EFFICIENCY(overlap.compute_slowdown)},
      {"overlap.communication_slowdown", FitPart::overlap, 0.1, 1, 2,
       EFFICIENCY(overlap.communication_slowdown)},
  };
}
#undef EFFICIENCY
#undef EFFICIENCY_TIME

FitParameter level_bandwidth(std::size_t level) {
  return {fmt::format("levels.{}.bandwidth_fraction", level),
          FitPart::level,
          0.25,
          0.02,
          1,
          [](ConstC c, ConstF, L l) { return c.efficiency->levels[l].bandwidth_fraction; },
          [](C c, F, L l, double v) { c.efficiency->levels[l].bandwidth_fraction = v; },
          level};
}

FitParameter level_time(std::size_t level) {
  return {fmt::format("levels.{}.fixed_time", level),
          FitPart::level,
          0.7,
          1e-6,
          1e-2,
          [](ConstC c, ConstF, L l) { return c.efficiency->levels[l].fixed_time.value(); },
          [](C c, F, L l, double v) { c.efficiency->levels[l].fixed_time = Seconds(v); },
          level};
}

}  // namespace

std::vector<FitParameter> fit_parameters(const Cluster& cluster) {
  if (!cluster.efficiency) return {};
  std::vector<FitParameter> all = kernel_parameters();
  for (std::size_t level = 0; level < cluster.efficiency->levels.size(); ++level) {
    all.push_back(level_bandwidth(level));
    all.push_back(level_time(level));
  }
  all.push_back({"dispatch_op", FitPart::host_op, 0.4, 1e-7, 1e-3,
                 [](ConstC, ConstF f, L) { return f.host.dispatch.op.value(); },
                 [](C, F f, L, double v) { f.host.dispatch.op = Seconds(v); }});
  all.push_back({"host_wait", FitPart::host, 0.7, 1e-7, 1e-2,
                 [](ConstC, ConstF f, L) { return f.host.waits.time.value(); },
                 [](C, F f, L, double v) { f.host.waits.time = Seconds(v); }});
  all.push_back({"backward_dispatch", FitPart::host, 0.4, 0.05, 2,
                 [](ConstC, ConstF f, L) { return f.host.dispatch.backward; },
                 [](C, F f, L, double v) { f.host.dispatch.backward = v; }});
  return all;
}

}  // namespace plimsoll
