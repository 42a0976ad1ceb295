// Levels of a cluster from the wiring of one node.
#include "interop/hardware/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/json.h"
#include "models/cluster/gpu_generation.h"

namespace plimsoll {
namespace {

/// By the file's compute capability, else by the name of the device; null: neither is known.
const GpuGeneration* generation_of(const Topology& topology, const std::string& device) {
  const GpuGeneration* named = generation_named(device);
  if (topology.compute_capability == 0) return named;
  const GpuGeneration* own = generation_of_capability(topology.compute_capability);
  if (named != nullptr && own != named) {
    throw InputError(topology.file, "",
                     fmt::format("GPUs of compute capability {}.{}; \"{}\" of --device has {}.{}",
                                 topology.compute_capability / 10, topology.compute_capability % 10,
                                 printable(device), named->compute_capability / 10,
                                 named->compute_capability % 10));
  }
  return own;
}

/// The most links of a GPU of any generation.
std::int64_t most_links() {
  std::int64_t most = 0;
  for (const GpuGeneration& generation : gpu_generations()) {
    if (generation.nvlink) most = std::max(most, generation.nvlink->links);
  }
  return most;
}

constexpr const char* kTuning = "NCCL src/graph/tuning.cc, hwLatencies, Ring, Simple";
constexpr const char* kTuningDate = "2025";

/// Builds the cluster level by level.
class LevelBuilder {
 public:
  LevelBuilder(const Topology& topology, const TopologyGiven& given, Cluster& cluster,
               std::vector<std::string>& notes)
      : topology_(topology),
        given_(given),
        cluster_(cluster),
        notes_(notes),
        generation_(generation_of(topology, cluster.device.name)),
        group_(topology.links.size()) {
    for (std::size_t i = 0; i < group_.size(); ++i) group_[i] = i;
  }

  void build() {
    count_links();
    join([&](std::size_t i, std::size_t j) { return topology_.links[i][j] > 0; });
    if (const std::size_t size = block("NVLink")) nvlink(size);
    const auto within = [&](PciPath path) {
      join([&](std::size_t i, std::size_t j) { return topology_.paths[i][j] <= path; });
    };
    within(PciPath::same_switch);
    // A host bridge carries what a switch does, so that a level less changes no rate.
    if (is_uniform()) {
      pcie("PCIe switch", block("PCIe"));
    } else {
      notes_.push_back(
          "PCIe switches join different numbers of GPUs: the file has no level of them");
    }
    within(PciPath::same_host);
    pcie("PCIe", block("PCIe"));
    within(PciPath::across);
    if (const std::size_t size = block("PCIe")) sockets(size);
    network();
  }

 private:
  std::size_t gpus() const { return topology_.links.size(); }

  [[noreturn]] void fail(const std::string& message) const {
    throw InputError(topology_.file, "", message);
  }

  /// Merges the groups of devices that `joined` relates.
  void join(const std::function<bool(std::size_t, std::size_t)>& joined) {
    for (std::size_t i = 0; i < gpus(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (!joined(i, j) || group_[i] == group_[j]) continue;
        const std::size_t low = std::min(group_[i], group_[j]);
        const std::size_t high = std::max(group_[i], group_[j]);
        std::replace(group_.begin(), group_.end(), high, low);
      }
    }
  }

  /// Devices of each group, where all have as many; else 0.
  std::size_t group_size() const {
    const std::size_t size = std::size_t(std::count(group_.begin(), group_.end(), group_[0]));
    for (std::size_t i = 0; i < gpus(); ++i) {
      if (group_[i] != i / size * size) return 0;
    }
    return gpus() % size == 0 ? size : 0;
  }
  bool is_uniform() const { return group_size() > 0; }

  /// The size of the groups, where they became larger than the level inside; else 0.
  std::size_t block(const char* what) {
    const std::size_t size = group_size();
    if (size == 0) {
      fail(fmt::format(
          "{} joins groups of GPUs that are not equally many consecutive ones, as levels "
          "of a cluster are: order them with CUDA_VISIBLE_DEVICES, or write the levels "
          "by hand",
          what));
    }
    if (size <= inner_) return 0;
    inner_ = size;
    return size;
  }

