// Ops are timed on an accelerator by marks on its queue around replayed kernels.
#include "calibrate/measure/device_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "calibrate/measure/core_bench.h"
#include "calibrate/measure/statistics.h"
#include "graph/op_table.h"
#include "models/framework/framework.h"

namespace plimsoll {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kDeviceDeadline{60};
constexpr std::int64_t kMostDeviceSets = 64, kMostRuns = 64;

Seconds since(Clock::time_point start) {
  return Seconds(std::chrono::duration<double>(Clock::now() - start).count());
}

}  // namespace

struct DeviceBench::Prepared {
  RankContext context;
  std::unique_ptr<Kernel> kernel;
  std::vector<std::vector<std::byte*>> inputs, outputs;  ///< by set
};

Bytes device_footprint(SweepSize size) {
  return Bytes(std::int64_t{size == SweepSize::quick ? 1 : 256} << 20);
}

DeviceBench::DeviceBench(Backend& backend, Bytes footprint)
    : backend_(backend),
      device_(*backend.device()),
      footprint_(footprint),
      text_(std::size_t{1} << 20),
      workspace_(nullptr),
      workspace_size_(bundled_cuda_framework().memory.process.workspace) {
  for (std::size_t i = 0; i < text_.size(); ++i) text_[i] = std::byte(i * 31 % 251);
  backend_.enter_thread();
  workspace_ = device_.allocate(workspace_size_);
}

DeviceBench::~DeviceBench() {
  if (pool_ != nullptr) device_.free(pool_);
  device_.free(workspace_);
}

std::byte* DeviceBench::memory(Bytes size) {
  if (size > pool_size_) {
    if (pool_ != nullptr) device_.free(std::exchange(pool_, nullptr));
    pool_size_ = Bytes(0);
    pool_ = device_.allocate(size);
    pool_size_ = size;
  }
  return pool_;
}

bool DeviceBench::supports(const BenchCase& bench_case) const {
  return bool(backend_.supports(bench_case.op, bench_case.tensors));
}

DeviceBench::Prepared DeviceBench::prepare(const BenchCase& bench_case) {
  std::vector<Bytes> offsets;
  Bytes size;
  const std::optional<std::size_t> in_place = row(bench_case.op.kind).in_place;
  for (std::size_t i = 0; i < bench_case.tensors.size(); ++i) {
    const bool shares =
        in_place && !bench_case.op.outputs.empty() && bench_case.op.outputs[0] == TensorId(i);
    offsets.push_back(shares ? offsets[bench_case.op.inputs[*in_place].index()] : size);
    if (!shares) size += round_up(bytes_of(bench_case.tensors[i]), Bytes(256));
  }
  const std::int64_t sets =
      std::clamp<std::int64_t>(footprint_.count() / size.count(), 1, kMostDeviceSets);
  std::byte* base = memory(size * sets);
  Prepared prepared;
  for (std::size_t i = 0; i < bench_case.tensors.size(); ++i) {
    std::vector<std::byte> values(std::size_t(bytes_of(bench_case.tensors[i]).count()));
    fill_operand(bench_case.tensors[i], bench_case.ids, values.data());
    device_.write(base + offsets[i].count(), values);
  }
  for (std::int64_t set = 1; set < sets; ++set)
    device_.copy(base + (size * set).count(), base, size);
  for (std::int64_t set = 0; set < sets; ++set) {
    const auto addresses = [&](const std::vector<TensorId>& ids) {
      std::vector<std::byte*> result;
      for (TensorId id : ids) result.push_back(base + (size * set + offsets[id.index()]).count());
      return result;
    };
    prepared.inputs.push_back(addresses(bench_case.op.inputs));
    prepared.outputs.push_back(addresses(bench_case.op.outputs));
  }
  prepared.context.program = &bench_case.program;
  prepared.context.text = {text_, 1};
  prepared.context.workspace = {workspace_, std::size_t(workspace_size_.count())};
  prepared.kernel = backend_.prepare(bench_case.op, bench_case.tensors, prepared.context);
  return prepared;
}

