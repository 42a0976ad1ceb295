#include "simulator/shared_links.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "simulator/engine.h"

namespace plimsoll {

void SharedLinks::begin(std::uint32_t communication, Picoseconds time, Picoseconds work,
                        std::span<const std::uint32_t> links) {
  INVARIANT(time >= now_, "a communication that begins before what is known to have ended");
  Flow& flow = flows_[communication];
  flow.left = Amount(work.count()) * kFullSpeed;
  flow.links = links;
  push({time, false, communication, 0});
}

std::optional<SharedLinks::End> SharedLinks::next() {
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end());
    const Event event = heap_.back();
    heap_.pop_back();
    if (event.version != flows_[event.flow].version) continue;  // its speed has changed since
    now_ = event.time;
    if (event.ends) {
      leave(event.flow);
      return End{event.flow, now_};
    }
    enter(event.flow);
  }
  return std::nullopt;
}

void SharedLinks::push(const Event& event) {
  heap_.push_back(event);
  std::push_heap(heap_.begin(), heap_.end());
}

bool SharedLinks::alone(const Flow& flow) const {
  return std::all_of(flow.links.begin(), flow.links.end(),
                     [&](std::uint32_t link) { return active_[link].size() <= 1; });
}

void SharedLinks::enter(std::uint32_t flow) {
  flows_[flow].since = now_;
  for (std::uint32_t link : flows_[flow].links) active_[link].push_back(flow);
  if (alone(flows_[flow])) return set_speed(flow, kFullSpeed);
  share(flows_[flow].links);
}

void SharedLinks::leave(std::uint32_t flow) {
  const bool was_alone = alone(flows_[flow]);
  for (std::uint32_t link : flows_[flow].links) {
    std::vector<std::uint32_t>& active = active_[link];
    *std::find(active.begin(), active.end(), flow) = active.back();
    active.pop_back();
  }
  if (!was_alone) share(flows_[flow].links);
}

void SharedLinks::set_speed(std::uint32_t index, std::int64_t speed) {
  Flow& flow = flows_[index];
  if (flow.speed == speed) return;
  flow.left -= Amount((now_ - flow.since).count()) * flow.speed;
  flow.since = now_;
  flow.speed = speed;
  ++flow.version;
  const auto rest = flow.left > 0 ? std::int64_t((flow.left + speed - 1) / speed) : 0;
  push({now_ + Picoseconds(rest), true, index, flow.version});
}

/// The links and flows that these links' flows depend on.
void SharedLinks::find_component(std::span<const std::uint32_t> links) {
  component_links_.clear();
  component_flows_.clear();
  const auto add_link = [&](std::uint32_t link) {
    if (seen_[link]) return;
    seen_[link] = true;
    component_links_.push_back(link);
  };
  for (std::uint32_t link : links) add_link(link);
  for (std::size_t i = 0; i < component_links_.size(); ++i) {
    const std::uint32_t link = component_links_[i];
    room_[link] = {kFullSpeed, std::int64_t(active_[link].size())};
    for (std::uint32_t flow : active_[link]) {
      if (flows_[flow].seen) continue;
      flows_[flow].seen = true;
      flows_[flow].next_speed = 0;
      component_flows_.push_back(flow);
      for (std::uint32_t other : flows_[flow].links) add_link(other);
    }
  }
  for (std::uint32_t link : component_links_) seen_[link] = false;
  for (std::uint32_t flow : component_flows_) flows_[flow].seen = false;
}

void SharedLinks::share(std::span<const std::uint32_t> links) {
  find_component(links);
  for (std::size_t shared = 0; shared < component_flows_.size();) {
    std::int64_t least = kFullSpeed;
    for (std::uint32_t link : component_links_) {
      if (room_[link].flows > 0) least = std::min(least, room_[link].speed / room_[link].flows);
    }
    // All links that are full now, at once: the order among them must not matter.
    full_.clear();
    for (std::uint32_t link : component_links_) {
      const Room& room = room_[link];
      if (room.flows > 0 && room.speed / room.flows == least) full_.push_back(link);
    }
    for (std::uint32_t link : full_) {
      for (std::uint32_t flow : active_[link]) {
        if (flows_[flow].next_speed != 0) continue;
        flows_[flow].next_speed = std::max<std::int64_t>(1, least);
        ++shared;
        for (std::uint32_t other : flows_[flow].links) {
          room_[other].speed -= least;
          --room_[other].flows;
        }
      }
    }
  }
  for (std::uint32_t flow : component_flows_) set_speed(flow, flows_[flow].next_speed);
}

}  // namespace plimsoll
