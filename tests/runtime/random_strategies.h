// Jobs and strategies drawn at random over every switch that `legal` accepts for the bundled
// runtime, and clusters to place them on.
#pragma once

#include <cstdint>
#include <string>

#include "models/cluster.h"
#include "models/job.h"
#include "passes/strategy.h"

namespace plimsoll {

struct Draw {
  std::uint64_t seed = 0;
  Job job;
  Strategy strategy;
  std::int64_t devices = 1;
};

/// A tiny job and a legal strategy for it on 1 to 8 ranks: the same for a seed, on every machine.
/// Whoever makes a switch legal adds a row to kSwitches in random_strategies.cpp.
Draw draw(std::uint64_t seed);

/// The same job on one rank, whole batch at once, every switch at its simplest.
Strategy serial(const Job& job);

/// 1 to 8 devices per node, of either kind; one to three levels of which the outer ones may be
/// oversubscribed; latencies and rates over orders of magnitude.
Cluster draw_cluster(std::uint64_t seed);

std::string describe(const Draw& draw);  ///< enough to find it again

}  // namespace plimsoll
