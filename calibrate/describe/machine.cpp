// A machine is described from the system's files and from measured points.
#include "calibrate/describe/machine.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "base/error.h"
#include "calibrate/schedule/sweep.h"
#include "runtime/command/rank_record.h"
#include "runtime/cpu/backend.h"

namespace plimsoll {
namespace {

/// Rounds a rate through its text, since the file spells quantities with units and three digits.
BytesPerSecond rate(Bytes bytes, const Sample& time) {
  return parse_bytes_per_second(to_text(bytes / time.median));
}

/// Best rate of the matmuls of a type.
FlopsPerSecond peak_of(const Calibration& calibration, DType dtype) {
  double best = 0;
  for (const MatmulPoint& point : calibration.matmuls) {
    if (point.dtype != dtype) continue;
    best = std::max(best, (flops_of(point.shape) / point.time.median).value());
  }
  INVARIANT(best > 0, "every part of a calibration measures something");
  return parse_flops_per_second(to_text(FlopsPerSecond(best)));
}

}  // namespace

Bytes memory_of_machine() {
  const auto pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
  if (pages <= 0 || page <= 0) throw EnvironmentError("cannot find out the memory of this machine");
  return Bytes(std::int64_t{pages} * page);
}

void describe_machine(Calibration& calibration, const std::string& backend) {
  calibration.device = cpu_name() + " core";
  calibration.backend = backend;
  calibration.date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
  calibration.versions = {onednn_version(), std::string("g++ ") + __VERSION__};
}

void describe_machine(Calibration& calibration, const DeviceFacts& facts, Backend& backend) {
  const RankDevice& device = *backend.device();
  calibration.device = facts.name;
  calibration.backend = std::string(backend.name());
  calibration.date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
  calibration.versions = {device.description(), std::string("g++ ") + __VERSION__};
  calibration.busy_cores = 1;
  calibration.context_memory = device.memory_used();
}

const OpPoint& largest_add(std::span<const OpPoint> points) {
  const OpPoint* largest = nullptr;
  for (const OpPoint& point : points) {
    if (point.kind != OpKind::add || point.dtype != DType::f32) continue;
    if (largest == nullptr || point.moved > largest->moved) largest = &point;
  }
  INVARIANT(largest != nullptr, "every part of a calibration measures something");
  return *largest;
}

BytesPerSecond memory_bandwidth(std::span<const OpPoint> points) {
  const OpPoint& add = largest_add(points);
  return add.moved / add.time.median;
}

Device measured_device(const Calibration& calibration, DType precision, Bytes memory) {
  Device device;
  device.name = calibration.device;
  device.kind = DeviceKind::cpu_core;
  device.memory = memory;
  device.peak_fp32 = peak_of(calibration, DType::f32);
  if (precision == DType::bf16) device.peak_bf16 = peak_of(calibration, DType::bf16);
  if (precision == DType::f16) device.peak_fp16 = peak_of(calibration, DType::f16);
  const OpPoint& add = largest_add(calibration.ops);
  device.memory_bandwidth = rate(add.moved, add.time);
  return device;
}

Level measured_level(const std::string& name, std::int64_t devices, const SendRange& sends) {
  return {name, devices, rate(sends.largest.payload, sends.largest.time),
          parse_seconds(to_text(sends.smallest.time.median))};
}

}  // namespace plimsoll
