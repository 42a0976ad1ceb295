// Single kernels are fitted here.
#include "fitting/fit_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "simulator/costs/collective_cost.h"
#include "simulator/costs/efficiency_curves.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kThin = 128;     // columns or rows: two of the smallest tile
constexpr std::size_t kFewestOps = 20;  // a fit of fewer says nothing of its errors

/// All scores of attention count.
Flops work_of(const OpMeasurement& op) {
  const MatmulShape& s = op.shape;
  if (op.kind == OpKind::matmul) {
    return Flops(2.0 * double(s.batch) * double(s.m) * double(s.n) * double(s.k));
  }
  const double scores = double(op.batch * op.heads) * double(op.sequence * op.sequence);
  const double times = op.kind == OpKind::flash_attention_backward ? 2.5 : 1;
  return Flops(4 * times * scores * double(op.head_size));
}

Seconds time_of(const OpMeasurement& op, const Cluster& cluster) {
  const Efficiency& efficiency = *cluster.efficiency;
  const auto rate = peak(cluster.device, op.dtype);
  INVARIANT(rate, "ops of types without a peak are left out");
  if (op.kind == OpKind::matmul) {
    const MatmulShape& s = op.shape;
    const std::int64_t operands = bytes_of(op.dtype).count() * s.k * (s.m + s.n);
    const Bytes moved(s.batch * (operands + op.output_bytes * s.m * s.n));
    return efficient_matmul(s, matmul_alignment(s, op.transpose_a, op.transpose_b), moved, op.dtype,
                            *rate, cluster.device, efficiency)
        .time;
  }
  const bool backward = op.kind == OpKind::flash_attention_backward;
  const std::int64_t tiles =
      op.batch * op.heads * ((op.sequence + kAttentionTileRows - 1) / kAttentionTileRows);
  return efficient_attention(
             work_of(op), true, tiles, *rate,
             backward ? efficiency.attention_backward : efficiency.attention_forward,
             efficiency.matmul.units)
      .time;
}

/// Returns a key that is equal for ops of one shape, whether transposed, accumulated or not.
std::vector<std::int64_t> shape_key(const OpMeasurement& op) {
  const MatmulShape& s = op.shape;
  return {std::int64_t(op.kind != OpKind::matmul),
          s.batch,
          s.m,
          s.n,
          s.k,
          op.batch,
          op.sequence,
          op.heads,
          op.head_size};
}

std::vector<OpMeasurement> usable(std::span<const OpMeasurement> ops, const Cluster& cluster) {
  std::vector<OpMeasurement> result;
  for (const OpMeasurement& op : ops) {
    if (!is_device_of(cluster, op.gpu, op.devices) || !peak(cluster.device, op.dtype)) continue;
    const bool thin = op.kind == OpKind::matmul && std::min(op.shape.m, op.shape.n) <= kThin;
    if (!thin) result.push_back(op);
  }
  if (result.size() < kFewestOps) {
    throw InfeasibleError(fmt::format(
        "{} ops of the {} of cluster {}; a fit takes {} (lab/fit finds the devices of raw rows)",
        result.size(), cluster.device.name, cluster.name, kFewestOps));
  }
  return result;
}

/// States, for each sort of kernel, the range of sizes for which its values hold.
void state_ranges(std::span<const OpMeasurement> ops, OpFit& fit) {
  Efficiency& efficiency = *fit.cluster.efficiency;
  for (const OpFitErrors& errors : fit.errors) {
    FitRange<Flops> range{Flops(std::numeric_limits<double>::infinity()), Flops(0),
                          errors.unseen_median};
    for (const OpMeasurement& op : ops) {
      if (to_text(op.kind) != errors.kind) continue;
      range.from = std::min(range.from, work_of(op));
      range.to = std::max(range.to, work_of(op));
    }
    if (errors.kind == to_text(OpKind::matmul)) efficiency.matmul.fitted = range;
    if (errors.kind == to_text(OpKind::flash_attention))
      efficiency.attention_forward.fitted = range;
    if (errors.kind == to_text(OpKind::flash_attention_backward))
      efficiency.attention_backward.fitted = range;
  }
}

constexpr Bytes kSmallest{1 << 20};
constexpr std::size_t kFewestPoints = 10;  // a fit of fewer says nothing of its errors

