// The fit of timed ops, and its report.
#include "fitting/timed_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/json.h"
#include "fitting/robust/robust_fit.h"
#include "graph/op_table.h"

namespace plimsoll {
namespace {

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

}  // namespace

OpFit fit_timed(std::vector<OpTiming> ops, const Cluster& cluster,
                std::vector<FitParameter> parameters) {
  return OpFitter(std::move(ops), cluster, std::move(parameters)).run();
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
