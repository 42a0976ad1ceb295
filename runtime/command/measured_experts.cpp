// Rows of experts are compared between the ranks that share the experts of a layer.
#include "runtime/command/measured_experts.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

namespace plimsoll {
namespace {

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
