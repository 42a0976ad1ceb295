// A Topology says how the GPUs and NICs of a node are wired, as `nvidia-smi topo -m` or NCCL's dump
// (NCCL_TOPO_DUMP_FILE) say. A cluster follows from it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "models/cluster/cluster.h"

namespace plimsoll {

/// A PciPath is the path between two devices; a smaller value is nearer.
enum class PciPath : std::uint8_t {
  same_switch,  ///< PCIe switches only (PIX, PXB)
  same_host,    ///< host bridges of one NUMA node (PHB, NODE)
  across,       ///< the link between NUMA nodes (SYS)
};

struct TopologyNic {
  std::string name;
  std::optional<BytesPerSecond> speed;  ///< absent: the file does not say
  bool near = false;                    ///< whether it shares a PCIe switch with a GPU
  bool operator==(const TopologyNic&) const = default;
};

/// The topology of one node. Matrices are symmetric, over its GPUs in their order.
struct Topology {
  std::string file;
  std::string kind;  ///< "nvidia-smi topo -m", "NCCL topology dump"
  /// NVLinks between two GPUs; through a switch: all links
  std::vector<std::vector<std::int64_t>> links;
  std::vector<std::vector<PciPath>> paths;  ///< paths other than NVLink
  std::vector<std::int64_t> links_of;       ///< NVLinks of each GPU
  bool switched = false;                    ///< the NVLinks end in NVSwitches
  std::int64_t compute_capability = 0;      ///< 90; 0: the file does not say
  /// PCIe bandwidth of the slowest GPU; absent: the file does not say
  std::optional<BytesPerSecond> pcie;
  std::vector<TopologyNic> nics;
  bool operator==(const Topology&) const = default;
};

/// Reads either form, which the first character decides. Throws InputError with line and column.
Topology read_topology(const std::filesystem::path& path);
Topology parse_topology(std::string_view text, const std::string& file);
Topology parse_topology_text(std::string_view text, const std::string& file);
Topology parse_topology_xml(std::string_view text, const std::string& file);

/// TopologyGiven has facts that the files do not hold.
struct TopologyGiven {
  std::string name;                              ///< name of the cluster
  std::string date;                              ///< ISO date of the file
  std::optional<std::int64_t> nodes;             ///< absent: the user's --devices decides
  std::optional<BytesPerSecond> nic_bandwidth;   ///< of each NIC
  std::optional<BytesPerSecond> link_bandwidth;  ///< of one NVLink
  std::optional<BytesPerSecond> pcie_bandwidth;  ///< of a GPU
  /// bandwidth of a GPU to GPUs of other NUMA nodes
  std::optional<BytesPerSecond> socket_bandwidth;
};

/// Returns the node's levels from inner to outer, and the network outside. The device and the
/// efficiency of its kernels are those of `like`. Rates are `given`, else the file's, else the
/// datasheet's for the NVLink or PCIe generation. Every number has its source. Throws InputError
/// for: groups of GPUs that levels cannot describe (a level joins equally many consecutive
/// devices); a rate that nobody states, naming the flag that can; a device of `like` of another
/// generation.
Cluster cluster_from(const Topology& topology, const Cluster& like, const std::string& like_file,
                     const TopologyGiven& given, std::vector<std::string>& notes);

}  // namespace plimsoll