Sample DeviceBench::measure(const BenchCase& bench_case, const Sampling& sampling) {
  const Prepared prepared = prepare(bench_case);
  std::size_t set = 0;
  const auto enqueue = [&](std::int64_t runs) {
    for (std::int64_t i = 0; i < runs; ++i) {
      prepared.kernel->run(prepared.inputs[set], prepared.outputs[set], RunPosition{});
      set = (set + 1) % prepared.inputs.size();
    }
  };
  // The first two times a sequence runs as it is and is captured; from then on it is replayed.
  const auto run = [&](std::uint32_t sequence, std::int64_t runs) {
    if (!device_.begin(sequence, RunPosition{}, true)) return;
    enqueue(runs);
    device_.end();
  };
  // While the device is busy with the first replay, the host launches the second.
  const auto timed = [&](std::uint32_t sequence, std::int64_t runs) {
    run(sequence, runs);
    device_.forget_marks();
    device_.mark();
    run(sequence, runs);
    const std::uint32_t end = device_.mark();
    device_.finish(kDeviceDeadline, to_text(bench_case.op.kind));
    return Seconds(device_.time_of(end).seconds().value() / double(runs));
  };
  const std::uint32_t once = sequence_++, sampled = sequence_++;
  timed(once, 1);  // the driver may still load the kernel
  const Seconds one = std::max(timed(once, 1), Seconds(1e-7));
  const auto runs =
      std::clamp<std::int64_t>(std::int64_t(sampling.sample_time / one), 1, kMostRuns);
  timed(sampled, runs);
  const auto sample = [&] {
    std::vector<Seconds> times;
    for (std::int64_t i = 0; i < sampling.samples; ++i)
      times.push_back(std::max(timed(sampled, runs), Seconds(1e-9)));
    return summarize(times);
  };
  const Sample first = sample();
  if (!first.unsteady) return first;
  const Sample again = sample();
  return again.spread / again.median < first.spread / first.median ? again : first;
}

class DeviceBench::SingleLaunches final : public RepeatedWork {
 public:
  SingleLaunches(DeviceBench& bench, const BenchCase& bench_case)
      : bench_(bench), case_(bench_case), prepared_(bench.prepare(case_)) {
    bench_.finish("preparing an op");
  }

  std::vector<Run> run(std::int64_t at_least, Seconds horizon) override {
    RankDevice& device = bench_.device_;
    std::int64_t count = at_least;
    if (usual_ > Seconds(0)) {
      const double wanted = std::min(std::ceil(horizon / usual_), double(kMostRepeats));
      count = std::max(count, std::int64_t(wanted));
    }
    device.begin(sequence_, RunPosition{}, false);
    device.forget_marks();
    device.mark();
    for (std::int64_t i = 0; i < count; ++i) {
      const std::size_t set = std::size_t(number_++) % prepared_.inputs.size();
      prepared_.kernel->run(prepared_.inputs[set], prepared_.outputs[set], RunPosition{});
      device.mark();
    }
    device.end();
    bench_.finish(to_text(case_.op.kind));
    std::vector<Run> runs;
    Picoseconds begin;
    for (std::int64_t i = 0; i < count; ++i) {
      const Picoseconds end = device.time_of(std::uint32_t(i) + 1);
      runs.push_back({begin, std::max((end - begin).seconds(), Seconds(1e-9))});
      begin = end;
    }
    usual_ = quantile(times_of(runs), 0.5);
    return runs;
  }

 private:
  static constexpr std::int64_t kMostRepeats = 4096;

  DeviceBench& bench_;
  BenchCase case_;
  Prepared prepared_;
  std::uint32_t sequence_ = bench_.sequence_++;
  Seconds usual_;  ///< time of a run, once known
  std::int64_t number_ = 0;
};

std::unique_ptr<RepeatedWork> DeviceBench::repeated(const BenchCase& bench_case) {
  return std::make_unique<SingleLaunches>(*this, bench_case);
}

void DeviceBench::finish(std::string_view what) { device_.finish(kDeviceDeadline, what); }

Sample DeviceBench::measure_launch(std::int64_t samples) {
  constexpr std::int64_t kLaunches = 200;
  const BenchCase small = memory_case(OpKind::add, Bytes(4096), 0);
  const Prepared prepared = prepare(small);
  std::vector<Seconds> times;
  for (std::int64_t i = 0; i <= samples; ++i) {
    device_.begin(sequence_, RunPosition{}, false);
    const auto start = Clock::now();
    for (std::int64_t run = 0; run < kLaunches; ++run)
      prepared.kernel->run(prepared.inputs[0], prepared.outputs[0], RunPosition{});
    const Seconds taken = since(start);
    device_.end();
    device_.finish(kDeviceDeadline, "launching kernels");
    if (i > 0) times.push_back(Seconds(taken.value() / double(kLaunches)));  // the first loads
  }
  ++sequence_;
  return summarize(times);
}

Sample DeviceBench::measure_copy(CopyDirection direction, Bytes size, std::int64_t samples) {
  std::byte* at = memory(size * 2);
  std::vector<std::byte> host(std::size_t(size.count()));
  std::vector<Seconds> times;
  for (std::int64_t i = 0; i <= samples; ++i) {
    const auto start = Clock::now();
    switch (direction) {
      case CopyDirection::to_device:
        device_.write(at, host);
        break;
      case CopyDirection::to_host:
        device_.read(at, host);
        break;
      case CopyDirection::on_device:
        device_.copy(at + size.count(), at, size);
        device_.finish(kDeviceDeadline, "a copy");
        break;
    }
    if (i > 0) times.push_back(std::max(since(start), Seconds(1e-9)));
  }
  return summarize(times);
}

}  // namespace plimsoll
