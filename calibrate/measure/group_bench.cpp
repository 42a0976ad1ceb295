// Groups are made as dp groups or neighbouring stages of grids, and samples are timed on the common
// clock.
#include "calibrate/measure/group_bench.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "calibrate/measure/statistics.h"

namespace plimsoll {

/// A GroupLayout says where the groups of a shape lie: the groups of all spans of nodes at once.
struct GroupLayout {
  Grid grid;
  /// Returns the place of a rank in its group, and nothing where it takes no part.
  std::optional<std::int64_t> index(std::int64_t rank) const {
    const std::int64_t place = rank % per_node;
    if (transfer) {
      const std::int64_t stage = inside ? place : rank / per_node;
      const std::int64_t lane = inside ? place / 2 : place;
      const bool has_peer = stage / 2 * 2 + 1 < grid[Axis::pp];
      if (lane >= at_once || !has_peer) return std::nullopt;
      return stage % 2;
    }
    if (place % grid[Axis::mp] >= at_once) return std::nullopt;
    return grid.coordinates(rank)[std::size_t(Axis::dp)];
  }
  /// The ranks of the group of a rank that takes part, ascending.
  std::vector<std::int64_t> group_of(std::int64_t rank) const {
    if (!transfer) return members(grid, Group{{Axis::dp}}, rank);
    const bool first = *index(rank) == 0;
    const std::int64_t peer = pipeline_peer(grid, rank, first ? 1 : -1);
    return {std::min(rank, peer), std::max(rank, peer)};
  }

  std::int64_t per_node = 1, at_once = 1;  ///< ranks of a node; groups on each
  bool transfer = false, inside = false;
};

namespace {

using Clock = std::chrono::steady_clock;

GroupLayout layout_of(const CollectivePoint& shape, const ClusterShape& cluster) {
  GroupLayout layout;
  layout.per_node = cluster.ranks_per_node;
  layout.at_once = shape.groups_per_node;
  layout.transfer = shape.kind == OpKind::send;
  layout.inside = shape.nodes == 1;
  Grid& grid = layout.grid;
  const auto degree = [&](Axis axis) -> std::int64_t& { return grid.degree[std::size_t(axis)]; };
  if (layout.transfer) {
    if (layout.inside) {  // neighbours within the node are stages
      grid.order = {Axis::mp, Axis::pp, Axis::cp, Axis::sharding, Axis::dp};
      degree(Axis::pp) = cluster.ranks_per_node;
      degree(Axis::dp) = cluster.nodes;
    } else {
      degree(Axis::mp) = cluster.ranks_per_node;
      degree(Axis::pp) = cluster.nodes;
    }
    return layout;
  }
  const std::int64_t members_per_node = shape.ranks / shape.nodes;
  degree(Axis::mp) = cluster.ranks_per_node / members_per_node;
  degree(Axis::dp) = shape.ranks;
  degree(Axis::pp) = cluster.nodes / shape.nodes;
  return layout;
}

/// Returns Programs that name the group of dp, on `streams` streams, or the transfers in both
/// directions between the stages that exchange data. Communicators for these then exist.
std::vector<Program> programs_of(const GroupLayout& layout, std::int64_t streams) {
  std::vector<Program> programs;
  const std::int64_t stages = layout.transfer ? layout.grid[Axis::pp] : 2;
  for (std::int64_t stage = 0; stage + 1 < stages; stage += 2) {
    Program& program = programs.emplace_back();
    program.grid = layout.grid;
    program.stage = stage;
    std::vector<Op>& ops = program.routines.emplace_back().ops;
    for (std::int64_t i = 0; i < (layout.transfer ? 2 : streams); ++i) {
      Op& op = ops.emplace_back();
      op.kind = !layout.transfer ? OpKind::all_reduce : i == 0 ? OpKind::send : OpKind::recv;
      op.stream = i == 0 || layout.transfer ? Stream::compute : Stream::data;
      if (layout.transfer) {
        op.params = TransferParams{1};
      } else {
        op.params = CollectiveParams{Group{{Axis::dp}}};
      }
    }
  }
  return programs;
}

/// The bytes that this process holds in memory.
Bytes resident() {
  std::ifstream file("/proc/self/statm");
  std::int64_t total = 0, resident = 0;
  if (!(file >> total >> resident)) throw EnvironmentError("cannot read /proc/self/statm");
  return Bytes(resident * std::int64_t{sysconf(_SC_PAGE_SIZE)});
}

template <class Value>
std::string bytes_of_values(const std::vector<Value>& values) {
  std::string bytes(values.size() * sizeof(Value), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <class Value>
std::vector<std::vector<Value>> gathered(Processes& processes, const std::vector<Value>& own,
                                         std::chrono::milliseconds deadline) {
  std::vector<std::vector<Value>> all;
  for (const std::string& bytes : processes.gather(bytes_of_values(own), deadline)) {
    std::vector<Value>& values = all.emplace_back(bytes.size() / sizeof(Value));
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  }
  return all;
}

}  // namespace

ClusterShape shape_of(const Processes& processes) {
  const std::vector<std::string>& hosts = processes.hosts();
  ClusterShape shape;
  shape.ranks_per_node = std::count(hosts.begin(), hosts.end(), hosts.front());
  shape.nodes = std::int64_t(hosts.size()) / shape.ranks_per_node;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const std::size_t first = rank - rank % std::size_t(shape.ranks_per_node);
    const auto on_host = std::count(hosts.begin(), hosts.end(), hosts[rank]);
    if (hosts[rank] == hosts[first] && on_host == shape.ranks_per_node) continue;
    throw UsageError(
        fmt::format("host {} runs {} processes, {} runs {}, and process {} is on {}: every host "
                    "must run as many, numbered host by host",
                    hosts.front(), shape.ranks_per_node, hosts[rank], on_host, rank, hosts[rank]));
  }
  return shape;
}

struct GroupBench::Groups {
  GroupLayout layout;
  std::unique_ptr<Processes> part;  ///< null on processes beyond the grid
  std::unique_ptr<Communicator> communicator;
  std::optional<std::int64_t> index;  ///< of this process in its group
};

struct GroupBench::Operand {
  CommOperands operands;
  Groups& groups;
  RankDevice* device;

