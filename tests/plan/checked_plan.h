// A plan of the planner that passes the checker, and which rules a change to it breaks.
#pragma once

#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "models/cluster/cluster.h"
#include "plan/check.h"
#include "planner/search/search.h"
#include "tests/plan/example_plan.h"

namespace plimsoll {

/// Two stages of two replicas that recompute, so that every rule has something to look at.
inline Plan planned(const Fixed& fixed, std::int64_t devices) {
  Cluster cluster;
  cluster.name = "test-cpu";
  cluster.nodes = 1;
  cluster.devices_per_node = 4;
  cluster.device.name = "test-core";
  cluster.device.kind = DeviceKind::cpu_core;
  cluster.device.memory = Bytes(std::int64_t{4} << 30);
  cluster.device.memory_bandwidth = BytesPerSecond(1e10);
  cluster.device.peak_fp32 = FlopsPerSecond(1e11);
  cluster.levels = {{"memory", 0, BytesPerSecond(5e9), Seconds(2e-6)}};
  cluster.source = "chosen for tests, not measured";
  const CostModel costs(cluster, std::nullopt, bundled_framework());
  SearchRequest request{Target(example_job(), costs, devices), fixed};
  request.inputs.cluster_digest = digest(cluster_text(cluster));
  return search(request);
}

inline const Plan& valid_plan() {
  static const Plan plan = planned({{"pp", "2"},
                                    {"dp", "2"},
                                    {"recompute", "full"},
                                    {"recompute_layers", "0"},
                                    {"schedule", "1f1b"},
                                    {"virtual_stages", "1"}},
                                   4);
  return plan;
}

inline std::string text_of(const std::vector<Violation>& violations) {
  std::string text;
  for (const Violation& violation : violations) {
    text += violation.rule + ": " + violation.message + "\n";
  }
  return text;
}

/// An interval of rank `rank`'s compute stream, the `index`-th.
inline Interval& compute(Plan& plan, std::int64_t rank, std::size_t index) {
  for (Interval& interval : plan.timeline.intervals) {
    if (interval.rank == rank && interval.stream == Stream::compute && index-- == 0)
      return interval;
  }
  throw std::logic_error("no such interval");
}

inline RunnerUp loser(const Plan& plan, std::size_t at = 0) {
  RunnerUp runner_up = plan.runners_up.at(at);
  runner_up.term = LossTerm::bubble;
  runner_up.term_time = plan.prediction.step_time;
  return runner_up;
}

/// Predicts another step for it, which leaves open which is the faster.
inline void retime(const Plan& plan, RunnerUp& runner_up, Seconds step) {
  const double ratio = step / plan.prediction.step_time;
  runner_up.step_time = step;
  runner_up.ratio = {ratio / 4, ratio * 4, true};
}

/// Names of the rules that `change` to a valid plan breaks.
inline std::set<std::string> broken_by(const std::function<void(Plan&)>& change) {
  Plan plan = valid_plan();
  change(plan);
  std::set<std::string> broken;
  for (const Violation& violation : check(plan)) broken.insert(violation.rule);
  return broken;
}

/// Whether the change breaks this rule, whatever else it breaks.
inline bool breaks(const std::string& rule, const std::function<void(Plan&)>& change) {
  return broken_by(change).contains(rule);
}

}  // namespace plimsoll
