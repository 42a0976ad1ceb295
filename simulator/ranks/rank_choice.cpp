#include "simulator/ranks/rank_choice.h"

namespace plimsoll {

RankChoice choose_ranks(const LinkTopology& topology, Folding folding) {
  RankChoice choice;
  if (folding == Folding::folded) {
    choice.class_of = behaviour_classes(topology);
  } else {
    for (std::size_t rank = 0; rank < topology.expansion.size(); ++rank) {
      choice.class_of.push_back(std::uint32_t(rank));
    }
  }
  for (std::size_t rank = 0; rank < choice.class_of.size(); ++rank) {
    if (choice.class_of[rank] == choice.representatives.size()) {
      choice.representatives.push_back(std::int64_t(rank));
    }
  }
  return choice;
}

std::uint32_t Channels::of_group(const GroupInstance& instance,
                                 std::span<const std::uint32_t> class_of) {
  return number({instance.group, classes_in(instance, class_of)});
}

std::uint32_t Channels::of_transfer(std::uint32_t sender, std::uint32_t receiver, bool backward) {
  return number({std::nullopt, {sender, receiver, std::uint32_t(backward)}});
}

std::uint32_t Channels::number(Key key) {
  return numbers_.try_emplace(std::move(key), std::uint32_t(numbers_.size())).first->second;
}

RankChannels channels_of(const Expansion& expansion, const LinkTopology& topology,
                         const RankChoice& choice, std::int64_t rank, Channels& channels) {
  const std::uint32_t own = choice.class_of[std::size_t(rank)];
  const std::vector<RankLink>& links = topology.links[std::size_t(rank)];
  RankChannels result;
  for (std::size_t l = 0; l < links.size(); ++l) {
    if (links[l].grouped) {
      const GroupInstance& instance = topology.instances[links[l].instance];
      result.channel.push_back(channels.of_group(instance, choice.class_of));
      result.alone.push_back(classes_in(instance, choice.class_of).size() == 1);
    } else {
      const std::uint32_t peer = choice.class_of[std::size_t(links[l].peer)];
      const Link& link = expansion.links[l];
      result.channel.push_back(link.sends ? channels.of_transfer(own, peer, link.stage_offset < 0)
                                          : channels.of_transfer(peer, own, link.stage_offset > 0));
      result.alone.push_back(false);
    }
  }
  return result;
}

}  // namespace plimsoll