  /// Freeing a device's memory waits for all of its kernels, and one of a communication that others
  /// never join does not end: where something failed, it is ended first.
  ~Operand() {
    if (device == nullptr || std::uncaught_exceptions() == 0) return;
    if (groups.communicator) groups.communicator->abort("the calibration failed");
  }
};

/// One communication of this rank.
struct GroupBench::Timed {
  std::span<float> data;
  std::vector<Communicator::Ticket> signals;  ///< that line devices up
  Communicator::Ticket ticket = 0;
  /// On hosts, when it was posted, on the common clock. On devices, as long before `begin` as the
  /// signals took, each between its own two events. An event's time since the origin is a float,
  /// which after minutes is exact only to tens of microseconds.
  Picoseconds from;
  /// On hosts, when it was posted and over; on devices, when they were aligned and when it was
  /// over.
  Picoseconds begin, end;
};

GroupBench::GroupBench(Processes& processes, const ClusterShape& cluster, Bytes footprint,
                       std::chrono::milliseconds deadline, RankDevice* device)
    : processes_(processes),
      cluster_(cluster),
      footprint_(footprint),
      deadline_(deadline),
      device_(device) {}

GroupBench::~GroupBench() {
  // Devices are not waited for where something failed.
  if (device_ == nullptr || std::uncaught_exceptions() == 0) return;
  for (const auto& groups : groups_) {
    if (groups->communicator) groups->communicator->abort("the calibration failed");
  }
}

std::unique_ptr<GroupBench::Groups> GroupBench::connected(const CollectivePoint& shape,
                                                          std::int64_t streams) {
  auto groups = std::make_unique<Groups>();
  groups->layout = layout_of(shape, cluster_);
  groups->part = processes_.first(groups->layout.grid.world_size());
  if (groups->part) {
    groups->communicator =
        groups->part->make_communicator(programs_of(groups->layout, streams), deadline_, device_);
    groups->index = groups->layout.index(processes_.index());
  }
  return groups;
}

GroupBench::Groups& GroupBench::groups_for(const CollectivePoint& shape) {
  const GroupLayout layout = layout_of(shape, cluster_);
  const auto same = [&](const auto& groups) {
    return groups->layout.grid == layout.grid && groups->layout.transfer == layout.transfer;
  };
  const auto known = std::find_if(groups_.begin(), groups_.end(), same);
  if (known != groups_.end()) {
    Groups& groups = **known;
    groups.layout = layout;
    if (groups.part) groups.index = layout.index(processes_.index());
    return groups;
  }
  if (device_ == nullptr) groups_.clear();
  return *groups_.emplace_back(connected(shape, 1));
}

std::string GroupBench::library() const {
  for (const auto& groups : groups_) {
    if (groups->communicator) return groups->communicator->library();
  }
  return {};
}

/// Hosts synchronise when operands are written, and when the work beside has run once. Devices are
/// busy writing while the host posts the next communication, so they synchronise before.
void GroupBench::post(const CollectivePoint& point, Operand& operand, std::int64_t i, Timed& timed,
                      RepeatedWork* beside) {
  const std::int64_t index = *operand.groups.index;
  Communicator& communicator = *operand.groups.communicator;
  CommunicationLabel label{0, "calibrate"};
  if (device_ == nullptr) {
    timed.data = operand.operands.produce(i, index);
    if (beside != nullptr) beside->run(1, Seconds(0));
    processes_.barrier(deadline_);
    timed.ticket = post_bench(communicator, point.kind, index, timed.data, label);
    timed.from = time_since(processes_.epoch());
    return;
  }
  if (!signal_) signal_ = allocate_on(*device_, Bytes(sizeof(float)));
  processes_.barrier(deadline_);
  timed.data = operand.operands.produce(i, index);
  label.described = true;
  const std::span<float> signal(reinterpret_cast<float*>(signal_.get()), 1);
  const Bytes bytes(sizeof(float));
  const auto signalled = [&](Communicator::Ticket ticket) {
    timed.signals.push_back(ticket);
    label.after = ticket;
  };
  if (point.kind == OpKind::send) {
    // First to the sender, then to the receiver, which is the last to be ready.
    signalled(communicator.post_transfer(index == 0 ? OpKind::recv : OpKind::send,
                                         index == 0 ? 1 : -1, bytes, signal_.get(), label));
    signalled(post_bench(communicator, point.kind, index, signal, label));
  } else {
    signalled(post_bench(communicator, OpKind::all_reduce, index, signal, label));
  }
  timed.ticket = post_bench(communicator, point.kind, index, timed.data, label);
}

/// Waits, and checks what has arrived.
void GroupBench::finish(const CollectivePoint& point, Operand& operand, Timed& timed) {
  const std::int64_t index = *operand.groups.index;
  Communicator& communicator = *operand.groups.communicator;
  Picoseconds lined_up;
  for (const Communicator::Ticket signal : timed.signals) {
    const CommunicationTimes times = communicator.wait(signal);
    lined_up += times.end - times.begin;
  }
  const CommunicationTimes times = communicator.wait(timed.ticket);
  timed.begin = device_ == nullptr ? times.posted : times.begin;
  if (device_ != nullptr) timed.from = timed.begin - lined_up;
  timed.end = times.end;
  if (!operand.operands.has_arrived(point.kind, index, point.ranks, timed.data)) {
    throw EnvironmentError(
        fmt::format("process {} on {} got wrong data from {} of {} over {} ranks",
                    processes_.index(), processes_.hosts()[std::size_t(processes_.index())],
                    to_text(point.kind), to_text(point.payload), point.ranks));
  }
}

namespace {

/// The time of one sample on a common clock, from the last begin to the last end.
Picoseconds time_on_one_clock(std::span<const std::pair<std::int64_t, std::int64_t>> ranks) {
  std::int64_t begin = 0, end = 0;
  for (const auto& [own_begin, own_end] : ranks) {
    begin = std::max(begin, own_begin);
    end = std::max(end, own_end);
  }
  return Picoseconds(end - begin);
}

/// Returns the time of one sample of devices that were aligned.
Picoseconds time_on_own_clocks(bool transfer,
                               std::span<const std::pair<std::int64_t, std::int64_t>> ranks) {
  std::vector<std::int64_t> times;
  for (const auto& [begin, end] : ranks) times.push_back(end - begin);
  if (transfer) return Picoseconds(times.back());
  std::sort(times.begin(), times.end());
  return Picoseconds(times[times.size() / 2]);
}

/// Turns begins and ends of each sample, by rank, into times by group.
std::vector<GroupTimings> by_group(const GroupLayout& layout, std::int64_t ranks, bool devices,
                                   const std::vector<std::vector<std::int64_t>>& all) {
  std::vector<GroupTimings> groups;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    if (!layout.index(rank)) continue;
    GroupTimings group;
    group.ranks = layout.group_of(rank);
    if (group.ranks.front() != rank) continue;
    for (std::size_t i = 0; i + 1 < all[std::size_t(rank)].size(); i += 2) {
      std::vector<std::pair<std::int64_t, std::int64_t>> times;
      for (std::int64_t member : group.ranks) {
        times.emplace_back(all[std::size_t(member)][i], all[std::size_t(member)][i + 1]);
      }
      const Picoseconds time =
          devices ? time_on_own_clocks(layout.transfer, times) : time_on_one_clock(times);
      // Clocks of hosts differ a little.
      group.timings.push_back(std::max(time, Picoseconds(1000)).seconds());
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace

std::vector<GroupTimings> GroupBench::measure(const CollectivePoint& point, std::int64_t samples) {
  constexpr std::int64_t kWarmUp = 2;
  Groups& groups = groups_for(point);
  std::vector<std::int64_t> own;
  std::optional<Operand> operand;
  if (groups.index) {
    operand.emplace(CommOperands(point.payload, footprint_, device_), groups, device_);
  }
  for (std::int64_t i = 0; i < kWarmUp + samples; ++i) {
    if (!operand) {
      processes_.barrier(deadline_);
      continue;
    }
    Timed timed;
    post(point, *operand, i, timed);
    finish(point, *operand, timed);
    if (i < kWarmUp) continue;
    own.push_back(timed.begin.count());
    own.push_back(timed.end.count());
  }
  const auto all = gathered(processes_, own, deadline_);
  if (processes_.index() != 0) return {};
  return by_group(groups.layout, groups.layout.grid.world_size(), device_ != nullptr, all);
}

namespace {

/// Returns how long runs beside the communication took, relative to a run alone. For a short
/// communication it is the run in which the communication ended. It returns nothing where there was
/// no such run.
std::optional<double> slowdown_beside(const std::vector<RepeatedWork::Run>& runs, Picoseconds begin,
                                      Picoseconds end, Seconds alone) {
  Seconds sum;
  std::int64_t count = 0;
  std::optional<Seconds> last;
  for (const RepeatedWork::Run& run : runs) {
    const Picoseconds over = run.begin + to_picoseconds(run.taken);
    if (over <= begin) continue;
    if (run.begin >= end) break;
    last = run.taken;
    if (run.begin < begin || over > end) continue;
    sum += run.taken;
    ++count;
  }
  if (count > 0) return sum / double(count) / alone;
  if (last) return *last / alone;
  return std::nullopt;
}

}  // namespace

OverlapTimings GroupBench::measure_overlap(const CollectivePoint& point, RepeatedWork& work,
                                           std::int64_t samples) {
  constexpr std::int64_t kWarmUp = 1, kRunsAlone = 32;
  // Measurements alone and beside lie close together in time.
  std::vector<GroupTimings> alone = measure(point, samples);
  std::vector<Seconds> timings;
  for (const GroupTimings& group : alone) {
    timings.insert(timings.end(), group.timings.begin(), group.timings.end());
  }
  double median = processes_.index() == 0 ? quantile(timings, 0.5).value() : 0;
  const std::string shared =
      processes_.broadcast(bytes_of_values(std::vector<double>{median}), deadline_);
  std::memcpy(&median, shared.data(), sizeof(median));
  // Beside ops it takes longer, by how much is not known yet.
  const Seconds horizon = Seconds(4 * median) + Seconds(2e-3);

  Groups& groups = groups_for(point);
  std::optional<Operand> operand;
  if (groups.index) {
    operand.emplace(CommOperands(point.payload, footprint_, device_), groups, device_);
  }
  work.run(1, Seconds(0));
  const Seconds work_alone = quantile(times_of(work.run(kRunsAlone, Seconds(0))), 0.5);
  std::vector<std::int64_t> own;
  std::vector<double> slowdowns;
  for (std::int64_t i = 0; i < kWarmUp + samples; ++i) {
    if (!operand) {
      processes_.barrier(deadline_);
      continue;
    }
    Timed timed;
    post(point, *operand, i, timed, &work);
    const std::vector<RepeatedWork::Run> beside = work.run(1, horizon);
    finish(point, *operand, timed);
    if (i < kWarmUp) continue;
    own.push_back(timed.begin.count());
    own.push_back(timed.end.count());
    const Picoseconds begin = std::max(timed.begin - timed.from, Picoseconds(0));
    const auto slowdown = slowdown_beside(beside, begin, timed.end - timed.from, work_alone);
    if (slowdown) slowdowns.push_back(*slowdown);
  }
  const auto all = gathered(processes_, own, deadline_);
  const auto all_slowdowns = gathered(processes_, slowdowns, deadline_);
  OverlapTimings result;
  if (processes_.index() != 0) return result;
  for (const GroupTimings& group :
       by_group(groups.layout, groups.layout.grid.world_size(), device_ != nullptr, all)) {
    for (Seconds time : group.timings)
      result.communication_slowdowns.push_back(time.value() / median);
  }
  for (const auto& of_rank : all_slowdowns) {
    result.compute_slowdowns.insert(result.compute_slowdowns.end(), of_rank.begin(), of_rank.end());
  }
  return result;
}

Bytes GroupBench::memory_taken() const {
  return device_ == nullptr ? resident() : device_->memory_used();
}

std::vector<Bytes> GroupBench::measure_memory(const CollectivePoint& shape) {
  CollectivePoint point = shape;
  point.payload = Bytes(shape.ranks * std::int64_t(sizeof(float)));
  if (device_ == nullptr) groups_.clear();
  // On hosts the first communicator is measured, on devices the second of two.
  std::unique_ptr<Groups> groups;
  std::optional<Operand> operand;
  std::vector<std::int64_t> own;
  Bytes before = memory_taken();
  groups = connected(point, device_ == nullptr ? 1 : 2);
  if (groups->index) {
    operand.emplace(CommOperands(point.payload, point.payload, device_), *groups, device_);
  }
  const auto use = [&](Stream stream) {
    processes_.barrier(deadline_);
    if (!operand) return;
    CommunicationLabel label{0, "calibrate"};
    label.stream = stream;
    label.described = device_ != nullptr;
    Communicator& communicator = *groups->communicator;
    const auto data = operand->operands.produce(0, *groups->index);
    communicator.wait(post_bench(communicator, point.kind, *groups->index, data, label));
  };
  use(Stream::compute);
  if (device_ != nullptr) {
    processes_.barrier(deadline_);
    before = memory_taken();
    use(Stream::data);
  }
  if (operand) own.push_back(std::max((memory_taken() - before).count(), std::int64_t{0}));
  std::vector<Bytes> grown;
  for (const auto& of_rank : gathered(processes_, own, deadline_)) {
    for (std::int64_t bytes : of_rank) grown.push_back(Bytes(bytes));
  }
  return grown;
}

}  // namespace plimsoll
