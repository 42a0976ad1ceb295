// Describes a cluster: devices, links, and from how many FLOPs per byte on compute takes the time.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "planner/describe/describe_input.h"
#include "predict/default_efficiency.h"
#include "reports/numbers.h"

namespace plimsoll {
namespace {

using PeakOfType = std::pair<const char*, std::optional<FlopsPerSecond>>;

std::vector<PeakOfType> peaks_of(const Device& device) {
  std::vector<PeakOfType> peaks = {{"fp32", device.peak_fp32},
                                   {"bf16", device.peak_bf16},
                                   {"fp16", device.peak_fp16},
                                   {"fp8", device.peak_fp8}};
  std::erase_if(peaks, [](const PeakOfType& peak) { return !peak.second; });
  return peaks;
}

/// Returns the peak of the type in which jobs mostly compute: the first of bf16, fp16 and fp32.
PeakOfType main_peak(const Device& device) {
  if (device.peak_bf16) return {"bf16", device.peak_bf16};
  if (device.peak_fp16) return {"fp16", device.peak_fp16};
  return {"fp32", device.peak_fp32};
}

Section device_section(const Device& device, const std::string& title, const std::string& key) {
  Section section{title, key};
  section.add("name", printable(device.name));
  section.add("kind", device.kind == DeviceKind::gpu ? "GPU: compute and communication at once"
                                                     : "CPU core: it does one thing at a time");
  section.add("memory", fmt::format("{} ({})", to_text(device.memory), exact_text(device.memory)),
              device.memory.count(), "bytes");
  section.add("memory bandwidth", to_text(device.memory_bandwidth), device.memory_bandwidth.value(),
              "bytes_per_s");
  for (const auto& [type, rate] : peaks_of(device)) {
    section.add(fmt::format("peak {}", type), fmt::format("{} (dense)", to_text(*rate)),
                rate->value(), "flops_per_s");
  }
  for (const auto& [type, rate] : peaks_of(device)) {
    const double ridge = rate->value() / device.memory_bandwidth.value();
    section.add(fmt::format("ridge point {}", type),
                fmt::format("{:.0f} FLOP per byte of memory", ridge), ridge, "flops_per_byte");
  }
  return section;
}

/// Returns what the halves of `devices` devices can send each other at once, in one direction.
BytesPerSecond bisection(const Level& level, double devices) {
  const double by_devices = devices / 2 * level.bandwidth.value();
  if (!level.peer_bandwidth) return BytesPerSecond(by_devices);
  const double by_links = devices / 2 * (devices / 2) * level.peer_bandwidth->value();
  return BytesPerSecond(std::min(by_devices, by_links));
}

/// Returns the number of devices that a level joins, or 0 where --devices decides.
std::int64_t joined(const Cluster& cluster, const Level& level) {
  if (level.devices > 0) return level.devices;
  return cluster.nodes.value_or(0) * cluster.devices_per_node;
}

Section network_section(const Cluster& cluster) {
  Section network{"network, from the inside out", "levels"};
  network.is_list = true;
  const auto [type, rate] = main_peak(cluster.device);
  for (const Level& level : cluster.levels) {
    const std::int64_t devices = joined(cluster, level);
    Json value = {{"name", level.name},
                  {"devices", devices == 0 ? Json(nullptr) : Json(devices)},
                  {"bandwidth_bytes_per_s", level.bandwidth.value()},
                  {"latency_s", level.latency.value()},
                  {"flops_per_byte", rate->value() / level.bandwidth.value()}};
    std::string text =
        fmt::format("{}, {} per device and direction, {} per step of a collective",
                    devices == 0 ? "all devices" : fmt::format("{} devices", grouped(devices)),
                    to_text(level.bandwidth), to_text(level.latency));
    if (level.peer_bandwidth) {
      text +=
          fmt::format(", {} to each other one without a switch", to_text(*level.peer_bandwidth));
      value["peer_bandwidth_bytes_per_s"] = level.peer_bandwidth->value();
    }
    if (level.reduces_in_switch) text += ", the switch adds up";
    if (devices > 1) {
      const BytesPerSecond half = bisection(level, double(devices));
      text += fmt::format("; bisection {}", to_text(half));
      value["bisection_bytes_per_s"] = half.value();
    }
    text += fmt::format("; {:.0f} FLOP {} per byte", rate->value() / level.bandwidth.value(), type);
    network.add(printable(level.name), std::move(text), std::move(value));
  }
  return network;
}

Section size_section(const Cluster& cluster) {
  Section size{"size", "size"};
  size.add("nodes", cluster.nodes ? grouped(*cluster.nodes) : "as many as --devices needs",
           cluster.nodes ? Json(*cluster.nodes) : Json(nullptr));
  size.add_count("devices per node", cluster.devices_per_node);
  if (cluster.nodes) size.add_count("devices", *cluster.nodes * cluster.devices_per_node);
  if (!cluster.levels.empty()) {
    const Level& outermost = cluster.levels.back();
    const BytesPerSecond node(outermost.bandwidth.value() * double(cluster.devices_per_node));
    if (outermost.devices == 0 || outermost.devices > cluster.devices_per_node) {
      size.add("network of a node", fmt::format("{} in each direction", to_text(node)),
               node.value(), "bytes_per_s");
    }
  }
  return size;
}

Section rates_section(const Cluster& cluster) {
  Section rates{"what kernels and collectives reach of this", "rates"};
  if (cluster.efficiency) {
    rates.add("efficiency", fits_of(cluster));
  } else if (cluster.device.kind == DeviceKind::gpu) {
    rates.add("efficiency", default_efficiency(cluster).words);
  } else {
    rates.add("efficiency", "not stated; all of it");
  }
  return rates;
}

/// Returns each source once, with what it covers.
Section sources_of(const Cluster& cluster) {
  Section section{"sources", "sources"};
  section.is_list = true;
  if (cluster.sources.empty()) {
    section.add("all numbers", printable(cluster.source, 400));
    return section;
  }
  std::vector<std::pair<Source, std::vector<std::string>>> documents;
  for (const Source& source : cluster.sources) {
    const auto same = std::ranges::find_if(documents, [&](const auto& known) {
      return known.first.document == source.document && known.first.where == source.where &&
             known.first.date == source.date;
    });
    if (same == documents.end()) {
      documents.push_back({source, {source.covers}});
    } else {
      same->second.push_back(source.covers);
    }
  }
  for (const auto& [source, covers] : documents) {
    section.add(fmt::format("{}", fmt::join(covers, ", ")),
                fmt::format("{}, {}, {}", source.document, source.where, source.date),
                {{"covers", covers},
                 {"document", source.document},
                 {"where", source.where},
                 {"date", source.date}});
  }
  return section;
}

}  // namespace

Description describe_cluster(const Cluster& cluster) {
  Description description{"cluster", cluster.name, {}};
  description.sections.push_back(size_section(cluster));
  description.sections.push_back(device_section(cluster.device, "device", "device"));
  for (std::size_t i = 0; i < cluster.other_devices.size(); ++i) {
    const OtherDevices& other = cluster.other_devices[i];
    const std::int64_t last = other.first_node + other.nodes - 1;
    description.sections.push_back(device_section(
        other.device, fmt::format("device of nodes {} to {}", other.first_node, last),
        fmt::format("other_device_{}", i)));
  }
  description.sections.push_back(network_section(cluster));
  description.sections.push_back(rates_section(cluster));
  description.sections.push_back(sources_of(cluster));
  return description;
}

}  // namespace plimsoll
