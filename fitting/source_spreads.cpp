// Variances between sources are estimated, and weigh what a few runs tell.
#include "fitting/source_spreads.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "models/presets/known_json.h"

namespace plimsoll {
namespace {

/// Standard deviations of a run's logarithm that are tried, a factor of 1.5 apart.
constexpr std::array<double, 9> kNoises = {0.01,  0.015, 0.022, 0.034, 0.051,
                                           0.076, 0.114, 0.171, 0.256};
constexpr int kRounds = 40;
constexpr double kLeastNoiseSpread = 0.3;  // of a few sources
constexpr double kMostSpread = 1.6;        // a factor of five: a wider prior changes nothing

std::string name_of(const FitParameter& parameter) {
  if (parameter.part != FitPart::level) return parameter.name;
  const std::string which = parameter.level == 0 ? "inner" : "outer";
  return which + parameter.name.substr(parameter.name.rfind('.'));
}

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

/// Terms of the normal equations of numbers, for errors of one noise.
struct NormalTerms {
  double noise = 0;
  Eigen::MatrixXd matrix;
  Eigen::VectorXd right;
  double square = 0, determinant = 0;  ///< of the errors; the logarithm, of their covariance
};
using NoiseTerms = std::vector<NormalTerms>;  ///< by noise

/// The terms of errors that have a covariance in addition to their noise.
NoiseTerms terms_of(const Eigen::MatrixXd& derivatives, const Eigen::VectorXd& errors,
                    const Eigen::MatrixXd& covariance) {
  NoiseTerms all;
  for (const double noise : kNoises) {
    Eigen::MatrixXd whole = covariance;
    whole.diagonal().array() += noise * noise;
    const Eigen::LLT<Eigen::MatrixXd> solver(whole);
    const Eigen::MatrixXd weighted = solver.solve(derivatives);
    all.push_back({noise, derivatives.transpose() * weighted, weighted.transpose() * errors,
                   errors.dot(solver.solve(errors)),
                   2 * solver.matrixLLT().diagonal().array().log().sum()});
  }
  return all;
}

/// The posterior with one noise, and the logarithm of its weight.
struct OfNoise {
  double noise = 0, weight = 0;
  Eigen::VectorXd moved;
  Eigen::MatrixXd covariance;
};

OfNoise posterior_with(const NormalTerms& terms, const Eigen::MatrixXd& precision,
                       const SourceSpreads& spreads) {
  const Eigen::MatrixXd matrix = precision + terms.matrix;
  const Eigen::LLT<Eigen::MatrixXd> solver(matrix);
  OfNoise found;
  found.noise = terms.noise;
  found.moved = solver.solve(terms.right);
  found.covariance = solver.solve(Eigen::MatrixXd::Identity(matrix.rows(), matrix.cols()));
  const double determinant = 2 * solver.matrixLLT().diagonal().array().log().sum();
  const double unusual = std::log(terms.noise / spreads.noise) / spreads.noise_spread;
  found.weight = -(terms.determinant + determinant + terms.square - found.moved.dot(terms.right) +
                   unusual * unusual) /
                 2;
  return found;
}

/// The mixture over all noises.
Posterior mixture(const NoiseTerms& terms, const Eigen::MatrixXd& precision,
                  const SourceSpreads& spreads) {
  std::vector<OfNoise> all;
  double most = -std::numeric_limits<double>::infinity(), total = 0;
  for (const NormalTerms& of_noise : terms) {
    all.push_back(posterior_with(of_noise, precision, spreads));
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

/// The terms of a source's parameters. What other numbers leave open is part of the errors.
NoiseTerms terms_of_parameters(const SourceErrors& source) {
  const auto parameters = Eigen::Index(source.parameters.size());
  const Eigen::Index others = source.derivatives.cols() - parameters;
  const Eigen::MatrixXd by = source.derivatives.rightCols(others);
  const Eigen::MatrixXd covariance =
      by * source.precision.bottomRightCorner(others, others).ldlt().solve(by.transpose());
  return terms_of(source.derivatives.leftCols(parameters), source.errors, covariance);
}

/// Sums over sources.
struct Sums {
  std::map<std::string, std::pair<double, double>, std::less<>> squares;  ///< and their number
  double log_noise = 0, log_noise_squares = 0, sources = 0;
};

/// A source that is farther off than kOdd spreads counts as if it were that far off.
constexpr double kOdd = 2.5;

void add(const SourceErrors& source, const Posterior& found, const SourceSpreads& spreads,
         Sums& sums) {
  for (std::size_t p = 0; p < source.parameters.size(); ++p) {
    const auto at = Eigen::Index(p);
    if (source.derivatives.col(at).cwiseAbs().maxCoeff() < 1e-6) continue;  // no run depends on it
    auto& [square, count] = sums.squares[name_of(source.parameters[p])];
    const double odd = kOdd * spreads.of(source.parameters[p]);
    square += std::min(found.moved[at] * found.moved[at] + found.covariance(at, at), odd * odd);
    count += 1;
  }
  sums.log_noise += found.log_noise;
  sums.log_noise_squares +=
      found.log_noise * found.log_noise + found.log_noise_spread * found.log_noise_spread;
  sums.sources += 1;
}

}  // namespace

double SourceSpreads::of(const FitParameter& parameter) const {
  const auto found = values.find(name_of(parameter));
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
  const Eigen::MatrixXd none = Eigen::MatrixXd::Zero(errors.size(), errors.size());
  return mixture(terms_of(derivatives, errors, none), precision, spreads);
}

SourceSpreads most_likely_spreads(std::span<const SourceErrors> sources) {
  SourceSpreads spreads{0.05, 0.7, {}};  // where rounds begin
  std::map<std::string, double, std::less<>> own;
  std::vector<NoiseTerms> terms;
  for (const SourceErrors& source : sources) {
    terms.push_back(terms_of_parameters(source));
    for (const FitParameter& one : source.parameters) own[name_of(one)] = one.spread;
  }
  for (int round = 0; round < kRounds && !sources.empty(); ++round) {
    Sums sums;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const auto count = Eigen::Index(sources[i].parameters.size());
      const Eigen::MatrixXd precision =
          with_spreads(sources[i].parameters, Eigen::MatrixXd::Zero(count, count), spreads);
      add(sources[i], mixture(terms[i], precision, spreads), spreads, sums);
    }
    for (const auto& [name, spread] : own) {
      const auto [square, count] = sums.squares[name];
      const double variance = (square + kPriorSources * spread * spread) / (count + kPriorSources);
      spreads.values[name] = std::min(std::sqrt(variance), kMostSpread);
    }
    const double mean = sums.log_noise / sums.sources;
    spreads.noise = std::exp(mean);
    const double variance = sums.log_noise_squares / sums.sources - mean * mean;
    spreads.noise_spread = std::sqrt(std::max(variance, kLeastNoiseSpread * kLeastNoiseSpread));
  }
  return spreads;
}

}  // namespace plimsoll
