// A device bench times ops on an accelerator by marks on its queue. Kernels are replayed as in
// training, so the times do not include the host's launches.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "calibrate/measure/rank_bench.h"
#include "calibrate/measure/timed_work.h"
#include "calibrate/schedule/bench_case.h"
#include "calibrate/schedule/sweep.h"
#include "runtime/backend.h"
#include "runtime/rank_device.h"

namespace plimsoll {

/// Returns the bytes over which operands rotate: more than the device's caches hold.
Bytes device_footprint(SweepSize size);

class DeviceBench final : public RankBench {
 public:
  /// Operands rotate over `footprint` bytes, more than the device's caches hold. A case with larger
  /// operands takes the memory that it needs. `backend` must have a device.
  DeviceBench(Backend& backend, Bytes footprint);
  ~DeviceBench() override;
  DeviceBench(const DeviceBench&) = delete;
  DeviceBench& operator=(const DeviceBench&) = delete;

  bool supports(const BenchCase& bench_case) const override;
  /// Returns the time of one run on the device. The device is busy with the same kernel before, so
  /// the time includes neither the launch nor the start of a replay. A sample is as many runs as
  /// take about sampling.sample_time.
  Sample measure(const BenchCase& bench_case, const Sampling& sampling) override;
  /// Returns work whose kernels are launched one by one, with a mark behind each.
  std::unique_ptr<RepeatedWork> repeated(const BenchCase& bench_case) override;
  /// Returns the host time to enqueue one kernel that is not replayed.
  Sample measure_launch(std::int64_t samples);
  /// Times copies of `size` bytes between pageable host memory and the device, or within the
  /// device's memory.
  Sample measure_copy(CopyDirection direction, Bytes size, std::int64_t samples);

 private:
  struct Prepared;
  class SingleLaunches;
  Prepared prepare(const BenchCase& bench_case);
  std::byte* memory(Bytes size);
  void finish(std::string_view what);

  Backend& backend_;
  RankDevice& device_;
  Bytes footprint_;
  std::vector<std::byte> text_;
  std::byte* pool_ = nullptr;
  Bytes pool_size_;
  std::byte* workspace_;
  Bytes workspace_size_;
  std::uint32_t sequence_ = 0;
};

}  // namespace plimsoll
