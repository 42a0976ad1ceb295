// Fit parameters are the numbers of a cluster and of a framework that a fit may change, with their
// priors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "models/cluster/cluster.h"
#include "models/framework/framework.h"

namespace plimsoll {

/// The part of a machine and its program that a parameter of a fit prices. Kernels of products and
/// attention come first, the host last.
enum class FitPart : std::uint8_t {
  products_of_16_bits,  ///< their rate alone; other parameters of products hold for all types
  products,
  products_of_fp8,
  products_by_rows,  ///< of FP8 with a scale for each row
  attention_forward,
  attention_backward,
  memory,
  overlap,
  level,
  host_op,  ///< what the host takes for each op
  host
};

/// A FitParameter is one number that a fit may change. Its meaning stands at its field in
/// models/cluster/efficiency.h or models/framework/framework.h.
struct FitParameter {
  std::string name;  ///< "matmul.peak_fraction", "levels.0.fixed_time", "dispatch_op"
  FitPart part;
  /// The prior's standard deviation of the logarithm: how far the value of a datasheet or of
  /// another machine may be off.
  double spread = 0;
  double least = 0, most = 0;
  double (*get)(const Cluster&, const Framework&, std::size_t level) = nullptr;
  void (*set)(Cluster&, Framework&, std::size_t level, double value) = nullptr;
  std::size_t level = 0;  ///< index of the level, for parameters of a level
};

/// Returns all parameters of a cluster with efficiency parameters, in a fixed order. Where a
/// framework's value of a parameter is 0, there is nothing to fit.
std::vector<FitParameter> fit_parameters(const Cluster& cluster);

inline bool is_of_a_kernel(FitPart part) { return part <= FitPart::attention_backward; }
inline bool is_of_the_host(FitPart part) { return part >= FitPart::host_op; }

}  // namespace plimsoll
