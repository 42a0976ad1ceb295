// Cluster files: people write them, so quantities are spelled with units, exactly in both ways.
#include <fmt/format.h>

#include <array>
#include <map>

#include "base/field_list.h"
#include "models/cluster/cluster.h"
#include "models/cluster/efficiency_json.h"
#include "models/cluster/network_kind.h"
#include "models/kinds/file_kind.h"
#include "models/presets/presets.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kMostNodes = std::int64_t{1} << 20;
constexpr std::int64_t kMostDevicesPerNode = std::int64_t{1} << 12;
constexpr std::size_t kMostOtherDevices = 64;
constexpr std::int64_t kMostDevices = kMostNodes * kMostDevicesPerNode;

// Slower than any machine ever trained on and faster than any that will be: what lies outside is a
// slip of the pen, and times made from it would leave the clock.
constexpr Allowed kFlops(1e6, 1e21);      // per second
constexpr Allowed kBandwidth(1e3, 1e18);  // bytes per second
constexpr double kMostLatency = 100;      // seconds

constexpr auto kPeaks = [](auto& fields, auto& device) {
  fields.optional("fp32", device.peak_fp32, kFlops);
  fields.optional("bf16", device.peak_bf16, kFlops);
  fields.optional("fp16", device.peak_fp16, kFlops);
  fields.optional("fp8", device.peak_fp8, kFlops);
};

constexpr auto kDevice = [](auto& fields, auto& device) {
  fields.required("name", device.name);
  fields.check(!device.name.empty(), "name", "a name is required");
  fields.required("kind", device.kind, kDeviceKinds);
  fields.required("memory", device.memory);
  fields.check(device.memory > Bytes(0), "memory", "more than 0 is required");
  fields.required("memory_bandwidth", device.memory_bandwidth, kBandwidth);
  fields.required("peak", device, kPeaks);
  fields.check(device.peak_fp32 || device.peak_bf16 || device.peak_fp16, "peak",
               "the peak rate of at least one of fp32, bf16, fp16 is required");
};

constexpr auto kLevel = [](auto& fields, auto& level) {
  fields.required("name", level.name);
  if constexpr (kReading<decltype(fields)>) {
    fields.optional("devices", level.devices, {1, kMostDevices});
  } else {
    fields.json()["devices"] = level.devices == 0 ? Json(nullptr) : Json(level.devices);
  }
  fields.required("bandwidth", level.bandwidth, kBandwidth);
  fields.optional("peer_bandwidth", level.peer_bandwidth, kBandwidth);
  fields.check(!level.peer_bandwidth || *level.peer_bandwidth <= level.bandwidth, "peer_bandwidth",
               "it can be no more than the bandwidth to all others");
  fields.optional("group_bandwidth", level.group_bandwidth, kBandwidth);
  fields.required("latency", level.latency, {0, kMostLatency});
  fields.optional("reduces_in_switch", level.reduces_in_switch);
  fields.optional("network", level.network);
  fields.check(level.network.empty() || find_network_kind(level.network) != nullptr, "network",
               "known: {}", known_network_kinds());
};

constexpr auto kHost = [](auto& fields, auto& host) {
  fields.required("to_host", host.to_host, kBandwidth);
  fields.required("to_device", host.to_device, kBandwidth);
  fields.required("memory_bandwidth", host.memory_bandwidth, kBandwidth);
  fields.optional("memory", host.memory);
  fields.check(!host.memory || *host.memory > Bytes(0), "memory", "more than 0 is required");
  fields.unless(1, "core_speed", host.core_speed, {0.1, 10});
};

/// Levels nest: each connects whole units of the one inside it, and the last connects everything.
/// Devices of one node need none: they share its memory.
std::vector<Level> levels_from(JsonObject& cluster, std::optional<std::int64_t> nodes,
                               std::int64_t devices_per_node) {
  std::vector<Level> levels;
  std::vector<JsonObject> objects = cluster.objects("levels");
  if (objects.empty() && nodes != 1) {
    cluster.fail("levels", "at least one level is required, unless there is only one node");
  }
  if (objects.size() > kMostLevels) {
    cluster.fail("levels", fmt::format("at most {} levels are allowed", kMostLevels));
  }
  // Without a node count the user's --devices decides, and is checked there.
  const std::int64_t total = nodes.value_or(0) * devices_per_node;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    const auto level = read_listed<Level>(objects[i], kLevel, Units::texts);
    const bool last = i + 1 == objects.size();
    if (level.reduces_in_switch && i > 0) {
      objects[i].fail("reduces_in_switch", "only the innermost level may reduce in its switch");
    }
    if (level.devices == 0 && !last) {
      objects[i].fail("devices", "only the outermost level may leave its devices open");
    }
    const std::int64_t inner = i == 0 ? 1 : levels.back().devices;
    if (level.devices != 0 && (level.devices % inner != 0 || (i > 0 && level.devices == inner))) {
      objects[i].fail("devices",
                      fmt::format("a larger multiple of the level inside, {}, is required", inner));
    }
    if (last && level.devices != 0 && level.devices < total) {
      objects[i].fail("devices", fmt::format("the outermost level must connect all {}", total));
    }
    levels.push_back(level);
  }
  return levels;
}

