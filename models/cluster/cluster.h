// A Cluster has devices with their peak rates and memory, and the levels of the network between
// them.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "graph/tensor.h"

namespace plimsoll {

// Efficiency states how far a device's kernels and collectives stay below its peak rates, as a few
// physical parameters. The time formulas are in simulator/costs/efficiency_curves.h and
// simulator/costs/collective_cost.h.

/// A FitRange has the sizes of the measurements on which parameters were fitted. A group of
/// parameters without a range is taken from a document.
template <class Amount>
struct FitRange {
  Amount from, to;   ///< smallest and largest measured; beyond, an estimate is extrapolated
  double error = 0;  ///< median relative error on measurements that the fit had not seen
  bool operator==(const FitRange&) const = default;
};

/// RestsOn is the source that set the rates and times of a group of parameters.
enum class RestsOn : std::uint8_t {
  cluster,  ///< the cluster file: its documents, or kernels timed one by one
  typical,  ///< what fits of other devices and frameworks have in common
  runs,     ///< published runs of the device and the framework
};

/// Matmul kernels compute their output in tiles, one tile at a time on each of the device's units.
struct MatmulEfficiency {
  /// share of the dense peak, for large tiles and a deep inner dimension
  double peak_fraction = 1;
  std::int64_t units = 1;  ///< streaming multiprocessors: tiles computed at once
  double added_depth = 0;  ///< start and end of a tile, as that many steps of the inner dimension
  double half_rate_reuse = 0;  ///< tile m n / (m + n) at which half of the rate is lost to loads
  Seconds fixed_time;          ///< per kernel
  /// The rate of 16-bit operands whose rows start at odd elements, relative to rows that start at
  /// multiples of 16 bytes. Alignments between the two are interpolated by powers: multiples of 4
  /// elements lose a third of the loss.
  double unaligned_rate = 1;
  /// The share of their peak that 8-bit operands reach, relative to peak_fraction.
  double fp8_rate = 1;
  /// The rate of 8-bit operands whose rows each have a scale, relative to operands with one scale.
  double rowwise_rate = 1;
  /// The rate of products of f32 operands, computed as TF32, where the rows of one or both operands
  /// do not run along the inner dimension. It is relative to the rate where the rows of both do.
  double f32_across_rate = 1;
  std::optional<FitRange<Flops>> fitted;
  RestsOn rests_on = RestsOn::cluster;
  RestsOn fp8_rests_on = RestsOn::cluster;  ///< the source of fp8_rate
  bool operator==(const MatmulEfficiency&) const = default;
};

/// One direction of causal attention in one kernel (flash attention). At most half of the scores
/// are computed.
struct AttentionEfficiency {
  double peak_fraction = 1;  ///< share of the dense peak, counting computed scores only
  Seconds fixed_time;        ///< per kernel
  std::optional<FitRange<Flops>> fitted;  ///< scores counted in full
  RestsOn rests_on = RestsOn::cluster;
  bool operator==(const AttentionEfficiency&) const = default;
};

/// Kernels that only move data.
struct MemoryEfficiency {
  double bandwidth_fraction = 1;  ///< share of the memory bandwidth
  Seconds fixed_time;             ///< per kernel
  std::optional<FitRange<Bytes>> fitted;
  RestsOn rests_on = RestsOn::cluster;
  bool operator==(const MemoryEfficiency&) const = default;
};

/// Collectives and transfers whose outermost level this is.
struct LevelEfficiency {
  double bandwidth_fraction = 1;  ///< share of the level's bandwidth
  Seconds fixed_time;             ///< per collective, in addition to the latency of its steps
  std::optional<FitRange<Bytes>> fitted;
  RestsOn rests_on = RestsOn::cluster;
  bool operator==(const LevelEfficiency&) const = default;
};

/// Kernels and communications that run at once slow each other, since data movement takes units and
/// memory bandwidth from compute and waits for both. A slowdown is the time while both run
/// over the time alone; 1 means not slowed.
struct OverlapEfficiency {
  double compute_slowdown = 1, communication_slowdown = 1;
  bool operator==(const OverlapEfficiency&) const = default;
};

struct Efficiency {
  MatmulEfficiency matmul;
  AttentionEfficiency attention_forward, attention_backward;
  MemoryEfficiency memory;
  OverlapEfficiency overlap;
  std::vector<LevelEfficiency> levels;  ///< one for each level of the cluster
  bool operator==(const Efficiency&) const = default;
};

enum class DeviceKind : std::uint8_t {
  cpu_core,  ///< the host executes ops itself: no overlap of anything with anything
  gpu,
};
inline constexpr std::array<std::string_view, 2> kDeviceKinds = {"cpu_core", "gpu"};

struct Device {
  std::string name;
  DeviceKind kind = DeviceKind::gpu;
  Bytes memory;  ///< total as the driver reports it; for a CPU core its share of the machine
  BytesPerSecond memory_bandwidth;
  /// Dense peaks by compute type. A peak is absent where the device has no such units.
  std::optional<FlopsPerSecond> peak_fp32, peak_bf16, peak_fp16;
  std::optional<FlopsPerSecond> peak_fp8 = std::nullopt;
  bool operator==(const Device&) const = default;
};

/// A Level connects `devices` consecutive devices. Levels go from inner to outer.
struct Level {
  std::string name;
  std::int64_t devices = 0;  ///< devices of one unit of this level; the outermost may have 0 = all
  BytesPerSecond bandwidth;  ///< per device and direction
  Seconds latency;           ///< latency of one step of a collective, and of a transfer
  /// The bandwidth from one device to one other, where devices are wired to each other without a
  /// switch (the mean over pairs). A group of n uses at most n - 1 times this.
  std::optional<BytesPerSecond> peer_bandwidth = std::nullopt;
  /// The most that one group of ranks sends out of a node by rings and trees, whatever its number
  /// of ranks there. Its communicator does not use all links of the node; other groups use the
  /// others.
  std::optional<BytesPerSecond> group_bandwidth = std::nullopt;
  /// The switch adds up what the devices send (NVLink SHARP), so an all-reduce moves its payload
  /// once, not twice. Only the innermost level may have this.
  bool reduces_in_switch = false;
  /// The kind of network (models/cluster/network_kind.h); empty: not stated. Without an efficiency
  /// in the file, the share of the bandwidth that is reached is the kind's.
  std::string network = {};
  bool operator==(const Level&) const = default;
};

/// A Host is what the devices of a node share outside of them. Rates are those of one device.
struct Host {
  BytesPerSecond to_host{25e9}, to_device{25e9};  ///< of the link between a device and the host
  /// A device's share of the memory bandwidth of its node's host.
  BytesPerSecond memory_bandwidth{25e9};
  std::optional<Bytes> memory = std::nullopt;  ///< of a node
  /// The speed at which one core runs a framework, relative to the Xeon Platinum 8480C of a DGX
  /// H100. Host times of frameworks are those of that core.
  double core_speed = 1;
  bool operator==(const Host&) const = default;
};

/// The largest number of levels of a cluster.
inline constexpr std::size_t kMostLevels = 6;

/// A Source says where a number, or everything within an object, comes from.
struct Source {
  std::string covers;  ///< JSON pointer of the number or object, such as "/device/memory"
  std::string document, where, date;  ///< where: table, page or section; date: ISO, may end early
  bool operator==(const Source&) const = default;
};

/// OtherDevices are nodes whose devices are of another kind than the cluster's.
struct OtherDevices {
  std::int64_t first_node = 0, nodes = 0;  ///< the nodes, counted from 0
  Device device;
  std::optional<Efficiency> efficiency;  ///< efficiency of its kernels: `levels` is empty
  bool operator==(const OtherDevices&) const = default;
};

struct Cluster {
  std::string name;
  std::optional<std::int64_t> nodes;  ///< null: the user's --devices decides
  std::int64_t devices_per_node = 0;
  Device device;
  std::vector<Level> levels;  ///< empty: the devices of one node, which share its memory
  /// Absent: peak rates and bandwidths count as stated, and no kernel or step costs more.
  std::optional<Efficiency> efficiency;
  /// These ranges ascend without overlap. Their devices have the DeviceKind of `device`, which all
  /// other nodes have.
  std::vector<OtherDevices> other_devices;
  /// Absent: the defaults of Host are assumed. They are what copies over 16 lanes of PCIe 4 reach
  /// (64 GB/s both ways by the standard), and an eighth of the eight channels of DDR4-3200 of one
  /// socket.
  std::optional<Host> host = std::nullopt;
  /// Where the numbers come from. `source` is one text for all numbers (document, table or page,
  /// date; or "measured" with a date). It is empty where `sources` has a source for each number.
  std::string source;
  std::vector<Source> sources;
  bool operator==(const Cluster&) const = default;
};

/// Reads a file, or a preset by its name.
Cluster read_cluster(const std::filesystem::path& path);
Cluster parse_cluster(std::string_view text, const std::string& file);
std::string cluster_text(const Cluster& cluster);

/// Returns the kind of the device on which `rank` runs. Rank r runs on the r-th device, and nodes
/// are filled in order. The kind is 0 for the cluster's `device` and i + 1 for other_devices[i];
/// equal devices have the kind of the first of them.
std::size_t device_kind(const Cluster& cluster, std::int64_t rank);
/// Returns how many of the first `ranks` devices are of each kind that occurs among them.
std::map<std::size_t, std::int64_t> devices_by_kind(const Cluster& cluster, std::int64_t ranks);
const Device& device_of(const Cluster& cluster, std::size_t kind);
/// Returns the JSON pointer of a device kind within the cluster file.
std::string pointer_of_device(std::size_t kind);

/// Returns in words the source that covers `pointer` most closely: "document, where, date".
std::string source_of(const Cluster& cluster, std::string_view pointer);

/// Returns in words which efficiency parameters were fitted on measurements and which were not,
/// without their sources: "matmul fitted to 3 %, memory datasheet, ...". The cluster must have
/// efficiency parameters.
std::string fits_of(const Cluster& cluster);

/// Returns the peak dense rate for ops that compute in `dtype`, if the device has it.
std::optional<FlopsPerSecond> peak(const Device& device, DType dtype);

}  // namespace plimsoll
