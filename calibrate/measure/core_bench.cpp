// A core bench lays out and rotates operands, prepares kernels and times their runs.
#include "calibrate/measure/core_bench.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <vector>

#include "calibrate/measure/statistics.h"
#include "models/framework/framework.h"
#include "runtime/half.h"

namespace plimsoll {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::int64_t kMostOperandSets = 4096;

/// An OperandLayout says where the operands of one set lie. Tensors that share storage share an
/// offset.
struct OperandLayout {
  std::vector<Bytes> offsets;  // by tensor
  Bytes size;
};

OperandLayout layout_of(const BenchCase& bench_case) {
  OperandLayout layout;
  const std::optional<std::size_t> in_place = row(bench_case.op.kind).in_place;
  for (std::size_t i = 0; i < bench_case.tensors.size(); ++i) {
    const bool shares =
        in_place && !bench_case.op.outputs.empty() && bench_case.op.outputs[0] == TensorId(i);
    if (shares) {
      const TensorId original = bench_case.op.inputs[*in_place];
      layout.offsets.push_back(layout.offsets[original.index()]);
    } else {
      layout.offsets.push_back(layout.size);
      layout.size += round_up(bytes_of(bench_case.tensors[i]), kBlockAlignment);
    }
  }
  return layout;
}

/// Values that keep every kind finite and away from denormals: between 0.1 and 1.
std::vector<float> pattern() {
  std::vector<float> values(std::size_t{1} << 12);  // small: must not push operands out of caches
  std::minstd_rand random(1);
  std::uniform_real_distribution<float> uniform(0.1f, 1.0f);
  for (float& value : values) value = uniform(random);
  return values;
}

/// The id of this start of this machine's kernel; empty where the kernel has none.
std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

/// "3 7 12": the cores that this process may use.
std::string own_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::string text;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return text;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) text += fmt::format("{} ", core);
  }
  return text;
}

/// Returns, on all processes, the machine that has the most processes for a core, and its cores
/// that any of them may use.
CoreSharing most_crowded_machine(Processes& processes, std::chrono::milliseconds deadline) {
  struct Machine {
    std::int64_t processes = 0;
    std::set<int> cores;
  };
  std::map<std::string, Machine> machines;
  CoreSharing found;
  for (const std::string& line : processes.gather(boot_id() + "\n" + own_cores(), deadline)) {
    std::istringstream text(line);
    std::string id;
    std::getline(text, id);
    Machine& machine = machines[id];
    ++machine.processes;
    for (int core = 0; text >> core;) machine.cores.insert(core);
  }
  for (const auto& [id, machine] : machines) {
    const auto cores = std::int64_t(machine.cores.size());
    if (id.empty() || cores == 0) continue;
    if (machine.processes * found.cores > found.processes * cores) {
      found.processes = machine.processes;
      found.cores = cores;
    }
  }
  std::istringstream agreed(
      processes.broadcast(fmt::format("{} {}", found.processes, found.cores), deadline));
  agreed >> found.processes >> found.cores;
  return found;
}

/// Returns the time that repeated work took, relative to the sum of its ops' times.
double times_longer(const std::vector<RepeatedWork::Run>& runs) {
  std::vector<double> taken;
  for (const RepeatedWork::Run& run : runs) taken.push_back(run.taken.value());
  const Picoseconds begun = runs.back().begin - runs.front().begin;
  const double whole = begun.seconds().value() + runs.back().taken.value();
  return whole / (double(runs.size()) * quantile(taken, 0.5));
}

}  // namespace

void fill_operand(const Tensor& tensor, std::int64_t ids, std::byte* at) {
  static const std::vector<float> values = pattern();
  std::int64_t left = elements(tensor.shape);
  if (tensor.dtype == DType::i32) {
    for (std::int64_t i = 0; i < left; ++i) {
      const auto id = std::int32_t(i * 7919 % ids);
      std::memcpy(at + i * std::int64_t(sizeof(id)), &id, sizeof(id));
    }
    return;
  }
  if (tensor.role == TensorRole::scalar) {
    std::vector<float> scalars(values.begin(), values.begin() + left);
    scalars[std::size_t(Scalar::found)] = 0;
    std::memcpy(at, scalars.data(), scalars.size() * sizeof(float));
    return;
  }
  while (left > 0) {
    const std::int64_t part = std::min(left, std::int64_t(values.size()));
    from_f32(tensor.dtype, values.data(), at, part);
    at += part * element_bytes(tensor.dtype);
    left -= part;
  }
}

struct CoreBench::Member {
  std::unique_ptr<Backend> backend;
  AlignedMemory pool, workspace;
  RankContext context;
  std::unique_ptr<Kernel> kernel;
  /// Addresses of inputs and outputs, by set.
  std::vector<std::vector<std::byte*>> inputs, outputs;
};

CoreBench::CoreBench(std::string_view backend, std::int64_t cores, Bytes footprint)
    : footprint_(footprint), clock_overhead_(clock_overhead()), text_(std::size_t{1} << 20) {
  for (std::size_t i = 0; i < text_.size(); ++i) text_[i] = std::byte(i * 31 % 251);
  for (std::int64_t i = 0; i < cores; ++i) {
    Member& member = *members_.emplace_back(std::make_unique<Member>());
    member.backend = make_backend(backend);
    member.pool = AlignedMemory(footprint);
    member.workspace = AlignedMemory(bundled_framework().memory.process.workspace);
  }
}