/// Whole nodes of the cluster, behind those of the entry before.
OtherDevices others_from(JsonObject& object, const Cluster& cluster) {
  OtherDevices others;
  const std::vector<std::int64_t> range = object.integers("nodes", 0, kMostNodes);
  if (range.size() != 2 || range[1] < 1) {
    object.fail("nodes", "[first, count] is required, the first node being 0 and the count above");
  }
  others.first_node = range[0];
  others.nodes = range[1];
  const auto& before = cluster.other_devices;
  if (!before.empty() && others.first_node < before.back().first_node + before.back().nodes) {
    object.fail("nodes", "nodes behind those of the entry before are required");
  }
  if (cluster.nodes && others.first_node + others.nodes > *cluster.nodes) {
    object.fail("nodes", fmt::format("{} nodes from node {} on; the cluster has {}", others.nodes,
                                     others.first_node, *cluster.nodes));
  }
  others.device = read_listed<Device>(object.object("device"), kDevice, Units::texts);
  if (others.device.kind != cluster.device.kind) {
    object.fail("device", fmt::format("kind must be {}, as that of the cluster's device",
                                      kDeviceKinds[std::size_t(cluster.device.kind)]));
  }
  if (object.has("efficiency")) {
    others.efficiency = efficiency_from(object.object("efficiency"), std::nullopt);
  }
  object.finish();
  return others;
}

void read_other_devices(JsonObject& object, Cluster& cluster) {
  std::vector<JsonObject> entries = object.objects("other_devices");
  if (entries.size() > kMostOtherDevices) {
    object.fail("other_devices", fmt::format("at most {} are allowed", kMostOtherDevices));
  }
  std::int64_t nodes = 0;
  for (JsonObject& entry : entries) {
    cluster.other_devices.push_back(others_from(entry, cluster));
    nodes += cluster.other_devices.back().nodes;
  }
  if (cluster.nodes == nodes) {
    object.fail("other_devices", "at least one node must have the cluster's device");
  }
}

Json others_json(const OtherDevices& others) {
  Json json = {{"nodes", {others.first_node, others.nodes}},
               {"device", listed_json(others.device, kDevice, Units::texts)}};
  if (others.efficiency) {
    json["efficiency"] = efficiency_json(*others.efficiency);
    json["efficiency"].erase("levels");  // those of the cluster hold for all devices
  }
  return json;
}

/// Values at their defaults are left out of a file. Where a source is about one of them alone, it
/// is written, since a source has to be about something.
void write_sourced_defaults(Json& json, const std::vector<Source>& sources) {
  static const std::map<std::string, Json> kDefaults = {
      {"unaligned_rate", 1},        {"fp8_rate", 1},
      {"rowwise_rate", 1},          {"f32_across_rate", 1},
      {"compute_slowdown", 1},      {"communication_slowdown", 1},
      {"reduces_in_switch", false}, {"overlap", {{"compute_slowdown", 1}}}};
  for (const Source& source : sources) {
    const Json::json_pointer at(source.covers);
    if (at.empty() || json.contains(at)) continue;
    if (const auto value = kDefaults.find(at.back()); value != kDefaults.end())
      json[at] = value->second;
  }
}

}  // namespace

Cluster parse_cluster(std::string_view text, const std::string& file) {
  const Json value = parse_file_of(FileKind::cluster, text, file);
  JsonObject object(value, file);
  Cluster cluster;
  cluster.name = object.text("name");
  if (cluster.name.empty()) object.fail("name", "found \"\"; a name is required");
  if (object.has("nodes")) cluster.nodes = object.integer("nodes", 1, kMostNodes);
  cluster.devices_per_node = object.integer("devices_per_node", 1, kMostDevicesPerNode);
  cluster.device = read_listed<Device>(object.object("device"), kDevice, Units::texts);
  cluster.levels = levels_from(object, cluster.nodes, cluster.devices_per_node);
  if (object.has("efficiency")) {
    cluster.efficiency = efficiency_from(object.object("efficiency"), cluster.levels.size());
  }
  if (object.has("other_devices")) read_other_devices(object, cluster);
  if (object.has("host"))
    cluster.host = read_listed<Host>(object.object("host"), kHost, Units::texts);
  object.has("source");
  object.finish();  // an unknown key has no source either: say first that it is unknown
  read_sources(object, value, cluster);
  return cluster;
}

Cluster read_cluster(const std::filesystem::path& path) {
  return parse_cluster(read_file_or_preset(path.string(), cluster_presets()), path.string());
}

std::string cluster_text(const Cluster& cluster) {
  Json levels = Json::array();
  for (const Level& level : cluster.levels)
    levels.push_back(listed_json(level, kLevel, Units::texts));
  Json json = {{"name", cluster.name},
               {"nodes", cluster.nodes ? Json(*cluster.nodes) : Json(nullptr)},
               {"devices_per_node", cluster.devices_per_node},
               {"device", listed_json(cluster.device, kDevice, Units::texts)},
               {"levels", levels}};
  if (cluster.efficiency) json["efficiency"] = efficiency_json(*cluster.efficiency);
  for (const OtherDevices& others : cluster.other_devices) {
    json["other_devices"].push_back(others_json(others));
  }
  if (cluster.host) json["host"] = listed_json(*cluster.host, kHost, Units::texts);
  write_sourced_defaults(json, cluster.sources);
  json["source"] = sources_json(cluster);
  return json_text(json);
}

std::optional<FlopsPerSecond> peak(const Device& device, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return device.peak_fp32;
    case DType::bf16:
      return device.peak_bf16;
    case DType::f16:
      return device.peak_fp16;
    case DType::e4m3:
    case DType::e5m2:
      return device.peak_fp8;
    case DType::i32:
    case DType::u8:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace plimsoll
