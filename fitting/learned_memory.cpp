// The factor between measured and predicted bytes is normal in its logarithm.
#include "fitting/learned_memory.h"

#include <algorithm>
#include <cmath>

#include "base/log_statistics.h"
#include "fitting/source_spreads.h"

namespace plimsoll {
namespace {

/// The peaks of runs as a linear problem of two logarithms.
class PeakModel {
 public:
  explicit PeakModel(std::span<const std::vector<LoggedPeak>> runs) {
    for (std::size_t i = 0; i < runs.size(); ++i) {
      for (const LoggedPeak& peak : runs[i]) {
        const double kept = peak.kind == MemoryKind::reserved ? 1 : 0;
        peaks_.push_back(
            {i, Eigen::Vector2d(1, kept),
             std::log(double(peak.measured.count()) / double(peak.predicted.count()))});
      }
    }
    const MemorySpread& spread = memory_spread();
    spreads_.noise = spread.noise;
    spreads_.noise_spread = spread.noise_spread;
    const double allocated = spread.allocated_of_source, kept = spread.kept_of_source;
    precision_.diagonal() << 1 / (allocated * allocated), 1 / (kept * kept);
  }

  Posterior by(const std::vector<bool>& use) const {
    std::vector<Eigen::Index> rows;
    Eigen::MatrixXd derivatives(Eigen::Index(peaks_.size()), 2);
    Eigen::VectorXd errors(Eigen::Index(peaks_.size()));
    for (std::size_t p = 0; p < peaks_.size(); ++p) {
      derivatives.row(Eigen::Index(p)) = peaks_[p].by;
      errors[Eigen::Index(p)] = peaks_[p].error;
      if (use[peaks_[p].run]) rows.push_back(Eigen::Index(p));
    }
    return posterior(precision_, derivatives(rows, Eigen::all), errors(rows), spreads_);
  }

  /// Returns how many deviations the peaks of a run are off at most, as runs in use predict them.
  double off(const std::vector<bool>& use, std::size_t run) const {
    const Posterior found = by(use);
    double most = 0;
    for (const Peak& peak : peaks_) {
      const double variance = peak.by.dot(found.covariance * peak.by) + found.noise * found.noise;
      if (peak.run == run)
        most =
            std::max(most, std::abs(peak.error - peak.by.dot(found.moved)) / std::sqrt(variance));
    }
    return most;
  }

  bool empty() const { return peaks_.empty(); }

 private:
  struct Peak {
    std::size_t run;
    Eigen::VectorXd by;
    double error;
  };
  std::vector<Peak> peaks_;
  SourceSpreads spreads_;
  Eigen::MatrixXd precision_ = Eigen::MatrixXd::Zero(2, 2);
};

}  // namespace

std::optional<LearnedPeaks> learn_memory(std::span<const std::vector<LoggedPeak>> runs) {
  const PeakModel model(runs);
  if (model.empty()) return std::nullopt;
  std::vector<bool> use;
  for (const auto& peaks : runs) use.push_back(!peaks.empty());
  LearnedPeaks learned;
  use = trusted_runs(use, [&](const std::vector<bool>& others, std::size_t run) {
    return model.off(others, run);
  });
  for (std::size_t i = 0; i < runs.size(); ++i) {
    std::vector<bool> others = use;
    others[i] = false;
    learned.contradicts.push_back(model.off(others, i) > kContradicts);
  }
  const Posterior found = model.by(use);
  learned.memory.factor = std::exp(found.moved.sum());
  learned.memory.half_width =
      std::min(kNormal90 * std::sqrt(found.covariance.sum() + found.noise * found.noise),
               std::hypot(memory_spread().allocated, memory_spread().kept));
  return learned;
}

}  // namespace plimsoll
