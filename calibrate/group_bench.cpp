// Grids whose dp groups, or neighbouring stages, lie as asked for; samples on the common clock.
#include "calibrate/group_bench.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "calibrate/comm_operands.h"
#include "calibrate/statistics.h"
#include "graph/op_table.h"

namespace plimsoll {
namespace {

using Clock = std::chrono::steady_clock;

/// Where the groups of a shape lie: those of all spans of nodes at once.
struct Layout {
  Grid grid;
  /// Whether a rank takes part, with which place in its group.
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
  /// Of a rank that takes part: the group's ranks, ascending.
  std::vector<std::int64_t> group_of(std::int64_t rank) const {
    if (!transfer) return members(grid, Group{{Axis::dp}, false}, rank);
    const bool first = *index(rank) == 0;
    const std::int64_t peer = pipeline_peer(grid, rank, first ? 1 : -1);
    return {std::min(rank, peer), std::max(rank, peer)};
  }

  std::int64_t per_node = 1, at_once = 1;  ///< ranks of a node; groups on each
  bool transfer = false, inside = false;
};

Layout layout_of(const CollectivePoint& shape, const ClusterShape& cluster) {
  Layout layout;
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

/// Names the group of dp, so that the communicator has it.
Program program_of(const Grid& grid) {
  Program program;
  program.grid = grid;
  Routine& routine = program.routines.emplace_back();
  Op& op = routine.ops.emplace_back();
  op.kind = OpKind::all_reduce;
  op.params = CollectiveParams{Group{{Axis::dp}, false}};
  return program;
}

/// What this process holds in memory.
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
  Layout layout;
  std::unique_ptr<Processes> part;  ///< null on processes beyond the grid
  std::unique_ptr<Communicator> communicator;
  std::optional<std::int64_t> index;  ///< of this process in its group
};

struct GroupBench::Operand {
  CommOperands operands;
  Groups& groups;
};

GroupBench::GroupBench(Processes& processes, const ClusterShape& cluster, Bytes footprint,
                       std::chrono::milliseconds deadline)
    : processes_(processes), cluster_(cluster), footprint_(footprint), deadline_(deadline) {}

GroupBench::~GroupBench() { leave_groups(); }

void GroupBench::leave_groups() {
  if (!groups_) return;
  groups_->communicator.reset();
  groups_.reset();
}

GroupBench::Groups& GroupBench::groups_for(const CollectivePoint& shape) {
  Layout layout = layout_of(shape, cluster_);
  if (groups_ && groups_->layout.grid == layout.grid) {
    groups_->layout = layout;
  } else {
    leave_groups();
    groups_ = std::make_unique<Groups>();
    groups_->layout = layout;
    groups_->part = processes_.first(layout.grid.world_size());
    const std::vector<Program> programs = {program_of(layout.grid)};
    if (groups_->part) {
      groups_->communicator = groups_->part->make_communicator(programs, deadline_, nullptr);
    }
  }
  groups_->index.reset();
  if (groups_->part) groups_->index = layout.index(processes_.index());
  return *groups_;
}

CommunicationTimes GroupBench::communicate(const CollectivePoint& point, Operand& operand,
                                           std::int64_t i) {
  const std::int64_t index = *operand.groups.index;
  const std::span<float> data = operand.operands.produce(i, index);
  processes_.meet(deadline_);
  Communicator& communicator = *operand.groups.communicator;
  const CommunicationTimes times =
      communicator.wait(post_bench(communicator, point.kind, index, data));
  if (!arrived(point.kind, index, point.ranks, data)) {
    throw EnvironmentError(
        fmt::format("process {} on {} got wrong data from {} of {} over {} ranks",
                    processes_.index(), processes_.hosts()[std::size_t(processes_.index())],
                    to_text(point.kind), to_text(point.payload), point.ranks));
  }
  return times;
}

namespace {

/// posted and end of each sample, by rank: from the last post to the last end, by group.
std::vector<GroupTimings> by_group(const Layout& layout, std::int64_t ranks,
                                   const std::vector<std::vector<std::int64_t>>& all) {
  std::vector<GroupTimings> groups;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    if (!layout.index(rank)) continue;
    GroupTimings group;
    group.ranks = layout.group_of(rank);
    if (group.ranks.front() != rank) continue;
    for (std::size_t i = 0; i + 1 < all[std::size_t(rank)].size(); i += 2) {
      std::int64_t begin = 0, end = 0;
      for (std::int64_t member : group.ranks) {
        begin = std::max(begin, all[std::size_t(member)][i]);
        end = std::max(end, all[std::size_t(member)][i + 1]);
      }
      // Clocks of hosts differ a little.
      group.timings.push_back(Picoseconds(std::max(end - begin, std::int64_t{1000})).seconds());
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
  if (groups.index) operand.emplace(CommOperands(point.payload, footprint_), groups);
  for (std::int64_t i = 0; i < kWarmUp + samples; ++i) {
    if (!operand) {
      processes_.meet(deadline_);
      continue;
    }
    const CommunicationTimes times = communicate(point, *operand, i);
    if (i < kWarmUp) continue;
    own.push_back(times.posted.count());
    own.push_back(times.end.count());
  }
  const auto all = gathered(processes_, own, deadline_);
  if (processes_.index() != 0) return {};
  return by_group(groups.layout, groups.layout.grid.world_size(), all);
}

OverlapTimings GroupBench::measure_overlap(const CollectivePoint& point, const TimedWork& work,
                                           std::int64_t samples) {
  constexpr std::int64_t kWarmUp = 1, kRunsAlone = 32;
  // What is measured alone and beside lies close together in time.
  std::vector<GroupTimings> alone = measure(point, samples);
  std::vector<Seconds> timings;
  for (const GroupTimings& group : alone) {
    timings.insert(timings.end(), group.timings.begin(), group.timings.end());
  }
  double median = processes_.index() == 0 ? quantile(timings, 0.5).value() : 0;
  const std::string shared =
      processes_.share(bytes_of_values(std::vector<double>{median}), deadline_);
  std::memcpy(&median, shared.data(), sizeof(median));
  // Beside ops it takes longer, by how much is not known yet.
  const Seconds horizon = Seconds(4 * median) + Seconds(2e-3);

  Groups& groups = groups_for(point);
  std::optional<Operand> operand;
  if (groups.index) operand.emplace(CommOperands(point.payload, footprint_), groups);
  std::int64_t run = 0;
  std::vector<Seconds> runs;
  for (std::int64_t i = 0; i < kRunsAlone; ++i) runs.push_back(work(run++));
  const Seconds work_alone = quantile(runs, 0.5);
  std::vector<std::int64_t> times_of;
  std::vector<double> slowdowns;
  for (std::int64_t i = 0; i < kWarmUp + samples; ++i) {
    if (!operand) {
      processes_.meet(deadline_);
      continue;
    }
    const std::int64_t index = *groups.index;
    const std::span<float> data = operand->operands.produce(i, index);
    work(run++);
    processes_.meet(deadline_);
    const auto now = [&] {
      const auto since = Clock::now() - processes_.epoch();
      return Picoseconds(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count() *
                         1000);
    };
    const auto ticket = post_bench(*groups.communicator, point.kind, index, data);
    const Picoseconds posted = now();
    std::vector<std::pair<Picoseconds, Seconds>> beside;  // begin, taken
    while ((now() - posted).seconds() < horizon) {
      const Picoseconds begin = now();
      beside.emplace_back(begin, work(run++));
    }
    const CommunicationTimes times = groups.communicator->wait(ticket);
    if (i < kWarmUp) continue;
    times_of.push_back(times.posted.count());
    times_of.push_back(times.end.count());
    // Runs that were over when the communication was; of a short one, that in which it ended.
    Seconds sum;
    std::int64_t count = 0;
    for (const auto& [begin, taken] : beside) {
      if (begin >= times.end || (count > 0 && begin + to_picoseconds(taken) > times.end)) break;
      sum += taken;
      ++count;
    }
    if (count > 0) slowdowns.push_back(sum / double(count) / work_alone);
  }
  const auto all = gathered(processes_, times_of, deadline_);
  const auto all_slowdowns = gathered(processes_, slowdowns, deadline_);
  OverlapTimings result;
  if (processes_.index() != 0) return result;
  for (const GroupTimings& group : by_group(groups.layout, groups.layout.grid.world_size(), all)) {
    for (Seconds time : group.timings)
      result.communication_slowdowns.push_back(time.value() / median);
  }
  for (const auto& of_rank : all_slowdowns) {
    result.compute_slowdowns.insert(result.compute_slowdowns.end(), of_rank.begin(), of_rank.end());
  }
  return result;
}

std::vector<Bytes> GroupBench::measure_memory(const CollectivePoint& shape) {
  leave_groups();
  CollectivePoint point = shape;
  point.payload = Bytes(shape.ranks * std::int64_t(sizeof(float)));
  const Bytes before = resident();
  Groups& groups = groups_for(point);
  std::vector<std::int64_t> own;
  if (groups.index) {
    Operand operand{CommOperands(point.payload, point.payload), groups};
    communicate(point, operand, 0);
    own.push_back(std::max((resident() - before).count(), std::int64_t{0}));
  } else {
    processes_.meet(deadline_);
  }
  std::vector<Bytes> grown;
  for (const auto& of_rank : gathered(processes_, own, deadline_)) {
    for (std::int64_t bytes : of_rank) grown.push_back(Bytes(bytes));
  }
  return grown;
}

}  // namespace plimsoll
