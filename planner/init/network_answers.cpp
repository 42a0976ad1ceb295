// Makes the network of a new cluster.
#include "planner/init/network_answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/units.h"
#include "models/cluster/network_kind.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kMostCards = 1024;
constexpr double kMostOversubscription = 1000;

std::optional<std::string> answer_of(const Answers& answers, const char* key) {
  const auto found = answers.find(key);
  return found == answers.end() ? std::nullopt : std::optional(found->second);
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

}  // namespace

bool joins_nodes(const Cluster& cluster, const Level& level) {
  return level.devices == 0 || level.devices > cluster.devices_per_node;
}

std::string refuse_rate(const std::string& text) {
  try {
    parse_bytes_per_second(text);
    return "";
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

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

void set_network(Cluster& cluster, const Answers& answers) {
  if (answers.contains("network")) set_bandwidth(cluster, answers);
  if (const auto kind = answer_of(answers, "network-kind")) set_kind(cluster, *kind);
  split_switch(cluster, answers);
}

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

std::int64_t other_nodes(const std::string& with) {
  std::int64_t nodes = 0;
  for (const OtherNodes& asked : parse_with(with)) nodes += asked.nodes;
  return nodes;
}

}  // namespace plimsoll
