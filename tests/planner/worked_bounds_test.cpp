// Worked bounds: the bounds of strategies of built-in jobs, as a table. bounds_test.cpp holds that
// bounds are not too high; a bound that becomes looser shows here. PLIMSOLL_UPDATE_GOLDEN=1
// rewrites the table's numbers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/file.h"
#include "planner/bounds/bounds.h"

namespace plimsoll {
namespace {

constexpr const char* kTable = PLIMSOLL_SOURCE_DIR "/tests/golden/bounds/worked.txt";

Cluster cluster_named(const std::string& name) {
  if (name != "cores" && name != "mixed" && name != "far") return read_cluster(name);
  Cluster cluster;
  cluster.name = name;
  cluster.nodes = 2;
  cluster.devices_per_node = 4;
  cluster.device.kind = DeviceKind::cpu_core;
  cluster.device.memory = Bytes(std::int64_t{8} << 30);
  cluster.device.memory_bandwidth = BytesPerSecond(1e10);
  cluster.device.peak_fp32 = FlopsPerSecond(1e11);
  cluster.levels = {{"memory", 4, BytesPerSecond(5e9), Seconds(2e-6)},
                    {"network", 0, BytesPerSecond(1e9), Seconds(2e-5)}};
  if (name == "cores") return cluster;
  if (name == "far") {  // transfers take longer than what is computed between them
    cluster.nodes = 8;
    cluster.devices_per_node = 1;
    cluster.levels = {{"network", 0, BytesPerSecond(5e6), Seconds(1e-3)}};
    return cluster;
  }
  OtherDevices faster;
  faster.first_node = faster.nodes = 1;
  faster.device = cluster.device;
  faster.device.peak_fp32 = FlopsPerSecond(2e11);
  cluster.other_devices = {faster};
  return cluster;
}

/// A row of the table: job, cluster, framework, devices, sequences of a batch, strategy; then its
/// bounds.
struct Row {
  std::string job, cluster, framework, strategy;
  std::int64_t devices = 0, batch = 0;
};

std::string bounds_of(const Row& row) {
  Job job = read_job(row.job);
  job.global_batch = row.batch;
  const CostModel costs(cluster_named(row.cluster), std::nullopt, framework_by_name(row.framework));
  const Target target(job, costs, row.devices);
  const Strategy strategy = parse_strategy(row.strategy);
  if (const Verdict verdict = legal(job, strategy, row.devices); !verdict) {
    return "illegal: " + verdict.reason();
  }
  const Bounds bounds(target);
  const MemoryBound memory = bounds.memory(strategy);
  return fmt::format("persistent {} peak {} arena {} reserved {} bottleneck {} actions {}",
                     bounds.persistent(strategy).count(), memory.peak.count(), memory.arena.count(),
                     memory.reserved.count(), bounds.bottleneck(strategy).count(),
                     bounds.actions(strategy).count());
}

TEST(WorkedBounds, AreThoseOfTheTable) {
  std::ifstream file(kTable);
  std::string line, found, expected;
  std::int64_t rows = 0;
  while (std::getline(file, line)) {
    expected += line + "\n";
    if (line.empty() || line[0] == '#') {
      found += line + "\n";
      continue;
    }
    Row row;
    std::istringstream(line) >> row.job >> row.cluster >> row.framework >> row.devices >>
        row.batch >> row.strategy;
    const std::string bounds = bounds_of(row);
    EXPECT_FALSE(bounds.starts_with("illegal")) << line << ": " << bounds;
    found += fmt::format("{} {} {} {} {} {} {}\n", row.job, row.cluster, row.framework, row.devices,
                         row.batch, row.strategy, bounds);
    ++rows;
  }
  EXPECT_GT(rows, 20);
  if (std::getenv("PLIMSOLL_UPDATE_GOLDEN") != nullptr) write_file_atomically(kTable, found);
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace plimsoll
