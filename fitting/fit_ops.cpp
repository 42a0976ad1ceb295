// Single kernels are fitted here, and what fits found is reported.
#include "fitting/fit_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "fitting/robust/robust_fit.h"
#include "simulator/costs/collective_cost.h"
#include "simulator/costs/efficiency_curves.h"

namespace plimsoll {
namespace {

/// An OpTiming is one timing as the fit sees it.
struct OpTiming {
  OpKind kind = OpKind::matmul;
  std::string source;               ///< "repository or document, place in it"
  std::vector<std::int64_t> shape;  ///< timings of one shape are left out together
  Seconds time;
  std::function<Seconds(const Cluster&)> predicted;
  std::int64_t group = 0;  ///< timings of one kind and group have one spread
};

constexpr std::size_t kFolds = 5;
constexpr double kLeastOpScale = 0.005, kMostOpScale = 0.5;  // of the logarithm of one time

class OpFitter {
 public:
  OpFitter(std::vector<OpTiming> ops, const Cluster& cluster, std::vector<FitParameter> parameters)
      : ops_(std::move(ops)), cluster_(cluster), parameters_(std::move(parameters)) {
    for (const FitParameter& parameter : parameters_) {
      const double prior = parameter.get(cluster, Framework{}, parameter.level);
      model_.numbers.push_back(
          {parameter.name, prior, parameter.spread, parameter.least, parameter.most});
    }
    std::map<std::pair<OpKind, std::int64_t>, std::size_t> groups;
    for (const OpTiming& op : ops_) {
      model_.measured.push_back(std::log(op.time.value()));
      model_.groups.push_back(groups.try_emplace({op.kind, op.group}, groups.size()).first->second);
    }
    model_.predicted = [this](const LogModel::Values& values) { return predicted(values); };
    model_.least_scale = kLeastOpScale;
    model_.most_scale = kMostOpScale;
  }

  OpFit run() {
    const std::vector<bool> all(ops_.size(), true);
    const RobustSolution solution = solve_determined(model_, all, model_.priors(), {});
    OpFit fit;
    fit.values = fitted_values(model_, solution, parameters_.size());
    fit.ops = std::int64_t(ops_.size());
    for (const OpTiming& op : ops_) {
      if (std::find(fit.sources.begin(), fit.sources.end(), op.source) == fit.sources.end())
        fit.sources.push_back(op.source);
    }
    const auto before = errors(predicted(model_.priors())),
               after = errors(predicted(solution.values));
    fit.errors = by_kind(before, after, unseen(solution));
    fit.cluster = with_values(solution.values);
    return fit;
  }

 private:
  Cluster with_values(const LogModel::Values& values) const {
    Cluster cluster = cluster_;
    Framework none;
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      parameters_[p].set(cluster, none, parameters_[p].level, values[p]);
    }
    return cluster;
  }

  LogModel::Values predicted(const LogModel::Values& values) const {
    const Cluster cluster = with_values(values);
    LogModel::Values result;
    for (const OpTiming& op : ops_) result.push_back(std::log(op.predicted(cluster).value()));
    return result;
  }

  std::vector<double> errors(const LogModel::Values& values) const {
    std::vector<double> result;
    for (std::size_t i = 0; i < values.size(); ++i) {
      result.push_back(std::abs(std::exp(values[i] - model_.measured[i]) - 1));
    }
    return result;
  }

  /// Errors of each op by a fit without its shape's fold.
  std::vector<double> unseen(const RobustSolution& all) const {
    std::map<std::vector<std::int64_t>, std::size_t> shapes;
    for (const OpTiming& op : ops_) shapes.try_emplace(op.shape, 0);
    std::size_t next = 0;
    for (auto& [shape, fold] : shapes) fold = next++ % kFolds;
    std::vector<double> result(ops_.size());
    for (std::size_t fold = 0; fold < std::min(kFolds, shapes.size()); ++fold) {
      std::vector<bool> use;
      for (const OpTiming& op : ops_) use.push_back(shapes.at(op.shape) != fold);
      SearchLimits limits;
      limits.known = &all.derivatives;
      const auto without = solve_determined(model_, use, all.values, limits);
      const std::vector<double> of_all = errors(predicted(without.values));
      for (std::size_t i = 0; i < use.size(); ++i) {
        if (!use[i]) result[i] = of_all[i];
      }
    }
    return result;
  }

