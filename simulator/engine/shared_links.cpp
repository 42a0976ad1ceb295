// Keeps the speeds of flows: recomputes those that a begin or an end can change, once an instant.
#include "simulator/engine/shared_links.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace plimsoll {
namespace {

/// Returns left / speed, rounded up. Amounts are mostly small, and divisions of 128 bits are slow.
template <class Amount>
std::int64_t rounded_up(Amount left, std::int64_t speed) {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max() - kFullSpeed;
  if (left > kMost) return std::int64_t((left + speed - 1) / speed);
  const std::int64_t small = std::int64_t(left) + speed - 1;
  return speed == kFullSpeed ? small / kFullSpeed : small / speed;
}

}  // namespace

void SharedLinks::begin(std::uint32_t communication, Picoseconds time, Picoseconds work,
                        std::span<const std::uint32_t> links) {
  if (free_.empty()) {
    free_.push_back(std::uint32_t(flows_.size()));
    flows_.emplace_back();
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  Flow& flow = flows_[index];
  flow.left = Amount(work.count()) * kFullSpeed;
  flow.speed = 0;
  flow.communication = communication;
  flow.links = links;
  push(index, std::max(time, now_));
}

std::optional<SharedLinks::End> SharedLinks::next() {
  while (true) {
    // A speed that lasts no time does not matter: one sharing for all that happens at an instant.
    if (!changed_.empty() && (heap_.empty() || heap_.front().time > now_)) share();
    if (heap_.empty()) return std::nullopt;
    const Event event = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end(),
                  [](const Event& a, const Event& b) { return a.time > b.time; });
    heap_.pop_back();
    const Flow& flow = flows_[event.flow];
    if (event.version != flow.version) continue;  // its speed has changed since
    now_ = event.time;
    if (flow.speed == 0) {
      enter(event.flow);
      continue;
    }
    leave(event.flow);
    return End{flow.communication, now_};
  }
}

/// Sets when the flow begins or ends. Earlier events of the flow no longer count.
void SharedLinks::push(std::uint32_t flow, Picoseconds time) {
  heap_.push_back({time, flow, ++flows_[flow].version});
  std::push_heap(heap_.begin(), heap_.end(),
                 [](const Event& a, const Event& b) { return a.time > b.time; });
}

void SharedLinks::enter(std::uint32_t index) {
  flows_[index].since = now_;
  for (const std::uint32_t link : flows_[index].links) {
    links_[link].flows.push_back(index);
    mark_changed(link);
  }
}

void SharedLinks::leave(std::uint32_t index) {
  for (const std::uint32_t number : flows_[index].links) {
    Link& link = links_[number];
    *std::find(link.flows.begin(), link.flows.end(), index) = link.flows.back();
    link.flows.pop_back();
    mark_changed(number);
  }
  free_.push_back(index);
}

void SharedLinks::mark_changed(std::uint32_t link) {
  if (!std::exchange(links_[link].changed, true)) changed_.push_back(link);
}

void SharedLinks::set_speed(std::uint32_t index, std::int64_t speed) {
  Flow& flow = flows_[index];
  if (flow.speed == speed) return;
  flow.left -= Amount((now_ - flow.since).count()) * flow.speed;
  flow.since = now_;
  flow.speed = speed;
  push(index, now_ + Picoseconds(flow.left > 0 ? rounded_up(flow.left, speed) : 0));
}

/// Finds the links and flows that depend on the links that changed.
void SharedLinks::find_component() {
  component_links_.clear();
  component_flows_.clear();
  const auto add_link = [&](std::uint32_t number) {
    if (!std::exchange(links_[number].seen, true)) component_links_.push_back(number);
  };
  for (const std::uint32_t link : changed_) add_link(link);
  for (std::size_t i = 0; i < component_links_.size(); ++i) {
    Link& link = links_[component_links_[i]];
    link.room = kFullSpeed;
    link.unshared = std::int64_t(link.flows.size());
    for (const std::uint32_t flow : link.flows) {
      if (std::exchange(flows_[flow].seen, true)) continue;
      flows_[flow].next_speed = 0;
      component_flows_.push_back(flow);
      for (const std::uint32_t other : flows_[flow].links) add_link(other);
    }
  }
  for (const std::uint32_t link : component_links_) links_[link].seen = false;
  for (const std::uint32_t flow : component_flows_) flows_[flow].seen = false;
}

/// Shares the links that changed, and everything that depends on them, anew.
void SharedLinks::share() {
  find_component();
  for (std::size_t shared = 0; shared < component_flows_.size();) {
    std::int64_t least = kFullSpeed;
    for (const std::uint32_t number : component_links_) {
      const Link& link = links_[number];
      if (link.unshared > 0) least = std::min(least, link.room / link.unshared);
    }
    // Takes all links that are full now at once, as the order among them must not matter.
    full_.clear();
    for (const std::uint32_t number : component_links_) {
      Link& link = links_[number];
      if (link.unshared == 0 || link.room / link.unshared != least) continue;
      full_.push_back(number);
    }
    for (const std::uint32_t link : full_) {
      for (const std::uint32_t flow : links_[link].flows) {
        if (flows_[flow].next_speed != 0) continue;
        flows_[flow].next_speed = std::max<std::int64_t>(1, least);
        ++shared;
        for (const std::uint32_t other : flows_[flow].links) {
          links_[other].room -= least;
          --links_[other].unshared;
        }
      }
    }
  }
  for (const std::uint32_t flow : component_flows_) set_speed(flow, flows_[flow].next_speed);
  for (const std::uint32_t link : changed_) links_[link].changed = false;
  changed_.clear();
}

}  // namespace plimsoll
