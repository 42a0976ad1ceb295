// Space: the legal strategies of a job on some devices, in a fixed order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/framework.h"
#include "models/job.h"
#include "passes/strategy.h"
#include "plan/plan.h"

namespace plimsoll {

/// Of one request: more than any cluster has, and what a degree of a strategy may be.
constexpr std::int64_t kMostDevices = std::int64_t{1} << 22;

/// KEY=VALUE pairs from --fix, applied to every candidate.
using Fixed = std::vector<std::pair<std::string, std::string>>;

struct Space {
  std::vector<Strategy> legal;  ///< canonical order: the order ties are broken by
  std::int64_t enumerated = 0;  ///< candidates before the rules
  std::vector<Pruned>
      rejected;        ///< by rule: reasons with their numbers replaced by N, first met first
  std::string reason;  ///< of the commonest rule, with the numbers of its first candidate
};

/// mp, pp, dp, sharding degree, micro-batch: all divisors; recompute: what the framework can, also
/// of half the layers; sharding stages 2 and 3 without pipeline; tokens or borders split over mp;
/// interleaved and zero-bubble pipelines (docs/formats.md has the whole list and what is left out,
/// and why); gradient bucket bytes: a ladder where gradients cross ranks (batch width > 1) in
/// buckets, else the default alone. Fields of `fixed` take only that value. Throws UsageError for
/// devices outside 1 to kMostDevices, an unknown key (naming the nearest) or a bad value.
Space enumerate(const Job& job, const Framework& framework, std::int64_t devices,
                const Fixed& fixed);

/// The gradient bucket ladder of a job: 1 MiB to 64 MiB in steps of four, and on until one bucket
/// holds all gradients of the model or the largest, 1 GiB, is reached. Frameworks that reduce in
/// buckets use sizes in this range: PyTorch DDP 25 MB, Megatron-LM the larger of 40e6 elements and
/// 1e6 per replica (core/distributed/distributed_data_parallel_config.py).
std::vector<Bytes> grad_bucket_ladder(const Job& job);

/// How often each value of each choice is met among the legal strategies, in order of value.
struct Dimension {
  std::string key;
  std::vector<std::pair<std::string, std::int64_t>> values;
};
std::vector<Dimension> dimensions(const Space& space);

}  // namespace plimsoll
