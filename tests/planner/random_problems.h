// Random planning problems, small enough to be searched by trying everything.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "models/calibration/calibration.h"
#include "models/cluster/cluster.h"
#include "models/framework/framework.h"
#include "models/job/job.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

struct Problem {
  Job job;
  Cluster cluster;
  std::optional<Calibration> calibration;
  Framework framework;
  std::int64_t devices = 1;
};

/// Jobs of up to 6 layers; clusters of CPU cores or GPUs of one to three levels, in nodes of odd
/// sizes too; rates over three orders of magnitude, so that steps are bound by compute, by memory,
/// by the network or by the host; switches that reduce, wired peers; half with efficiency
/// parameters, some calibrated with times drawn at random at every size (of threads or of
/// processes), some with other devices on some nodes; every framework.
Problem random_problem(std::mt19937_64& random);
/// Legal ones only, at most `count`; all choices of the space and those beside it that --fix allows
/// (send slots, layer split).
std::vector<Strategy> random_strategies(const Problem& problem, std::mt19937_64& random,
                                        std::size_t count);
std::string describe(const Problem& problem);  ///< enough to find it again

/// How many problems a test draws: `usual`, a fifth of it with sanitizers, as instrumented searches
/// are slow, or what PLIMSOLL_PROBLEMS says.
int problems_to_draw(int usual);

}  // namespace plimsoll
