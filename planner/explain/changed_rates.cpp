// Scales what a cluster file, a framework and a calibration say of one rate.
#include "planner/explain/changed_rates.h"

#include <functional>
#include <utility>

#include "predict/default_efficiency.h"

namespace plimsoll {
namespace {

/// The parts that a cost model is made of.
struct Parts {
  Cluster cluster;
  std::optional<Calibration> calibration;
  Framework framework;
  std::optional<FittedCalibration> fitted;
};

Parts parts_of(const CostModel& costs) {
  return {costs.cluster(), costs.calibration(), costs.framework(), costs.fitted()};
}

Target with_parts(const Target& target, Parts parts) {
  return Target(target.job,
                CostModel(std::move(parts.cluster), std::move(parts.calibration),
                          std::move(parts.framework), std::move(parts.fitted)),
                target.devices, target.reserve);
}

void divide(Sample& sample, double by) {
  sample.median = sample.median / by;
  sample.spread = sample.spread / by;
}

void for_each_device(Cluster& cluster, const std::function<void(Device&)>& change) {
  change(cluster.device);
  for (OtherDevices& others : cluster.other_devices) change(others.device);
}

void scale_arithmetic(Parts& parts, double factor) {
  for_each_device(parts.cluster, [&](Device& device) {
    for (auto* peak : {&device.peak_fp32, &device.peak_bf16, &device.peak_fp16, &device.peak_fp8}) {
      if (*peak) *peak = **peak * factor;
    }
  });
  if (!parts.calibration) return;
  for (MatmulPoint& point : parts.calibration->matmuls) divide(point.time, factor);
}

void scale_memory_bandwidth(Parts& parts, double factor) {
  for_each_device(parts.cluster, [&](Device& device) {
    device.memory_bandwidth = device.memory_bandwidth * factor;
  });
  if (!parts.calibration) return;
  for (OpPoint& point : parts.calibration->ops) divide(point.time, factor);
}

/// Scales links within nodes or all others. Returns whether there are any.
bool scale_links(Parts& parts, bool within_node, double factor) {
  bool any = false;
  for (std::size_t l = 0; l < parts.cluster.levels.size(); ++l) {
    // An outermost level of one node states no number of devices.
    const bool is_within = is_within_node(parts.cluster, l) || parts.cluster.nodes == 1;
    if (is_within != within_node) continue;
    any = true;
    Level& level = parts.cluster.levels[l];
    level.bandwidth = level.bandwidth * factor;
    for (std::optional<BytesPerSecond>* rate : {&level.peer_bandwidth, &level.group_bandwidth}) {
      if (*rate) *rate = **rate * factor;
    }
  }
  if (!parts.calibration) return any;
  for (CollectivePoint& point : parts.calibration->collectives) {
    if ((point.nodes == 1) != within_node) continue;
    any = true;
    divide(point.time, factor);
  }
  return any;
}

void scale_host(Parts& parts, double factor) {
  Framework& framework = parts.framework;
  for (Seconds* time : {&framework.dispatch_op, &framework.dispatch_gather,
                        &framework.dispatch_gradient, &framework.host_wait})
    *time = *time / factor;
  if (!parts.calibration) return;
  Calibration& calibration = *parts.calibration;
  for (Sample* sample :
       {&calibration.dispatch_op, &calibration.dispatch_call, &calibration.wake_up})
    divide(*sample, factor);
  if (calibration.launch) divide(*calibration.launch, factor);
}

}  // namespace

std::string_view to_text(Rate rate) {
  switch (rate) {
    case Rate::arithmetic:
      return "arithmetic";
    case Rate::memory_bandwidth:
      return "memory bandwidth";
    case Rate::link_within_node:
      return "links within a node";
    case Rate::network:
      return "network";
    case Rate::host:
      return "host";
  }
  return "";
}

std::optional<Target> with_rate(const Target& target, Rate rate, double factor) {
  Parts parts = parts_of(*target.costs);
  switch (rate) {
    case Rate::arithmetic:
      scale_arithmetic(parts, factor);
      break;
    case Rate::memory_bandwidth:
      scale_memory_bandwidth(parts, factor);
      break;
    case Rate::link_within_node:
    case Rate::network:
      if (!scale_links(parts, rate == Rate::link_within_node, factor)) return std::nullopt;
      break;
    case Rate::host:
      scale_host(parts, factor);
      break;
  }
  return with_parts(target, std::move(parts));
}

Target with_memory(const Target& target, std::int64_t times) {
  Parts parts = parts_of(*target.costs);
  for_each_device(parts.cluster, [&](Device& device) { device.memory = device.memory * times; });
  return with_parts(target, std::move(parts));
}

}  // namespace plimsoll
