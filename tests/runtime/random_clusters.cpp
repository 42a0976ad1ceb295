// Clusters are drawn at random, level by level.
#include "tests/runtime/random_clusters.h"

#include <string>

#include "tests/random_values.h"

namespace plimsoll {
namespace {

Level draw_level(Random& random, std::size_t index, std::int64_t devices, double bandwidth) {
  Level level;
  level.name = "level" + std::to_string(index);
  level.devices = devices;
  level.bandwidth = BytesPerSecond(bandwidth);
  level.latency = Seconds(spread(random, 1e-7, 2));
  if (random() % 4 == 0)
    level.peer_bandwidth = BytesPerSecond(bandwidth / double(2 + random() % 6));
  return level;
}

void draw_rates(Random& random, Device& device) {
  device.memory_bandwidth = BytesPerSecond(spread(random, 1e9, 3));
  device.peak_fp32 = FlopsPerSecond(spread(random, 1e9, 4));
  device.peak_bf16 = device.peak_fp16 = device.peak_fp32;
}

Efficiency draw_efficiency(Random& random) {
  Efficiency efficiency;
  efficiency.matmul.peak_fraction = spread(random, 0.1, 1);
  efficiency.matmul.units = std::int64_t(1 + random() % 100);
  efficiency.matmul.fixed_time = Seconds(spread(random, 1e-8, 3));
  efficiency.memory.bandwidth_fraction = spread(random, 0.1, 1);
  efficiency.overlap.compute_slowdown = 1 + double(random() % 100) / 100;
  return efficiency;
}

/// Nodes of another kind, first, last or in between; they may lie beyond the ranks of a draw.
void draw_other_devices(Random& random, Cluster& cluster) {
  cluster.devices_per_node = one_of<std::int64_t>(random, {1, 1, 2, 2, 3, 4});
  OtherDevices others;
  others.first_node = std::int64_t(random() % 3);
  others.nodes = std::int64_t(1 + random() % 4);
  others.device = cluster.device;
  others.device.name = "other device";
  draw_rates(random, others.device);
  if (coin(random)) others.efficiency = draw_efficiency(random);
  cluster.other_devices.push_back(others);
}

}  // namespace

Cluster draw_cluster(std::uint64_t seed) {
  Random random(seed);
  Cluster cluster;
  cluster.name = "drawn";
  cluster.devices_per_node = std::int64_t(1 + random() % 8);
  cluster.device.kind = coin(random) ? DeviceKind::gpu : DeviceKind::cpu_core;
  cluster.device.name = "device";
  cluster.device.memory = Bytes(std::int64_t{1} << 40);
  draw_rates(random, cluster.device);
  if (coin(random)) draw_other_devices(random, cluster);
  const std::size_t levels = 1 + random() % 3;
  std::int64_t devices = cluster.devices_per_node;
  double bandwidth = spread(random, 1e8, 3);
  for (std::size_t i = 0; i < levels; ++i) {
    cluster.levels.push_back(draw_level(random, i, i + 1 == levels ? 0 : devices, bandwidth));
    devices *= 2;
    bandwidth /= double(1 + random() % 8);  // the switch above carries less than what hangs on it
  }
  if (cluster.devices_per_node > 1) cluster.levels.front().reduces_in_switch = random() % 4 == 0;
  cluster.source = "drawn at random";
  return cluster;
}

}  // namespace plimsoll