  void add(const std::string& name, std::size_t devices, BytesPerSecond bandwidth, Seconds latency,
           const std::string& document, const std::string& where, const std::string& date) {
    Level level;
    level.name = name;
    level.devices = std::int64_t(devices);
    level.bandwidth = bandwidth;
    level.latency = latency;
    const std::string pointer = fmt::format("/levels/{}", cluster_.levels.size());
    cluster_.sources.push_back({pointer, document, where, date});
    cluster_.sources.push_back({pointer + "/latency", kTuning,
                                name == "NVLink"    ? "NVLINK: 3.4 us"
                                : name == "network" ? "NET: 14 us"
                                                    : "PCI: 5.7 us",
                                kTuningDate});
    cluster_.levels.push_back(std::move(level));
  }

  std::optional<NvlinkFacts> nvlink_facts() const {
    return generation_ == nullptr ? std::nullopt : generation_->nvlink;
  }

  /// The text form prints what a pair has, through a switch as well as direct.
  void count_links() {
    links_of_ = topology_.links_of;
    switched_ = topology_.switched;
    if (!links_of_.empty()) return;
    const std::int64_t most = nvlink_facts() ? nvlink_facts()->links : most_links();
    std::vector<std::int64_t> largest;
    for (const auto& row : topology_.links) {
      std::int64_t sum = 0;
      for (std::int64_t links : row) sum += links;
      switched_ |= sum > most;
      links_of_.push_back(sum);
      largest.push_back(*std::max_element(row.begin(), row.end()));
    }
    if (switched_) links_of_ = largest;
  }

  void nvlink(std::size_t size) {
    const std::int64_t links = *std::min_element(links_of_.begin(), links_of_.end());
    if (links != *std::max_element(links_of_.begin(), links_of_.end())) {
      notes_.push_back(
          fmt::format("some GPUs have more NVLinks than others: {} count for all", links));
    }
    const std::optional<NvlinkFacts> facts = nvlink_facts();
    if (!given_.link_bandwidth && !facts) {
      fail(
          "the generation of these NVLinks is not known: --nvlink-bandwidth says what one carries "
          "in "
          "each direction");
    }
    const BytesPerSecond rate = given_.link_bandwidth ? *given_.link_bandwidth : facts->rate;
    const std::string where =
        fmt::format("{} links of {} per direction{}; number as in {}", links, exact_text(rate),
                    switched_ ? " to switches" : "", file_name());
    add("NVLink", size, rate * double(links), Seconds(3.4e-6),
        given_.link_bandwidth ? "--nvlink-bandwidth" : facts->document, where,
        given_.link_bandwidth ? given_.date : facts->date);
    Level& level = cluster_.levels.back();
    if (switched_) {
      // NVLink SHARP came with the third generation of NVSwitch (H100 whitepaper).
      level.reduces_in_switch = generation_ != nullptr && generation_->compute_capability >= 90;
    } else if (size > 2) {
      std::int64_t all = 0;
      for (const auto& row : topology_.links) {
        for (std::int64_t count : row) all += count;
      }
      const double pairs = double(gpus()) * double(size - 1);
      level.peer_bandwidth = std::min(level.bandwidth, rate * (double(all) / pairs));
    }
  }

  /// The bytes per second that a GPU sends over PCIe, and who says so.
  BytesPerSecond pcie_rate(std::string& document, std::string& where, std::string& date) const {
    date = given_.date;
    if (given_.pcie_bandwidth) {
      document = "--pcie-bandwidth";
      where = "stated by hand";
      return *given_.pcie_bandwidth;
    }
    if (!topology_.pcie) {
      fail("the rate of PCIe is not in the file: --pcie-bandwidth says what a GPU sends");
    }
    document = file_name();
    where = "link_speed and link_width of the GPUs; encoding of the PCI Express Base Specification";
    return *topology_.pcie;
  }

  void pcie(const char* name, std::size_t size) {
    if (size == 0) return;
    std::string document, where, date;
    const BytesPerSecond rate = pcie_rate(document, where, date);
    add(name, size, rate, Seconds(5.7e-6), document, where, date);
  }

  void sockets(std::size_t size) {
    if (!given_.socket_bandwidth) {
      fail(
          "GPUs are connected across NUMA nodes (SYS), at a rate that is not in the file: "
          "--socket-bandwidth says what a GPU sends there");
    }
    add("sockets", size, *given_.socket_bandwidth, Seconds(5.7e-6), "--socket-bandwidth",
        "stated by hand", given_.date);
  }