CoreBench::~CoreBench() = default;

TimedWork CoreBench::prepare(Member& member, const BenchCase& bench_case) {
  member.backend->enter_thread();
  const OperandLayout layout = layout_of(bench_case);
  if (member.pool.memory().size() < std::size_t(layout.size.count())) {
    member.pool = AlignedMemory(layout.size);
  }
  member.context.program = &bench_case.program;
  member.context.text = {text_, 1};
  member.context.workspace = member.workspace.memory();
  member.kernel = member.backend->prepare(bench_case.op, bench_case.tensors, member.context);
  const std::int64_t room = footprint_.count() / layout.size.count();
  member.inputs.clear();
  member.outputs.clear();
  for (std::int64_t set = 0; set < std::clamp(room, std::int64_t{1}, kMostOperandSets); ++set) {
    std::byte* base = member.pool.memory().data() + set * layout.size.count();
    for (std::size_t i = 0; i < bench_case.tensors.size(); ++i) {
      fill_operand(bench_case.tensors[i], bench_case.ids, base + layout.offsets[i].count());
    }
    const auto addresses = [&](const std::vector<TensorId>& ids) {
      std::vector<std::byte*> result;
      for (TensorId id : ids) result.push_back(base + layout.offsets[id.index()].count());
      return result;
    };
    member.inputs.push_back(addresses(bench_case.op.inputs));
    member.outputs.push_back(addresses(bench_case.op.outputs));
  }
  return [this, &member, &bench_case](std::int64_t run) {
    const std::size_t set = std::size_t(run) % member.inputs.size();
    for (std::size_t i = 0; bench_case.in_frame && i < bench_case.op.outputs.size(); ++i) {
      const TensorId id = bench_case.op.outputs[i];
      fill_operand(bench_case.tensors[id.index()], bench_case.ids, member.outputs[set][i]);
    }
    for (std::size_t i : bench_case.fresh) {
      const TensorId id = bench_case.op.inputs[i];
      fill_operand(bench_case.tensors[id.index()], bench_case.ids, member.inputs[set][i]);
    }
    const auto start = Clock::now();
    member.kernel->run(member.inputs[set], member.outputs[set], RunPosition{});
    const auto taken = std::chrono::duration<double>(Clock::now() - start).count();
    return std::max(Seconds(taken) - clock_overhead_, Seconds(1e-9));  // never below a nanosecond
  };
}

class CoreBench::OnOneCore final : public RepeatedWork {
 public:
  OnOneCore(CoreBench& bench, const BenchCase& bench_case)
      : case_(bench_case), work_(bench.prepare(*bench.members_.front(), case_)) {}

  std::vector<Run> run(std::int64_t at_least, Seconds horizon) override {
    const auto start = Clock::now();
    std::vector<Run> runs;
    while (std::int64_t(runs.size()) < at_least || time_since(start).seconds() < horizon) {
      const Picoseconds begin = time_since(start);
      runs.push_back({begin, work_(number_++)});
    }
    return runs;
  }

 private:
  BenchCase case_;
  TimedWork work_;
  std::int64_t number_ = 0;
};

std::unique_ptr<RepeatedWork> CoreBench::repeated(const BenchCase& bench_case) {
  return std::make_unique<OnOneCore>(*this, bench_case);
}

std::vector<Seconds> times_of(const std::vector<RepeatedWork::Run>& runs) {
  std::vector<Seconds> times;
  for (const RepeatedWork::Run& run : runs) times.push_back(run.taken);
  return times;
}

Sample CoreBench::measure(const BenchCase& bench_case, const Sampling& sampling) {
  return measure_together(
      cores(),
      [&](std::int64_t member) { return prepare(*members_[std::size_t(member)], bench_case); },
      sampling);
}

CoreSharing measure_core_sharing(Processes& processes, RankBench& bench,
                                 const BenchCase& bench_case, Seconds horizon,
                                 std::chrono::milliseconds deadline) {
  CoreSharing sharing = most_crowded_machine(processes, deadline);
  if (sharing.processes <= sharing.cores) return sharing;
  processes.barrier(deadline);
  const double own = times_longer(bench.repeated(bench_case)->run(16, horizon));
  std::vector<double> all;
  for (const std::string& text : processes.gather(fmt::format("{}", own), deadline)) {
    double value = 1;
    std::from_chars(text.data(), text.data() + text.size(), value);
    all.push_back(value);
  }
  if (all.empty()) return sharing;  // not process 0
  // A larger slowdown than their share has other causes.
  const double share = double(sharing.processes) / double(sharing.cores);
  sharing.times = std::clamp(quantile(all, 0.5), 1.0, share);
  return sharing;
}

void apply(const CoreSharing& sharing, Calibration& calibration) {
  if (sharing.times <= 1) return;
  const auto lengthen = [&](auto& points) {
    for (auto& point : points) {
      point.time.median = point.time.median * sharing.times;
      point.time.spread = point.time.spread * sharing.times;
    }
  };
  lengthen(calibration.ops);
  lengthen(calibration.matmuls);
  calibration.versions.push_back(
      fmt::format("{} processes share {} cores: ops and matmuls are given {:.2f} times the time of "
                  "one that is not interrupted",
                  sharing.processes, sharing.cores, sharing.times));
}

}  // namespace plimsoll