  std::vector<OpFitErrors> by_kind(const std::vector<double>& before,
                                   const std::vector<double>& after,
                                   const std::vector<double>& unseen) const {
    std::map<OpKind, std::vector<std::size_t>> kinds;
    for (std::size_t i = 0; i < ops_.size(); ++i) kinds[ops_[i].kind].push_back(i);
    std::vector<OpFitErrors> result;
    for (const auto& [kind, indices] : kinds) {
      const auto share = [&, &indices = indices](const std::vector<double>& all, double part) {
        std::vector<double> own;
        for (const std::size_t i : indices) own.push_back(all[i]);
        std::sort(own.begin(), own.end());
        return own[std::min(own.size() - 1, std::size_t(part * double(own.size())))];
      };
      result.push_back({std::string(to_text(kind)), std::int64_t(indices.size()),
                        share(before, 0.5), share(after, 0.5), share(after, 0.9),
                        share(unseen, 0.5), share(unseen, 0.9)});
    }
    return result;
  }

  std::vector<OpTiming> ops_;
  const Cluster& cluster_;
  std::vector<FitParameter> parameters_;
  LogModel model_;
};

/// Fits by robust least squares of the logarithms of times (robust_fit.h), with the cluster's
/// values as priors. At least two shapes are needed.
OpFit fit_timed(std::vector<OpTiming> ops, const Cluster& cluster,
                std::vector<FitParameter> parameters) {
  return OpFitter(std::move(ops), cluster, std::move(parameters)).run();
}

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

std::string fit_text(const OpFit& fit) {
  const Cluster& cluster = fit.cluster;
  std::string text =
      fmt::format("{} ops on the {} of {}\n", fit.ops, cluster.device.name, cluster.name);
  for (const OpFitErrors& errors : fit.errors) {
    text += fmt::format(
        "  {:<26} {:>4}  median error {:.1f} % before, {:.1f} % fitted (90th percentile {:.1f} %), "
        "shapes left out {:.1f} % ({:.1f} %)\n",
        errors.kind, errors.ops, 100 * errors.median_before, 100 * errors.median, 100 * errors.p90,
        100 * errors.unseen_median, 100 * errors.unseen_p90);
  }
  for (const FittedValue& value : fit.values) {
    text += fmt::format("  {:<32} {:>10.4g}  ({:.4g} to {:.4g}; prior {:.4g}){}\n", value.name,
                        value.value, value.low, value.high, value.prior,
                        !value.determined  ? "  not determined"
                        : value.at_bound() ? "  rests on its bound"
                                           : "");
  }
  return text;
}

std::string op_fit_json(const OpFit& fit) {
  Json values = Json::array(), errors = Json::array();
  for (const FittedValue& value : fit.values) {
    values.push_back({{"name", value.name},
                      {"value", value.value},
                      {"low", value.low},
                      {"high", value.high},
                      {"prior", value.prior},
                      {"determined", value.determined}});
  }
  for (const OpFitErrors& one : fit.errors) {
    errors.push_back({{"kind", one.kind},
                      {"ops", one.ops},
                      {"median_before", one.median_before},
                      {"median", one.median},
                      {"p90", one.p90},
                      {"unseen_median", one.unseen_median},
                      {"unseen_p90", one.unseen_p90}});
  }
  return json_text({{"cluster", fit.cluster.name},
                    {"ops", fit.ops},
                    {"sources", fit.sources},
                    {"values", std::move(values)},
                    {"errors", std::move(errors)}});
}

}  // namespace plimsoll
