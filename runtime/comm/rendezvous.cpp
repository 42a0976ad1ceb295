// Finds the rendezvous of a post, and moves its data.
#include "runtime/comm/rendezvous.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "base/error.h"

namespace plimsoll {
namespace {

bool is_transfer(OpKind kind) { return kind == OpKind::send || kind == OpKind::recv; }

}  // namespace

bool agree(const Request& a, const Request& b) {
  if (is_transfer(a.kind)) return a.kind != b.kind && a.bytes == b.bytes;
  return a.kind == b.kind && a.params == b.params && a.dtype == b.dtype && a.elements == b.elements;
}

std::string to_text(const Request& request) {
  if (is_transfer(request.kind)) {
    return fmt::format("{} of {} bytes", to_text(request.kind), request.bytes.count());
  }
  const auto& [group, reduction, root, shift] = request.params;
  const bool rooted = request.kind == OpKind::reduce || request.kind == OpKind::broadcast;
  return fmt::format("{}{} of {} {} elements over group {}{}{}", to_text(request.kind),
                     reduction == Reduction::sum ? "" : fmt::format(" ({})", to_text(reduction)),
                     request.elements, to_text(request.dtype), to_text(group),
                     rooted ? fmt::format(" with root {}", root) : "",
                     shift == 1 ? "" : fmt::format(" by {}", shift));
}

Channel::Channel(std::vector<std::int64_t> ranks)
    : members(std::move(ranks)), posts(members.size(), 0) {}

Rendezvous& Channel::next(std::size_t member) {
  const std::uint64_t number = posts[member]++;
  INVARIANT(number >= first_open, "a rank posted twice on one rendezvous");
  while (number - first_open >= open.size()) {
    if (spare.empty()) {
      all.push_back(std::make_unique<Rendezvous>());
      Rendezvous& fresh = *all.back();
      fresh.channel = this;
      fresh.participants.resize(members.size());
      for (auto& participant : fresh.participants) participant.shared_before.resize(members.size());
      fresh.to_wait = members.size();
      spare.push_back(&fresh);
    }
    open.push_back(spare.back());
    spare.pop_back();
  }
  return *open[number - first_open];
}

void Channel::close_first() {
  open.pop_front();
  ++first_open;
}

void Channel::recycle(Rendezvous& rendezvous) {
  for (auto& participant : rendezvous.participants) participant.posted = false;
  rendezvous.posted = rendezvous.arrived = 0;
  rendezvous.to_wait = members.size();
  rendezvous.next.clear();
  rendezvous.done.store(false, std::memory_order_relaxed);
  spare.push_back(&rendezvous);
}

void perform(const Rendezvous& rendezvous, RankDevice* device) {
  const auto& participants = rendezvous.participants;
  const Request& request = participants[0].request;
  if (is_transfer(request.kind)) {
    // Members of a transfer's channel are {sender, receiver}.
    std::byte* const to = participants[1].data.whole;
    const std::byte* const from = participants[0].data.whole;
    if (device != nullptr) return device->copy(to, from, request.bytes);
    std::memcpy(to, from, std::size_t(request.bytes.count()));
    return;
  }
  constexpr std::size_t kFew = 64;
  const auto run = [&](std::span<MemberData> members) {
    for (std::size_t i = 0; i < members.size(); ++i) members[i] = participants[i].data;
    if (device != nullptr) {
      device->move(request.kind, request.params, request.dtype, request.elements, members);
    } else {
      move_collective(request.kind, request.params, request.dtype, request.elements, members);
    }
  };
  if (participants.size() <= kFew) {
    std::array<MemberData, kFew> few;
    run(std::span(few).first(participants.size()));
  } else {
    std::vector<MemberData> many(participants.size());
    run(many);
  }
}

}  // namespace plimsoll
