// Reads the kinds of networks.
#include "models/cluster/network_kind.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/json.h"
#include "models/presets/presets.h"

namespace plimsoll {
namespace {

NetworkKind kind_from(const Preset& preset) {
  const std::string file(preset.name);
  const Json json = parse_json(preset.text, file);
  JsonObject object(json, file);
  NetworkKind kind;
  kind.key = file;
  kind.name = object.text("name");
  kind.latency = object.seconds("latency");
  kind.bandwidth_fraction = object.number("bandwidth_fraction", 0.001, 1);
  JsonObject sources = object.object("source");
  for (const char* covers : {"latency", "bandwidth_fraction"}) {
    JsonObject source = sources.object(covers);
    kind.sources.push_back(
        {covers, source.text("document"), source.text("where"), source.text("date")});
    source.finish();
  }
  sources.finish();
  object.finish();
  return kind;
}

}  // namespace

const std::vector<NetworkKind>& network_kinds() {
  static const std::vector<NetworkKind> kinds = [] {
    std::vector<NetworkKind> read;
    for (const Preset& preset : network_presets()) read.push_back(kind_from(preset));
    return read;
  }();
  return kinds;
}

const NetworkKind* find_network_kind(std::string_view key) {
  const auto found = std::ranges::find(network_kinds(), key, &NetworkKind::key);
  return found == network_kinds().end() ? nullptr : &*found;
}

void set_network_kind(const NetworkKind& kind, Cluster& cluster) {
  Level& level = cluster.levels.back();
  level.name = kind.name;
  level.network = kind.key;
  level.latency = kind.latency;
  if (!cluster.efficiency) return;  // predictions take the kind's share
  LevelEfficiency& efficiency = cluster.efficiency->levels.back();
  efficiency.bandwidth_fraction = kind.bandwidth_fraction;
  efficiency.fitted.reset();
}

std::string known_network_kinds() {
  std::vector<std::string_view> keys;
  for (const NetworkKind& kind : network_kinds()) keys.push_back(kind.key);
  return fmt::format("{}", fmt::join(keys, ", "));
}

}  // namespace plimsoll
