// Records are packed into bytes and merged into a measurement.
#include "runtime/command/rank_record.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "base/json.h"
#include "plan/timeline_json.h"

namespace plimsoll {
namespace {

class Writer {
 public:
  template <class T>
  void value(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  template <class T>
  void values(const T* data, std::size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    value(std::uint64_t(count));
    if (count > 0) bytes.append(reinterpret_cast<const char*>(data), count * sizeof(T));
  }
  std::string bytes;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <class T>
  T value() {
    T value;
    take(&value, sizeof(T));
    return value;
  }
  template <class Container>
  Container values() {
    using T = typename Container::value_type;
    const auto count = value<std::uint64_t>();
    if (count > bytes_.size() / sizeof(T)) refuse();
    Container values;
    values.resize(count);
    take(values.data(), count * sizeof(T));
    return values;
  }
  void finish() const {
    if (!bytes_.empty()) refuse();
  }

 private:
  void take(void* to, std::size_t count) {
    if (count > bytes_.size()) refuse();
    if (count > 0) std::memcpy(to, bytes_.data(), count);
    bytes_.remove_prefix(count);
  }
  [[noreturn]] static void refuse() {
    throw std::runtime_error("another process sent a measurement that this one cannot read");
  }

  std::string_view bytes_;
};

Timeline merge(std::vector<RankRecord>& records) {
  Timeline merged;
  Picoseconds first = records[0].trace.memory[0].curve[0].time;
  for (RankRecord& record : records) {
    Timeline& trace = record.trace;
    first = std::min(first, trace.memory[0].curve[0].time);
    std::move(trace.intervals.begin(), trace.intervals.end(), std::back_inserter(merged.intervals));
    std::move(trace.memory.begin(), trace.memory.end(), std::back_inserter(merged.memory));
  }
  for (Interval& interval : merged.intervals) {
    interval.posted = interval.posted - first;
    interval.begin = interval.begin - first;
    interval.end = interval.end - first;
  }
  for (RankMemory& memory : merged.memory) {
    for (MemoryPoint& point : memory.curve) point.time = point.time - first;
  }
  sort_intervals(merged);
  return merged;
}

Seconds median(std::vector<Seconds> times) {
  if (times.empty()) return Seconds(0);
  std::sort(times.begin(), times.end());
  const std::size_t middle = times.size() / 2;
  return times.size() % 2 == 1 ? times[middle] : (times[middle - 1] + times[middle]) / 2;
}

/// The rows of one layer and micro-batch at the ranks that share out its experts.
struct SharedRows {
  std::int64_t most = 0, sum = 0, ranks = 0;
};

class Summary {
 public:
  Summary(std::span<const Program> programs, const Job& job) : programs_(programs), job_(job) {}

  void add(std::int64_t rank, const RoutedRows& routed) {
    const Grid& grid = programs_[0].grid;
    const Coordinates at = grid.coordinates(rank);
    const Program& program = programs_[class_of(programs_, at)];
    const Call& call = program.calls[routed.call];
    const std::int64_t number = call.layer.value_or(0);
    MeasuredExperts& layer = layers_[number];
    const bool first_of_sequence = at[std::size_t(Axis::mp)] == 0 && at[std::size_t(Axis::cp)] == 0;
    if (first_of_sequence) layer.dropped += routed.dropped;
    layer.dropped += routed.overflowed;
    if (routed.rows < 0) return;
    const std::int64_t first = members(grid, Group{{Axis::ep}}, rank)[0];
    SharedRows& shared = shared_[{number, first, call.micro_batch.value_or(0)}];
    shared.most = std::max(shared.most, routed.rows);
    shared.sum += routed.rows;
    ++shared.ranks;
  }

  std::vector<MeasuredExperts> finish() {
    std::map<std::int64_t, std::int64_t> counted;
    for (const auto& [key, shared] : shared_) {
      if (shared.sum == 0) continue;
      const std::int64_t number = std::get<0>(key);
      const double load = double(shared.most) * double(shared.ranks) / double(shared.sum);
      layers_[number].load += load;
      layers_[number].highest_load = std::max(layers_[number].highest_load, load);
      ++counted[number];
    }
    std::vector<MeasuredExperts> all;
    for (auto& [number, layer] : layers_) {
      layer.layer = number;
      layer.choices = job_.global_batch * job_.sequence * job_.experts->chosen;
      if (counted[number] > 0) layer.load /= double(counted[number]);
      all.push_back(layer);
    }
    return all;
  }

