// Builds the fixtures of the planner's tests.
#include "tests/predict/fixtures.h"

#include <string>

#include "models/framework/framework.h"
#include "models/presets/presets.h"

namespace plimsoll {

Job nano_job() { return read_job(PLIMSOLL_SOURCE_DIR "/tests/gpt-nano.json"); }

Cluster small_cluster() {
  Cluster cluster;
  cluster.name = "test-cpu";
  cluster.nodes = 1;
  cluster.devices_per_node = 4;
  cluster.device = {"test-core",          DeviceKind::cpu_core,  Bytes(std::int64_t{4} << 30),
                    BytesPerSecond(10e9), FlopsPerSecond(100e9), std::nullopt,
                    std::nullopt};
  cluster.levels = {{"memory", 0, BytesPerSecond(5e9), Seconds(2e-6)}};
  cluster.source = "chosen for tests, not measured";
  return cluster;
}

Cluster preset_cluster(std::string_view name) {
  return parse_cluster(*find_preset(cluster_presets(), name), std::string(name));
}

CostModel small_costs(const Cluster& cluster) {
  return CostModel(cluster, std::nullopt, bundled_framework());
}

Target nano_target(std::int64_t devices, const Cluster& cluster, Bytes reserve) {
  return Target(nano_job(), small_costs(cluster), devices, reserve);
}

}  // namespace plimsoll
