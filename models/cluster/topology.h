// Topology of a node: how its GPUs and NICs are wired, as `nvidia-smi topo -m` or NCCL's dump
// (NCCL_TOPO_DUMP_FILE) say, and the cluster that follows from it.
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

/// The path between two devices; a smaller value is nearer.
enum class PciPath : std::uint8_t {
  same_switch,  ///< PCIe switches only (PIX, PXB)
  same_host,    ///< host bridges of one NUMA node (PHB, NODE)
  across,       ///< the link between NUMA nodes (SYS)
};

struct TopologyNic {
  std::string name;
  std::optional<BytesPerSecond> speed;  ///< absent: the file does not say
  bool near = false;                    ///< behind a PCIe switch that it shares with a GPU
  bool operator==(const TopologyNic&) const = default;
};

/// One node. Matrices are symmetric, over its GPUs in their order.
struct Topology {
  std::string file;
  std::string kind;                              ///< "nvidia-smi topo -m", "NCCL topology dump"
  std::vector<std::vector<std::int64_t>> links;  ///< NVLinks between two; through a switch: all
  std::vector<std::vector<PciPath>> paths;       ///< beside NVLink
  std::vector<std::int64_t> links_of;            ///< NVLinks of each GPU
  bool switched = false;                         ///< the NVLinks end in NVSwitches
  std::int64_t compute_capability = 0;           ///< 90; 0: the file does not say
  std::optional<BytesPerSecond> pcie;            ///< of the slowest GPU; absent: it does not say
  std::vector<TopologyNic> nics;
  bool operator==(const Topology&) const = default;
};

/// Which of the two by its first character. Throws InputError with line and column.
Topology read_topology(const std::filesystem::path& path);
Topology parse_topology(std::string_view text, const std::string& file);
Topology parse_topology_text(std::string_view text, const std::string& file);
Topology parse_topology_xml(std::string_view text, const std::string& file);

/// Facts that the files do not hold.
struct TopologyGiven {
  std::string name;                                ///< of the cluster
  std::string date;                                ///< of the file, ISO
  std::optional<std::int64_t> nodes;               ///< absent: the user's --devices decides
  std::optional<BytesPerSecond> nic_bandwidth;     ///< of each NIC
  std::optional<BytesPerSecond> link_bandwidth;    ///< of one NVLink
  std::optional<BytesPerSecond> pcie_bandwidth;    ///< of a GPU
  std::optional<BytesPerSecond> socket_bandwidth;  ///< of a GPU to others across NUMA nodes
};

/// The node's levels, inner to outer, and the network outside; device and the efficiency of its
/// kernels are those of `like`. Rates are `given`, else the file's, else of the NVLink or PCIe
/// generation by its datasheet; every number has its source. Throws InputError: groups of GPUs that
/// levels cannot say (levels join equally many consecutive devices), a rate that nobody states
/// (naming the flag that can), a device of `like` of another generation.
Cluster cluster_from(const Topology& topology, const Cluster& like, const std::string& like_file,
                     const TopologyGiven& given, std::vector<std::string>& notes);

}  // namespace plimsoll
