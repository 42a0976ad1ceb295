// Starting files of clusters: the devices and links of a preset, with other numbers of them.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/units.h"
#include "models/calibration/calibration.h"
#include "models/cluster/cluster.h"
#include "models/cluster/network_kind.h"
#include "planner/init/init.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kMostCards = 1024;
constexpr double kMostOversubscription = 1000;

std::optional<std::string> answer_of(const Answers& answers, const char* key) {
  const auto found = answers.find(key);
  return found == answers.end() ? std::nullopt : std::optional(found->second);
}

/// Returns why a text is no bandwidth, or nothing.
std::string refuse_rate(const std::string& text) {
  try {
    parse_bytes_per_second(text);
    return "";
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

/// Whether a level joins several nodes.
bool joins_nodes(const Cluster& cluster, const Level& level) {
  return level.devices == 0 || level.devices > cluster.devices_per_node;
}

/// Says that what `covers` points to comes from the answer `key`, unless one text covers all
/// numbers of the cluster.
void set_source(Cluster& cluster, const std::string& covers, const std::string& key,
                const Answers& answers) {
  if (cluster.sources.empty()) return;  // one text covers all numbers
  std::erase_if(cluster.sources, [&](const Source& source) { return source.covers == covers; });
  std::string given = fmt::format("--{} {}", key, answers.at(key));
  if (key == "network" && answers.contains("cards-per-node")) {
    given += fmt::format(" of a card, --cards-per-node {} for {} devices",
                         answers.at("cards-per-node"), cluster.devices_per_node);
  }
  cluster.sources.push_back({covers, "Given to planner init", given, answers.at("date")});
}

/// Returns the bandwidth of one device and the answers that state it.
BytesPerSecond rate_per_device(const Cluster& cluster, const std::string& text,
                               const std::optional<std::string>& cards) {
  if (const std::string why = refuse_rate(text); !why.empty())
    throw UsageError("--network: " + why);
  const BytesPerSecond rate = parse_bytes_per_second(text);
  if (!cards) return rate;
  const auto count = double(integer_of("cards-per-node", *cards, 1, kMostCards));
  return BytesPerSecond(rate.value() * count / double(cluster.devices_per_node));
}

void set_bandwidth(Cluster& cluster, const Answers& answers) {
  const std::optional<std::string> cards = answer_of(answers, "cards-per-node");
  const BytesPerSecond rate = rate_per_device(cluster, answers.at("network"), cards);
  if (!cluster.levels.empty() && joins_nodes(cluster, cluster.levels.back())) {
    Level& level = cluster.levels.back();
    if (level.bandwidth == rate) return;
    level.bandwidth = rate;
    set_source(cluster, fmt::format("/levels/{}/bandwidth", cluster.levels.size() - 1), "network",
               answers);
    return;
  }
  // NCCL 2.12 src/graph/tuning.cc, hwLat: NET, Ring, Simple = 14.0 us, as in the presets.
  cluster.levels.push_back({"network", 0, rate, Seconds(14e-6)});
  cluster.efficiency.reset();
  std::erase_if(cluster.sources,
                [](const Source& source) { return source.covers.starts_with("/efficiency"); });
  set_source(cluster, fmt::format("/levels/{}", cluster.levels.size() - 1), "network", answers);
}

/// Replaces the sources of a number or an object by one of a network kind.
void take_source(Cluster& cluster, const std::string& covers, const NetworkKind& kind,
                 const std::string& key) {
  if (cluster.sources.empty()) return;
  std::erase_if(cluster.sources, [&](const Source& one) { return one.covers == covers; });
  const auto known = std::ranges::find(kind.sources, key, &Source::covers);
  Source source = *known;
  source.covers = covers;
  cluster.sources.push_back(std::move(source));
}

void set_kind(Cluster& cluster, const std::string& key) {
  const NetworkKind* kind = find_network_kind(key);
  if (kind == nullptr) {
    throw UsageError(fmt::format("--network-kind: found \"{}\"; known: {}", printable(key),
                                 known_network_kinds()));
  }
  const std::size_t last = cluster.levels.size() - 1;
  set_network_kind(*kind, cluster);
  take_source(cluster, fmt::format("/levels/{}/latency", last), *kind, "latency");
  if (!cluster.efficiency) return;
  std::erase_if(cluster.sources, [&](const Source& source) {
    return source.covers.starts_with(fmt::format("/efficiency/levels/{}/fitted", last));
  });
  take_source(cluster, fmt::format("/efficiency/levels/{}/bandwidth_fraction", last), *kind,
              "bandwidth_fraction");
}

double oversubscription_of(std::string text) {
  if (text.ends_with(":1")) text.resize(text.size() - 2);
  try {
    std::size_t end = 0;
    const double ratio = std::stod(text, &end);
    if (end == text.size() && ratio > 1 && ratio <= kMostOversubscription) return ratio;
  } catch (const std::logic_error&) {
  }
  throw UsageError(fmt::format("--oversubscription: found \"{}\"; a ratio such as 2:1 is required",
                               printable(text)));
}

void split_switch(Cluster& cluster, const Answers& answers) {
  const std::optional<std::string> nodes = answer_of(answers, "nodes-per-switch");
  const std::optional<std::string> ratio = answer_of(answers, "oversubscription");
  if (!nodes && !ratio) return;
  if (!nodes || !ratio) {
    throw UsageError(
        "--nodes-per-switch and --oversubscription go together: up to this number of nodes have the "
        "bandwidth of --network, and beyond them it is a part of that");
  }
  const std::int64_t joined = integer_of("nodes-per-switch", *nodes, 2, std::int64_t{1} << 20);
  if (cluster.nodes && joined >= *cluster.nodes) {
    throw UsageError(fmt::format("--nodes-per-switch {}: one switch joins all {} nodes", joined,
                                 *cluster.nodes));
  }
  if (cluster.levels.size() == kMostLevels)
    throw UsageError(fmt::format("--nodes-per-switch: at most {} levels are allowed", kMostLevels));
  const std::size_t last = cluster.levels.size() - 1;
  Level outer = cluster.levels.back();
  cluster.levels.back().devices = joined * cluster.devices_per_node;
  cluster.levels.back().name += ", one switch";
  outer.name += ", between switches";
  outer.reduces_in_switch = false;
  outer.bandwidth = BytesPerSecond(outer.bandwidth.value() / oversubscription_of(*ratio));
  cluster.levels.push_back(outer);
  if (cluster.efficiency) cluster.efficiency->levels.push_back(cluster.efficiency->levels.back());
  std::vector<Source> copies;
  for (const std::string list : {"/levels/", "/efficiency/levels/"}) {
    const std::string own = list + std::to_string(last);
    for (const Source& source : cluster.sources) {
      const bool inside = source.covers == own || source.covers.starts_with(own + "/");
      if (!inside) continue;
      copies.push_back(source);
      copies.back().covers = list + std::to_string(last + 1) + source.covers.substr(own.size());
    }
  }
  cluster.sources.insert(cluster.sources.end(), copies.begin(), copies.end());
  set_source(cluster, fmt::format("/levels/{}/bandwidth", last + 1), "oversubscription", answers);
}

struct OtherNodes {
  std::string preset;
  std::int64_t nodes = 0;
};

std::vector<OtherNodes> parse_with(const std::string& with) {
  std::vector<OtherNodes> all;
  for (std::size_t begin = 0; begin <= with.size();) {
    const std::size_t end = std::min(with.find(',', begin), with.size());
    const std::string part = with.substr(begin, end - begin);
    const std::size_t colon = part.rfind(':');
    if (colon == part.npos || colon == 0) {
      throw UsageError(
          fmt::format("--with: found \"{}\"; a preset and a number of its nodes is "
                      "required: dgx-a100-80gb:2",
                      printable(part)));
    }
    all.push_back({part.substr(0, colon),
                   integer_of("with", part.substr(colon + 1), 1, std::int64_t{1} << 20)});
    begin = end + 1;
  }
  return all;
}

/// Gives levels the lower bandwidth, with its sources.
void take_slower_levels(Cluster& cluster, const Cluster& other) {
  const auto alike = [](const Level& a, const Level& b) { return a.devices == b.devices; };
  if (!std::ranges::equal(cluster.levels, other.levels, alike) ||
      cluster.devices_per_node != other.devices_per_node) {
    throw UsageError(fmt::format(
        "--with {}: its nodes are wired otherwise than those of {}; both need nodes of {} devices",
        other.name, cluster.name, cluster.devices_per_node));
  }
  for (std::size_t l = 0; l < cluster.levels.size(); ++l) {
    if (other.levels[l].bandwidth >= cluster.levels[l].bandwidth) continue;
    cluster.levels[l] = other.levels[l];
    cluster.efficiency->levels[l] = other.efficiency->levels[l];
    if (cluster.sources.empty() || other.sources.empty()) continue;
    for (const std::string list : {"/levels/", "/efficiency/levels/"}) {
      const std::string own = list + std::to_string(l);
      const auto inside = [&](const Source& source) {
        return source.covers == own || source.covers.starts_with(own + "/");
      };
      std::erase_if(cluster.sources, inside);
      std::ranges::copy_if(other.sources, std::back_inserter(cluster.sources), inside);
    }
  }
}

/// Adds the sources of the other devices' numbers.
void take_device_sources(Cluster& cluster, const Cluster& other) {
  const std::string place = fmt::format("/other_devices/{}", cluster.other_devices.size() - 1);
  if (cluster.sources.empty() || other.sources.empty()) {
    throw UsageError(
        fmt::format("--with {}: both files need a source for each of their numbers", other.name));
  }
  for (Source source : other.sources) {
    const bool of_device = source.covers.starts_with("/device/") || source.covers == "/device";
    const bool of_kernels = source.covers.starts_with("/efficiency/") &&
                            !source.covers.starts_with("/efficiency/levels");
    if (!of_device && !of_kernels) continue;
    source.covers = place + source.covers;
    cluster.sources.push_back(std::move(source));
  }
}

/// Changes the outermost level as the answers say, or makes one where the preset is one node:
/// - network: its bandwidth per device (as it is, if absent), or per card with cards-per-node,
/// which devices then share;
/// - network-kind: its latency and the share of its bandwidth that is reached;
/// - nodes-per-switch, oversubscription: a level of these nodes at that bandwidth, and one that
///   joins them at a part of it.
/// Throws UsageError.
void set_network(Cluster& cluster, const Answers& answers) {
  if (answers.contains("network")) set_bandwidth(cluster, answers);
  if (const auto kind = answer_of(answers, "network-kind")) set_kind(cluster, *kind);
  split_switch(cluster, answers);
}

/// Returns the number of nodes that "dgx-a100-80gb:2,hgx-h200:1" adds.
std::int64_t other_nodes(const std::string& with) {
  std::int64_t nodes = 0;
  for (const OtherNodes& asked : parse_with(with)) nodes += asked.nodes;
  return nodes;
}

/// Gives the last nodes the devices of other presets, for --with "dgx-a100-80gb:2,hgx-h200:1".
/// Levels get the lower bandwidth of the presets. Throws UsageError where nodes are wired
/// otherwise.
void add_other_devices(Cluster& cluster, const Answers& answers) {
  const std::string& with = answers.at("with");
  std::int64_t first = *cluster.nodes - other_nodes(with);
  for (const OtherNodes& asked : parse_with(with)) {
    const Cluster other = read_cluster(asked.preset);
    if (!other.other_devices.empty() || !other.efficiency || !cluster.efficiency) {
      throw UsageError(
          fmt::format("--with {}: both need one kind of device, and the efficiency of its kernels",
                      other.name));
    }
    take_slower_levels(cluster, other);
    Efficiency kernels = *other.efficiency;
    kernels.levels.clear();
    cluster.other_devices.push_back({first, asked.nodes, other.device, std::move(kernels)});
    take_device_sources(cluster, other);
    set_source(cluster, fmt::format("/other_devices/{}/nodes", cluster.other_devices.size() - 1),
               "with", answers);
    first += asked.nodes;
  }
}

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
