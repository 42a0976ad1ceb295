#include "fitting/fit_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "fitting/robust_fit.h"
#include "published/published_source.h"
#include "simulator/costs/efficiency_curves.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kThin = 128;  // columns or rows: two of the smallest tile
constexpr std::size_t kFewest = 20;  // a fit of fewer says nothing of its errors
constexpr std::size_t kFolds = 5;
constexpr double kLeastScale = 0.005, kMostScale = 0.5;  // of the logarithm of one time

bool is_of_a_kernel(const FitParameter& parameter) {
  return parameter.name.starts_with("matmul.") || parameter.name.starts_with("attention_");
}

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

/// Equal: of one shape, whatever is transposed or added up.
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
    if (!is_device_of(cluster, op.gpu) || !peak(cluster.device, op.dtype)) continue;
    const bool thin = op.kind == OpKind::matmul && std::min(op.shape.m, op.shape.n) <= kThin;
    if (!thin) result.push_back(op);
  }
  if (result.size() < kFewest) {
    throw InfeasibleError(fmt::format("{} ops of the {} of cluster {}; a fit takes {}",
                                      result.size(), cluster.device.name, cluster.name, kFewest));
  }
  return result;
}

class OpFitter {
 public:
  OpFitter(std::vector<OpMeasurement> ops, const Cluster& cluster)
      : ops_(std::move(ops)), cluster_(cluster) {
    for (const FitParameter& parameter : fit_parameters(cluster)) {
      if (!is_of_a_kernel(parameter)) continue;
      const double prior = parameter.get(cluster, Framework{}, parameter.level);
      model_.numbers.push_back(
          {parameter.name, prior, parameter.spread, parameter.least, parameter.most});
      parameters_.push_back(parameter);
    }
    std::map<OpKind, std::size_t> groups;
    for (const OpMeasurement& op : ops_) {
      model_.measured.push_back(std::log(op.time.value()));
      model_.groups.push_back(groups.try_emplace(op.kind, groups.size()).first->second);
    }
    model_.predicted = [this](const LogModel::Values& values) { return predicted(values); };
    model_.least_scale = kLeastScale;
    model_.most_scale = kMostScale;
  }

  OpFit run() {
    const std::vector<bool> all(ops_.size(), true);
    const RobustSolution solution = solve_determined(model_, all, model_.priors(), {});
    OpFit fit;
    fit.values = fitted_values(model_, solution, parameters_.size());
    fit.ops = std::int64_t(ops_.size());
    for (const OpMeasurement& op : ops_) {
      if (std::find(fit.sources.begin(), fit.sources.end(), op.source) == fit.sources.end())
        fit.sources.push_back(op.source);
    }
    const auto before = errors(predicted(model_.priors())),
               after = errors(predicted(solution.values));
    fit.errors = by_kind(before, after, unseen(solution));
    fit.cluster = with_values(solution.values);
    state_ranges(fit);
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

  /// The words for what the values hold for.
  void state_ranges(OpFit& fit) const {
    Efficiency& efficiency = *fit.cluster.efficiency;
    for (const OpFitErrors& errors : fit.errors) {
      FitRange<Flops> range{Flops(std::numeric_limits<double>::infinity()), Flops(0),
                            errors.unseen_median};
      for (const OpMeasurement& op : ops_) {
        if (to_text(op.kind) != errors.kind) continue;
        range.from = std::min(range.from, work_of(op));
        range.to = std::max(range.to, work_of(op));
      }
      if (errors.kind == to_text(OpKind::matmul)) efficiency.matmul.fitted = range;
      if (errors.kind == to_text(OpKind::flash_attention)) {
        efficiency.attention_forward.fitted = range;
      }
      if (errors.kind == to_text(OpKind::flash_attention_backward)) {
        efficiency.attention_backward.fitted = range;
      }
    }
  }

  LogModel::Values predicted(const LogModel::Values& values) const {
    const Cluster cluster = with_values(values);
    LogModel::Values result;
    for (const OpMeasurement& op : ops_) result.push_back(std::log(time_of(op, cluster).value()));
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
    for (const OpMeasurement& op : ops_) shapes.try_emplace(shape_key(op), 0);
    std::size_t next = 0;
    for (auto& [shape, fold] : shapes) fold = next++ % kFolds;
    std::vector<double> result(ops_.size());
    for (std::size_t fold = 0; fold < kFolds; ++fold) {
      std::vector<bool> use;
      for (const OpMeasurement& op : ops_) use.push_back(shapes.at(shape_key(op)) != fold);
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
      const auto share = [&](const std::vector<double>& all, double part) {
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

  std::vector<OpMeasurement> ops_;
  const Cluster& cluster_;
  std::vector<FitParameter> parameters_;
  LogModel model_;
};

}  // namespace

bool is_device_of(const Cluster& cluster, std::string_view gpu) {
  const std::string own = lower_case(cluster.device.name), other = lower_case(std::string(gpu));
  const auto has = [](const std::string& text, std::string_view word) {
    return text.find(word) != std::string::npos;
  };
  for (const std::string_view model :
       {"gb200", "gh200", "b300", "b200", "h200", "h100", "a100", "v100", "t4"}) {
    if (!has(own, model) && !has(other, model)) continue;
    return has(own, model) && has(other, model) && has(own, "pcie") == has(other, "pcie");
  }
  return own == other;
}

OpFit fit_ops(std::span<const OpMeasurement> ops, const Cluster& cluster) {
  if (!cluster.efficiency) {
    throw InputError("cluster " + cluster.name, "/efficiency",
                     "a fit starts from efficiency parameters");
  }
  return OpFitter(usable(ops, cluster), cluster).run();
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
