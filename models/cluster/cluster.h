// Cluster: devices, their peak rates and memory, and the levels of the network between them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "graph/tensor.h"
#include "models/cluster/efficiency.h"

namespace plimsoll {

enum class DeviceKind : std::uint8_t {
  cpu_core,  ///< the host executes ops itself: no overlap of anything with anything
  gpu,
};

struct Device {
  std::string name;
  DeviceKind kind = DeviceKind::gpu;
  Bytes memory;  ///< what the driver reports as total; for a CPU core its share of the machine
  BytesPerSecond memory_bandwidth;
  /// Dense peak by compute type; absent = the device has no such units.
  std::optional<FlopsPerSecond> peak_fp32, peak_bf16, peak_fp16;
  std::optional<FlopsPerSecond> peak_fp8 = std::nullopt;
  bool operator==(const Device&) const = default;
};

/// A level connects `devices` consecutive devices; levels go from inner to outer.
struct Level {
  std::string name;
  std::int64_t devices = 0;  ///< in one unit of this level; the outermost may be 0 = all
  BytesPerSecond bandwidth;  ///< per device and direction
  Seconds latency;           ///< of one step of a collective, and of a transfer
  /// Where devices are wired to each other without a switch: what one can send to one other (the
  /// mean over pairs). A group of n uses at most n - 1 times that.
  std::optional<BytesPerSecond> peer_bandwidth = std::nullopt;
  /// The switch adds up what the devices send (NVLink SHARP): an all-reduce moves its payload once,
  /// not twice. Only where the level is the innermost.
  bool reduces_in_switch = false;
  bool operator==(const Level&) const = default;
};

/// How many levels a cluster may have.
inline constexpr std::size_t kMostLevels = 6;

/// Where a number comes from, and everything within it.
struct Source {
  std::string covers;                 ///< JSON pointer of the number or object, as "/device/memory"
  std::string document, where, date;  ///< where: table, page or section; date: ISO, may end early
  bool operator==(const Source&) const = default;
};

/// Nodes whose devices are of another kind than the cluster's.
struct OtherDevices {
  std::int64_t first_node = 0, nodes = 0;  ///< which, from 0
  Device device;
  std::optional<Efficiency> efficiency;  ///< of its kernels: `levels` is empty
  bool operator==(const OtherDevices&) const = default;
};

struct Cluster {
  std::string name;
  std::optional<std::int64_t> nodes;  ///< null: the user's --devices decides
  std::int64_t devices_per_node = 0;
  Device device;
  std::vector<Level> levels;  ///< empty: the devices of one node, which share its memory
  /// Absent: peak rates and bandwidths as stated, no kernel or step costs more.
  std::optional<Efficiency> efficiency;
  /// Ascending, without overlap; of the same DeviceKind as `device`, which all other nodes have.
  std::vector<OtherDevices> other_devices;
  /// Where the numbers come from: one text for all (document, table or page, date; or "measured"
  /// with date), else empty and a source for each number.
  std::string source;
  std::vector<Source> sources;
  bool operator==(const Cluster&) const = default;
};

/// A file, or the name of a preset.
Cluster read_cluster(const std::filesystem::path& path);
Cluster parse_cluster(std::string_view text, const std::string& file);
std::string cluster_text(const Cluster& cluster);

/// The kind of the device that `rank` runs on (rank r is the r-th device, nodes fill in order): 0
/// for the cluster's `device`, i + 1 for other_devices[i]; equal ones count as the first of them.
std::size_t device_kind(const Cluster& cluster, std::int64_t rank);
/// How many of the first `ranks` devices are of each kind that occurs among them.
std::map<std::size_t, std::int64_t> devices_by_kind(const Cluster& cluster, std::int64_t ranks);
const Device& device_of(const Cluster& cluster, std::size_t kind);
/// JSON pointer of it within the cluster file.
std::string pointer_of_device(std::size_t kind);

/// In words, the source that covers `pointer` most closely: "document, where, date".
std::string source_of(const Cluster& cluster, std::string_view pointer);

/// In words, which efficiency parameters were fitted on measurements and which were not, without
/// their sources: "matmul fitted to 3 %, memory datasheet, ...". The cluster must have some.
std::string fits_of(const Cluster& cluster);

/// Peak dense rate for ops computing in `dtype`, if the device has it.
std::optional<FlopsPerSecond> peak(const Device& device, DType dtype);

}  // namespace plimsoll
