// Starting files of clusters: the devices and links of a preset, with other numbers of them.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "models/calibration/calibration.h"
#include "models/cluster/cluster.h"
#include "planner/init/init.h"
#include "planner/init/network_answers.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kMostNodes = std::int64_t{1} << 20;

std::string today() {
  const auto days = std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now());
  const std::chrono::year_month_day date(days);
  return fmt::format("{:04}-{:02}-{:02}", int(date.year()), unsigned(date.month()),
                     unsigned(date.day()));
}

/// Removes a level, and renumbers the sources of the levels behind it.
void remove_level(Cluster& cluster, std::size_t removed) {
  cluster.levels.erase(cluster.levels.begin() + std::ptrdiff_t(removed));
  if (cluster.efficiency) {
    auto& levels = cluster.efficiency->levels;
    levels.erase(levels.begin() + std::ptrdiff_t(removed));
  }
  std::vector<Source> kept;
  for (Source& source : cluster.sources) {
    bool drop = false;
    for (const std::string list : {"/levels/", "/efficiency/levels/"}) {
      if (!source.covers.starts_with(list)) continue;
      const std::string rest = source.covers.substr(list.size());
      const std::size_t level = std::stoul(rest);
      drop = level == removed;
      if (level > removed) {
        source.covers =
            list + std::to_string(level - 1) + rest.substr(std::min(rest.find('/'), rest.size()));
      }
    }
    if (!drop) kept.push_back(std::move(source));
  }
  cluster.sources = std::move(kept);
}

/// Gives a node fewer devices than the preset's. Links of more devices are not known.
void set_devices_per_node(Cluster& cluster, std::int64_t devices) {
  if (devices > cluster.devices_per_node) {
    throw UsageError(fmt::format(
        "--devices-per-node {}: the links of {} join {} devices; planner import topology reads "
        "those of another node",
        devices, cluster.name, cluster.devices_per_node));
  }
  std::int64_t inner = 1;
  for (std::size_t l = 0; l < cluster.levels.size();) {
    Level& level = cluster.levels[l];
    if (joins_nodes(cluster, level)) break;
    level.devices = std::min(level.devices, devices);
    if (level.devices <= inner) {
      remove_level(cluster, l);
      continue;
    }
    if (level.devices % inner != 0) {
      throw UsageError(
          fmt::format("--devices-per-node {}: {} joins groups of {}", devices, level.name, inner));
    }
    if (level.peer_bandwidth) {
      const double others = double(level.devices - 1) * level.peer_bandwidth->value();
      level.bandwidth = std::min(level.bandwidth, BytesPerSecond(others));
    }
    inner = level.devices;
    ++l;
  }
  cluster.devices_per_node = devices;
}

void set_nodes(Cluster& cluster, const Answers& answers) {
  const std::string& nodes = answers.at("nodes");
  cluster.nodes.reset();
  if (nodes != "any") cluster.nodes = integer_of("nodes", nodes, 1, kMostNodes);
  if (const auto with = answers.find("with"); with != answers.end()) {
    if (!cluster.nodes) {
      throw UsageError(
          fmt::format("--with needs --nodes: how many nodes have the devices of {}", cluster.name));
    }
    *cluster.nodes += other_nodes(with->second);
  }
  std::erase_if(cluster.sources, [](const Source& source) { return source.covers == "/nodes"; });
  if (cluster.nodes != 1) return;
  while (!cluster.levels.empty() && joins_nodes(cluster, cluster.levels.back())) {
    remove_level(cluster, cluster.levels.size() - 1);
  }
}

/// Returns the bandwidth between nodes that a preset states, or nothing.
std::string usual_network(const Cluster& cluster) {
  for (const Level& level : cluster.levels) {
    if (joins_nodes(cluster, level)) return exact_text(cluster.levels.back().bandwidth);
  }
  return "";
}

}  // namespace

std::optional<Question> next_cluster_question(const Answers& answers) {
  const auto open = [&](const char* key) { return !answers.contains(key); };
  if (open("based-on")) {
    return Question{"based-on", "cluster file or preset with the same devices"};
  }
  const Cluster preset = read_cluster(answers.at("based-on"));
  if (open("devices-per-node")) {
    return Question{"devices-per-node", "devices of a node",
                    std::to_string(preset.devices_per_node),
                    integer_answer(1, preset.devices_per_node)};
  }
  if (open("nodes")) {
    const auto check = [](const std::string& text) -> std::string {
      return text == "any" ? "" : integer_answer(1, kMostNodes)(text);
    };
    return Question{"nodes", "number of nodes, or \"any\"",
                    preset.nodes ? std::to_string(*preset.nodes) : "any", check};
  }
  const bool one_node = answers.at("nodes") == "1" && open("with");
  if (open("network") && !one_node) {
    return Question{"network",
                    open("cards-per-node")
                        ? "bandwidth between nodes, of each device (not of a node) and direction"
                        : "bandwidth of each network card and direction",
                    usual_network(preset), refuse_rate};
  }
  if (open("date")) {
    return Question{"date", "date of these answers", today(),
                    [](const std::string& text) -> std::string {
                      return is_date(text) ? "" : "a date like 2026-06-30 is required";
                    }};
  }
  if (open("name")) return Question{"name", "name of the cluster", "my-" + preset.name};
  return std::nullopt;
}

std::string new_cluster_text(const Answers& answers) {
  Cluster cluster = read_cluster(answers.at("based-on"));
  const Cluster preset = cluster;
  if (!cluster.other_devices.empty()) {
    throw UsageError("--based-on: a cluster of one kind of device is required");
  }
  cluster.name = answers.at("name");
  set_devices_per_node(cluster, integer_of("devices-per-node", answers.at("devices-per-node"), 1,
                                           std::int64_t{1} << 12));
  set_nodes(cluster, answers);
  if (answers.contains("with")) add_other_devices(cluster, answers);
  for (const char* key :
       {"network", "network-kind", "cards-per-node", "nodes-per-switch", "oversubscription"}) {
    if (answers.contains(key) && cluster.nodes == 1)
      throw UsageError(fmt::format("--{}: a cluster of one node has no network", key));
  }
  Answers of_network = answers;
  // Nodes of other devices may have a slower network than the preset, whose own one is the usual
  // answer.
  if (answers.contains("with") && !answers.contains("cards-per-node") &&
      answers.at("network") == usual_network(preset))
    of_network.erase("network");
  if (cluster.nodes != 1) set_network(cluster, of_network);
  if (cluster.devices_per_node != preset.devices_per_node) {
    set_source(cluster, "/devices_per_node", "devices-per-node", answers);
  }
  if (cluster.nodes) set_source(cluster, "/nodes", "nodes", answers);
  if (cluster.sources.empty()) cluster.source += "; changed by planner init";
  const std::string text = cluster_text(cluster);
  parse_cluster(text, "planner init");
  return text;
}

}  // namespace plimsoll