std::vector<CollectiveMeasurement> usable(std::span<const CollectiveMeasurement> points,
                                          const Cluster& cluster) {
  std::vector<CollectiveMeasurement> result;
  for (const CollectiveMeasurement& point : points) {
    if (is_device_of(cluster, point.gpu, point.devices) && point.payload >= kSmallest &&
        point.ranks <= cluster.devices_per_node)
      result.push_back(point);
  }
  if (result.size() < kFewestPoints) {
    throw InfeasibleError(
        fmt::format("{} timed collectives on the {} of cluster {}; a fit takes {} "
                    "(lab/fit finds the devices of raw rows)",
                    result.size(), cluster.device.name, cluster.name, kFewestPoints));
  }
  return result;
}

GroupSpread spread_of(const CollectiveMeasurement& point, const Cluster& cluster) {
  std::vector<std::int64_t> ranks(std::size_t(point.ranks), 0);
  std::iota(ranks.begin(), ranks.end(), std::int64_t{0});
  return spread_over(cluster.levels, ranks);
}

FitParameter latency_of_level(std::size_t level) {
  return {fmt::format("levels.{}.latency", level),
          FitPart::level,
          0.7,
          1e-8,
          1e-3,
          [](const Cluster& cluster, const Framework&, std::size_t l) {
            return cluster.levels[l].latency.value();
          },
          [](Cluster& cluster, Framework&, std::size_t l, double value) {
            cluster.levels[l].latency = Seconds(value);
          },
          level};
}

/// Parameters of the levels that some point crosses.
std::vector<FitParameter> parameters_of(const std::set<std::size_t>& levels,
                                        const Cluster& cluster) {
  std::vector<FitParameter> parameters = fit_parameters(cluster);
  std::erase_if(parameters, [&](const FitParameter& parameter) {
    return parameter.part != FitPart::level || !levels.contains(parameter.level);
  });
  for (const std::size_t level : levels) parameters.push_back(latency_of_level(level));
  return parameters;
}

/// States, for each level, the range of sizes for which its values hold.
void state_ranges(std::span<const CollectiveMeasurement> points,
                  const std::set<std::size_t>& levels, OpFit& fit) {
  FitRange<Bytes> range{points.front().payload, points.front().payload, 0};
  for (const CollectiveMeasurement& point : points) {
    range.from = std::min(range.from, point.payload);
    range.to = std::max(range.to, point.payload);
  }
  for (const OpFitErrors& errors : fit.errors)
    range.error = std::max(range.error, errors.unseen_median);
  for (const std::size_t level : levels) fit.cluster.efficiency->levels[level].fitted = range;
}

}  // namespace

bool is_device_of(const Cluster& cluster, std::string_view gpu,
                  std::span<const std::string> devices) {
  const std::string& own = cluster.device.name;
  return own == gpu || std::ranges::find(devices, own) != devices.end();
}

OpFit fit_ops(std::span<const OpMeasurement> ops, const Cluster& cluster) {
  if (!cluster.efficiency) {
    throw InputError("cluster " + cluster.name, "/efficiency",
                     "a fit starts from efficiency parameters");
  }
  const std::vector<OpMeasurement> used = usable(ops, cluster);
  std::vector<OpTiming> timed;
  for (const OpMeasurement& op : used) {
    timed.push_back({op.kind, op.source, shape_key(op), op.time,
                     [&op](const Cluster& with) { return time_of(op, with); }});
  }
  std::vector<FitParameter> parameters = fit_parameters(cluster);
  std::erase_if(parameters,
                [](const FitParameter& parameter) { return !is_of_a_kernel(parameter.part); });
  OpFit fit = fit_timed(std::move(timed), cluster, std::move(parameters));
  state_ranges(used, fit);
  return fit;
}

OpFit fit_collectives(std::span<const CollectiveMeasurement> points, const Cluster& cluster) {
  if (!cluster.efficiency) {
    throw InputError("cluster " + cluster.name, "/efficiency",
                     "a fit starts from efficiency parameters");
  }
  const std::vector<CollectiveMeasurement> used = usable(points, cluster);
  const bool several = std::ranges::any_of(
      used, [&](const CollectiveMeasurement& point) { return point.ranks != used.front().ranks; });
  std::set<std::size_t> levels;
  std::vector<OpTiming> timed;
  for (const CollectiveMeasurement& point : used) {
    const GroupSpread spread = spread_of(point, cluster);
    levels.insert(spread.level);
    timed.push_back({point.kind,
                     point.source,
                     {several ? point.ranks : point.payload.count()},
                     point.time,
                     [point, spread](const Cluster& with) {
                       return modelled_communication(point.kind, point.payload, with, spread).time;
                     },
                     point.ranks});
  }
  OpFit fit = fit_timed(std::move(timed), cluster, parameters_of(levels, cluster));
  state_ranges(used, levels, fit);
  return fit;
}

}  // namespace plimsoll
