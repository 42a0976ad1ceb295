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
#include "predict/target.h"

namespace plimsoll {

struct Problem {
  Job job;
  Cluster cluster;
  std::optional<Calibration> calibration;
  Framework framework;
  std::int64_t devices = 1;

  Target target() const { return Target(job, CostModel(cluster, calibration, framework), devices); }
};

/// Draws a problem. Jobs have up to 6 layers. Clusters are of CPU cores or GPUs with one to three
/// levels, also in nodes of odd sizes. Rates span three orders of magnitude, so that steps are
/// bound by compute, by memory, by the network or by the host. Some switches reduce, and some peers
/// are wired. Half of the clusters have efficiency parameters. Some are calibrated with times drawn
/// at random at every size, of threads or of processes, and some have other devices on some nodes.
/// Every framework is drawn.
Problem random_problem(std::mt19937_64& random);
/// Draws one whose job is of family llama, with the choices in which its descendants differ.
Problem random_llama_problem(std::mt19937_64& random);
/// Returns at most `count` legal strategies. They have all choices of the space, and those beside
/// it that --fix allows (send slots, layer split).
std::vector<Strategy> random_strategies(const Problem& problem, std::mt19937_64& random,
                                        std::size_t count);
std::string describe(const Problem& problem);  ///< enough to find it again

/// How many problems or strategies a test draws: `usual`, a fifth of it with sanitizers, as
/// instrumented searches are slow, or what PLIMSOLL_PROBLEMS says.
int problems_to_draw(int usual);

}  // namespace plimsoll
