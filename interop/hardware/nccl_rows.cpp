// Ranks of a run from its list of devices; rows held against what nccl-tests computes.
#include "interop/hardware/nccl_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/json.h"
#include "models/calibration/limits.h"

namespace plimsoll {
namespace {

/// The collectives that nccl-tests measures. `bus(n)`: bytes on the busiest link over the size
/// printed (doc/PERFORMANCE.md); `total`: the size printed is that of all ranks, the count that of
/// one.
struct Collective {
  std::string_view name;
  double (*bus)(double n);
  bool total = false;
};

double whole(double) { return 1; }
double part(double n) { return (n - 1) / n; }
double both_rounds(double n) { return 2 * (n - 1) / n; }

constexpr std::array<Collective, 10> kCollectives = {{{"all_reduce", both_rounds},
                                                      {"all_gather", part, true},
                                                      {"reduce_scatter", part, true},
                                                      {"broadcast", whole},
                                                      {"reduce", whole},
                                                      {"sendrecv", whole},
                                                      {"alltoall", part, true},
                                                      {"gather", part, true},
                                                      {"scatter", part, true},
                                                      {"hypercube", nullptr, true}}};
constexpr auto kNames = [] {
  std::array<std::string_view, kCollectives.size()> names;
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = kCollectives[i].name;
  return names;
}();

const Collective* find(std::string_view name) {
  const auto found = std::find_if(kCollectives.begin(), kCollectives.end(),
                                  [&](const Collective& one) { return one.name == name; });
  return found == kCollectives.end() ? nullptr : &*found;
}

/// Bytes of an element by the name that nccl-tests (and RCCL's) print; 0: not known.
std::int64_t bytes_of(std::string_view dtype) {
  static const std::map<std::string_view, std::int64_t> kBytes = {
      {"int8", 1},   {"uint8", 1},  {"char", 1},     {"int32", 4},   {"uint32", 4}, {"int", 4},
      {"int64", 8},  {"uint64", 8}, {"half", 2},     {"float", 4},   {"double", 8}, {"bfloat16", 2},
      {"f8e4m3", 1}, {"f8e5m2", 1}, {"fp8_e4m3", 1}, {"fp8_e5m2", 1}};
  const auto found = kBytes.find(dtype);
  return found == kBytes.end() ? 0 : found->second;
}

using Devices = std::map<std::int64_t, const NcclDevice*>;

/// The list by rank, one entry for each process or rank that it names.
Devices by_rank(const NcclRun& run, const NcclDevices& list) {
  Devices result;
  for (const NcclDevice& device : list.devices) {
    if (device.rank < 0 || device.rank >= kMostRanksOfPoint) {
      throw InputError(run.file, device.where,
                       fmt::format("found rank {}; from 0 to {} is allowed", device.rank,
                                   kMostRanksOfPoint - 1));
    }
    if (!result.emplace(device.rank, &device).second) {
      throw InputError(
          run.file, device.where,
          fmt::format("rank {} is there twice: programs that did not know of each other "
                      "(nccl-tests built without MPI=1, or the output of two runs mixed)",
                      device.rank));
    }
    if (!device.name.empty() && device.name != run.device && !run.device.empty()) {
      throw InputError(run.file, device.where,
                       fmt::format("found devices \"{}\" and \"{}\"; a calibration is of one "
                                   "kind of device",
                                   printable(device.name), printable(run.device)));
    }
  }
  return result;
}

/// The ranks of one communicator on each host.
using RanksByHost = std::map<std::string, std::int64_t>;

/// Returns how many ranks a device of the list stands for.
std::int64_t ranks_of_device(const NcclDevices& list) {
  return list.partial && list.per_process > 0 ? list.per_process : 1;
}

/// Returns the first rank of the list behind which ranks are missing; null: none are.
const NcclDevice* behind_gap(const NcclDevices& list, const Devices& ranks, std::int64_t& missing) {
  const std::int64_t step = ranks_of_device(list);
  missing = 0;
  for (const auto& [rank, device] : ranks) {
    if (step > 1 && rank % step != 0) continue;  // further devices of a process counted whole
    if (rank != missing) return device;
    missing = rank + step;
  }
  return nullptr;
}

RanksByHost members(const NcclDevices& list, const Devices& ranks, std::int64_t group,
                    std::set<std::int64_t>& groups_beside) {
  const std::int64_t step = ranks_of_device(list);
  RanksByHost hosts;
  for (const auto& [rank, device] : ranks) {
    if (rank % step == 0 && device->group == group) hosts[device->host] += step;
  }
  const std::string& first = ranks.begin()->second->host;
  for (const auto& [rank, device] : ranks) {
    if (device->host == first) groups_beside.insert(device->group);
  }
  return hosts;
}

void place_given(NcclRun& run, const NcclGiven& given) {
  run.ranks = given.ranks;
  const std::int64_t each = given.ranks_per_node == 0 ? given.ranks : given.ranks_per_node;
  if (given.ranks % each != 0) {
    throw UsageError(
        fmt::format("--ranks-per-node {} does not divide --ranks {}", each, given.ranks));
  }
  run.nodes = given.ranks / each;
}

}  // namespace

void place_ranks(NcclRun& run, const NcclDevices& list, const NcclGiven& given) {
  for (const NcclDevice& device : list.devices) {
    if (run.device.empty()) run.device = printable(device.name, 200);
  }
  if (list.devices.empty()) {
    if (given.ranks == 0) {
      throw InputError(run.file, run.where,
                       "no list of devices (\"Using devices\", \"Rank 0 ...\"); --ranks and "
                       "--ranks-per-node can stand for it");
    }
    return place_given(run, given);
  }
  const Devices ranks = by_rank(run, list);
  std::int64_t next = 0;
  const NcclDevice* cut = behind_gap(list, ranks, next);
  if (given.ranks > 0 && (cut != nullptr || next < given.ranks)) return place_given(run, given);
  if (cut != nullptr) {
    throw InputError(run.file, cut->where,
                     fmt::format("found rank {} where rank {} is missing: the list is cut; --ranks "
                                 "and --ranks-per-node can stand for it",
                                 cut->rank, next));
  }
  std::set<std::int64_t> groups;
  const RanksByHost hosts = members(list, ranks, list.devices.front().group, groups);
  run.groups = std::int64_t(groups.size());
  run.nodes = std::int64_t(hosts.size());
  run.ranks = 0;
  for (const auto& [host, count] : hosts) {
    run.ranks += count;
    if (count != hosts.begin()->second) {
      throw InputError(run.file, list.devices.front().where,
                       fmt::format("{} ranks on host \"{}\" and {} on \"{}\"; a group shape has as "
                                   "many on each; --ranks stands for a list that is cut",
                                   count, printable(host), hosts.begin()->second,
                                   printable(hosts.begin()->first)));
    }
  }
  if (run.ranks < 2) {
    throw InputError(run.file, list.devices.front().where,
                     "one rank, which communicates with nobody: nccl-tests built without MPI=1, "
                     "or started without -g");
  }
  if (given.ranks > 0 && given.ranks != run.ranks) {
    throw InputError(
        run.file, list.devices.front().where,
        fmt::format("the list has {} ranks; --ranks {} says otherwise", run.ranks, given.ranks));
  }
}

void check_size(const NcclRun& run, const NcclRow& row) {
  const Collective& collective = *find(run.collective);
  const std::int64_t bytes = bytes_of(row.dtype);
  if (bytes == 0 || collective.bus == nullptr) return;
  const __int128 size =
      static_cast<__int128>(row.count) * bytes * (collective.total ? run.ranks : 1);
  if (size == row.size.count()) return;
  throw InputError(
      run.file, row.where,
      fmt::format("found size {} B; {} elements of type {}{} do not make it", row.size.count(),
                  row.count, printable(row.dtype),
                  collective.total ? fmt::format(" for each of {} ranks", run.ranks) : ""));
}

void check_bandwidth(const NcclRun& run, const NcclRow& row, const NcclTiming& timing,
                     const NcclRounding& rounding) {
  const Collective& collective = *find(run.collective);
  if (collective.bus == nullptr) return;
  const double moved = double(row.size.count()) * collective.bus(double(run.ranks)) / 1e9;
  const double slack = 1.001;
  const double time = timing.time.value(), half = rounding.time_us * 1e-6;
  const double least = moved / (time + half) / slack - rounding.bus_bandwidth;
  const double most =
      time > half ? moved / (time - half) * slack + rounding.bus_bandwidth : INFINITY;
  if (timing.bus_bandwidth >= least && timing.bus_bandwidth <= most) return;
  throw InputError(
      run.file, row.where,
      fmt::format("found a bus bandwidth of {} GB/s; {} of {} B over {} ranks in {} us "
                  "has {:.4g}; --ranks stands for a list of devices that is cut",
                  timing.bus_bandwidth, run.collective, row.size.count(), run.ranks, time * 1e6,
                  moved / time));
}

std::optional<std::string> nccl_collective(std::string_view program) {
  const std::size_t slash = program.find_last_of('/');
  if (slash != program.npos) program.remove_prefix(slash + 1);
  constexpr std::string_view kEnd = "_perf";
  // Builds add to the name: "all_reduce_perf_mpi".
  if (const std::size_t end = program.find(kEnd); end != program.npos) {
    program = program.substr(0, end);
  }
  const auto letters = [](std::string_view text) {
    std::string result;
    for (char c : text) {
      if (c != '_') result += char(std::tolower(static_cast<unsigned char>(c)));
    }
    return result;
  };
  for (std::string_view name : kNames) {
    if (letters(name) == letters(program)) return std::string(name);
  }
  return std::nullopt;
}

std::span<const std::string_view> nccl_collectives() { return kNames; }

std::string nccl_version(std::int64_t code) {
  // From 2.9 on with two digits for the minor version.
  if (code < 10'000) return fmt::format("{}.{}.{}", code / 1000, code / 100 % 10, code % 100);
  return fmt::format("{}.{}.{}", code / 10'000, code / 100 % 100, code % 100);
}

}  // namespace plimsoll
