// Variances between sources weigh what a few runs tell.
#include "fitting/source_spreads.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "models/presets/known_json.h"

namespace plimsoll {
namespace {

/// Standard deviations of a run's logarithm that are tried, a factor of 1.5 apart.
constexpr std::array<double, 9> kNoises = {0.01,  0.015, 0.022, 0.034, 0.051,
                                           0.076, 0.114, 0.171, 0.256};

SourceSpreads read_spreads() {
  const Json json = known_json(spread_presets(), "learning");
  JsonObject whole(json, "learning.json");
  whole.text("source");
  SourceSpreads spreads;
  spreads.noise = whole.number("noise", 1e-4, 1);
  spreads.noise_spread = whole.number("noise_spread", 1e-4, 10);
  JsonObject values = whole.object("values");
  for (const std::string& name : values.keys())
    spreads.values[name] = values.number(name, 1e-4, 10);
  whole.finish();
  return spreads;
}

/// The posterior with one noise, and the logarithm of its weight.
struct OfNoise {
  double noise = 0, weight = 0;
  Eigen::VectorXd moved;
  Eigen::MatrixXd covariance;
};

OfNoise posterior_with(double noise, const Eigen::MatrixXd& precision,
                       const Eigen::MatrixXd& derivatives, const Eigen::VectorXd& errors,
                       const SourceSpreads& spreads) {
  const Eigen::MatrixXd by = derivatives / noise;
  const Eigen::VectorXd off = errors / noise;
  const Eigen::LLT<Eigen::MatrixXd> solver(precision + by.transpose() * by);
  OfNoise found;
  found.noise = noise;
  found.moved = solver.solve(by.transpose() * off);
  found.covariance = solver.solve(Eigen::MatrixXd::Identity(precision.rows(), precision.cols()));
  const double determinant = 2 * solver.matrixLLT().diagonal().array().log().sum() +
                             2 * double(errors.size()) * std::log(noise);
  const double unusual = std::log(noise / spreads.noise) / spreads.noise_spread;
  found.weight = -(determinant + off.squaredNorm() - found.moved.dot(by.transpose() * off) +
                   unusual * unusual) /
                 2;
  return found;
}

}  // namespace

std::string spread_name(const FitParameter& parameter) {
  if (parameter.part != FitPart::level) return parameter.name;
  const std::string which = parameter.level == 0 ? "inner" : "outer";
  return which + parameter.name.substr(parameter.name.rfind('.'));
}

double SourceSpreads::of(const FitParameter& parameter) const {
  const auto found = values.find(spread_name(parameter));
  return found == values.end() ? parameter.spread : found->second;
}

const SourceSpreads& source_spreads() {
  static const SourceSpreads read = read_spreads();
  return read;
}

Eigen::MatrixXd with_spreads(std::span<const FitParameter> parameters, Eigen::MatrixXd precision,
                             const SourceSpreads& spreads) {
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const double spread = spreads.of(parameters[p]);
    precision(Eigen::Index(p), Eigen::Index(p)) = 1 / (spread * spread);
  }
  return precision;
}

Posterior posterior(const Eigen::MatrixXd& precision, const Eigen::MatrixXd& derivatives,
                    const Eigen::VectorXd& errors, const SourceSpreads& spreads) {
  std::vector<OfNoise> all;
  double most = -std::numeric_limits<double>::infinity(), total = 0;
  for (const double noise : kNoises) {
    all.push_back(posterior_with(noise, precision, derivatives, errors, spreads));
    most = std::max(most, all.back().weight);
  }
  for (OfNoise& one : all) total += one.weight = std::exp(one.weight - most);
  Posterior mean = {Eigen::VectorXd::Zero(precision.rows()),
                    Eigen::MatrixXd::Zero(precision.rows(), precision.cols())};
  double squares = 0;
  for (OfNoise& one : all) {
    one.weight /= total;
    mean.moved += one.weight * one.moved;
    mean.noise += one.weight * one.noise * one.noise;
    mean.log_noise += one.weight * std::log(one.noise);
    squares += one.weight * std::log(one.noise) * std::log(one.noise);
  }
  mean.noise = std::sqrt(mean.noise);
  mean.log_noise_spread = std::sqrt(std::max(0.0, squares - mean.log_noise * mean.log_noise));
  for (const OfNoise& one : all) {
    const Eigen::VectorXd apart = one.moved - mean.moved;
    mean.covariance += one.weight * (one.covariance + apart * apart.transpose());
  }
  return mean;
}

std::vector<bool> trusted_runs(
    std::vector<bool> use,
    const std::function<double(const std::vector<bool>& others, std::size_t run)>& off) {
  while (std::ranges::count(use, true) > 2) {
    std::optional<std::size_t> worst;
    double most = kContradicts;
    for (std::size_t i = 0; i < use.size(); ++i) {
      if (!use[i]) continue;
      std::vector<bool> others = use;
      others[i] = false;
      const double deviations = off(others, i);
      if (deviations <= most) continue;
      most = deviations;
      worst = i;
    }
    if (!worst) break;
    use[*worst] = false;
  }
  return use;
}

}  // namespace plimsoll