  void network() {
    if (given_.nodes == 1) return;
    if (topology_.nics.empty()) {
      fail("no NIC is in the file: --nodes 1 for this node alone");
    }
    const bool any_near = std::any_of(topology_.nics.begin(), topology_.nics.end(),
                                      [](const TopologyNic& nic) { return nic.near; });
    double total = 0;
    std::size_t used = 0;
    for (const TopologyNic& nic : topology_.nics) {
      if (any_near && !nic.near) {
        notes_.push_back(
            fmt::format("NIC {} is behind no PCIe switch of a GPU: not counted", nic.name));
        continue;
      }
      const auto speed = given_.nic_bandwidth ? given_.nic_bandwidth : nic.speed;
      if (!speed) {
        fail(
            fmt::format("the rate of NIC {} is not in the file: --nic-bandwidth says what each "
                        "carries",
                        nic.name));
      }
      total += speed->value();
      ++used;
    }
    const BytesPerSecond rate(total / double(gpus()));
    add("network", 0, rate, Seconds(14e-6), given_.nic_bandwidth ? "--nic-bandwidth" : file_name(),
        fmt::format("{} NICs for {} GPUs", used, gpus()), given_.date);
  }

  std::string file_name() const {
    return fmt::format("{}, {}", topology_.kind,
                       printable(std::filesystem::path(topology_.file).filename().string()));
  }

  const Topology& topology_;
  const TopologyGiven& given_;
  Cluster& cluster_;
  std::vector<std::string>& notes_;
  const GpuGeneration* generation_;
  std::vector<std::size_t> group_;  ///< first device of each device's group
  std::size_t inner_ = 1;           ///< devices of the innermost level so far
  std::vector<std::int64_t> links_of_;
  bool switched_ = false;
};

/// Sources of `like` for what is taken from it.
void copy_sources(const Cluster& like, const std::string& file, const std::string& date,
                  const std::string& under, Cluster& cluster) {
  if (!like.source.empty()) {
    cluster.sources.push_back({under, like.source, "stated for all of " + file, date});
    return;
  }
  for (const Source& source : like.sources) {
    if (source.covers == under || source.covers.starts_with(under + "/")) {
      cluster.sources.push_back(source);
    }
  }
}

/// Efficiency of the device's kernels as in `like`; of the levels too, where there are as many.
void copy_efficiency(const Cluster& like, const std::string& file, const std::string& date,
                     Cluster& cluster, std::vector<std::string>& notes) {
  if (!like.efficiency) return;
  cluster.efficiency = like.efficiency;
  copy_sources(like, file, date, "/efficiency", cluster);
  const std::size_t count = cluster.levels.size();
  if (like.levels.size() == count) return;
  notes.push_back(fmt::format("{} has {} levels, not {}: full rates are taken of these", file,
                              like.levels.size(), count));
  cluster.efficiency->levels.assign(count, {});
  auto& sources = cluster.sources;
  sources.erase(std::remove_if(sources.begin(), sources.end(),
                               [](const Source& source) {
                                 return source.covers.starts_with("/efficiency/levels");
                               }),
                sources.end());
  sources.push_back({"/efficiency/levels", "assumed", "full rates; nothing was measured", date});
}

}  // namespace

Cluster cluster_from(const Topology& topology, const Cluster& like, const std::string& like_file,
                     const TopologyGiven& given, std::vector<std::string>& notes) {
  Cluster cluster;
  cluster.name = given.name;
  cluster.nodes = given.nodes;
  cluster.devices_per_node = std::int64_t(topology.links.size());
  cluster.device = like.device;
  const std::string file = std::filesystem::path(topology.file).filename().string();
  const auto source = [&](const char* covers, const std::string& where) {
    cluster.sources.push_back({covers, topology.kind, where, given.date});
  };
  if (given.nodes) cluster.sources.push_back({"/nodes", "--nodes", "stated by hand", given.date});
  source("/devices_per_node", printable(file));
  const std::string like_name = printable(std::filesystem::path(like_file).filename().string());
  copy_sources(like, like_name, given.date, "/device", cluster);
  LevelBuilder(topology, given, cluster, notes).build();
  copy_efficiency(like, like_name, given.date, cluster, notes);
  return cluster;
}

}  // namespace plimsoll