 private:
  std::span<const Program> programs_;
  const Job& job_;
  std::map<std::int64_t, MeasuredExperts> layers_;
  /// By layer, first rank of those that share its experts out, and micro-batch.
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, SharedRows> shared_;
};

}  // namespace

std::string to_bytes(const RankRecord& record) {
  Writer writer;
  writer.value(record.rank);
  writer.value(record.has_loss);
  writer.values(record.steps.data(), record.steps.size());
  const std::string trace = json_text(timeline_json(record.trace));
  writer.values(trace.data(), trace.size());
  writer.values(record.gradients.data(), record.gradients.size());
  writer.values(record.parameters.data(), record.parameters.size());
  writer.values(record.traffic.data(), record.traffic.size());
  writer.value(record.flops);
  writer.values(record.routed.data(), record.routed.size());
  writer.value(record.resident);
  writer.values(record.device.data(), record.device.size());
  writer.value(record.device_memory_before);
  writer.value(record.device_memory);
  return std::move(writer.bytes);
}

RankRecord record_from(const std::string& bytes) {
  Reader reader(bytes);
  RankRecord record;
  record.rank = reader.value<std::int64_t>();
  record.has_loss = reader.value<bool>();
  record.steps = reader.values<std::vector<StepResult>>();
  const auto trace = reader.values<std::string>();
  const std::string name = "the trace of rank " + std::to_string(record.rank);
  record.trace = timeline_from(JsonObject(parse_json(trace, name), name));
  record.gradients = reader.values<std::vector<float>>();
  record.parameters = reader.values<std::vector<float>>();
  record.traffic = reader.values<std::vector<Traffic>>();
  record.flops = reader.value<PhaseFlops>();
  record.routed = reader.values<std::vector<RoutedRows>>();
  record.resident = reader.value<Bytes>();
  record.device = reader.values<std::string>();
  record.device_memory_before = reader.value<Bytes>();
  record.device_memory = reader.value<Bytes>();
  reader.finish();
  return record;
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

Bytes peak_resident() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return Bytes(std::int64_t{usage.ru_maxrss} * 1024);  // Linux counts in KiB
}

Seconds step_time(const std::vector<RankRecord>& records, std::int64_t step) {
  Picoseconds begin = records[0].steps[std::size_t(step)].begin, end = begin;
  for (const RankRecord& record : records) {
    begin = std::max(begin, record.steps[std::size_t(step)].begin);
    end = std::max(end, record.steps[std::size_t(step)].end);
  }
  return (end - begin).seconds();
}

std::size_t loss_record(const std::vector<RankRecord>& records) {
  const auto found = std::find_if(records.begin(), records.end(),
                                  [](const RankRecord& record) { return record.has_loss; });
  return found == records.end() ? 0 : std::size_t(found - records.begin());
}

Measured measure(std::vector<RankRecord>& records, std::int64_t warm_up_steps, bool scales_loss) {
  Measured measured;
  measured.steps = std::int64_t(records[0].steps.size());
  measured.warm_up_steps = warm_up_steps;
  for (std::int64_t step = warm_up_steps; step + 1 < measured.steps; ++step) {
    measured.step_times.push_back(step_time(records, step));
  }
  measured.median_step_time = median(measured.step_times);
  for (const StepResult& step : records[loss_record(records)].steps) {
    measured.losses.push_back(step.loss);
    measured.gradient_norms.push_back(step.gradient_norm);
    if (!scales_loss) continue;
    measured.loss_scales.push_back(step.loss_scale);
    measured.skipped_steps = step.skipped;
  }
  for (const RankRecord& record : records) measured.resident += record.resident;
  // Ranks that share the device may have left when others look: the most is what all took.
  measured.device = records[0].device;
  measured.device_memory_before = records[0].device_memory_before;
  for (const RankRecord& record : records) {
    if (record.device == measured.device)
      measured.device_memory = std::max(measured.device_memory, record.device_memory);
  }
  measured.timeline = merge(records);
  return measured;
}

std::vector<MeasuredExperts> measured_experts(std::span<const Program> programs, const Job& job,
                                              std::span<const RankRecord> records) {
  if (!job.experts) return {};
  Summary summary(programs, job);
  for (const RankRecord& record : records) {
    for (const RoutedRows& routed : record.routed) summary.add(record.rank, routed);
  }
  return summary.finish();
}

}  // namespace plimsoll
