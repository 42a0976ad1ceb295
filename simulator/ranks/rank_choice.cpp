// Refines the partition of ranks until it is stable, and numbers channels.
#include "simulator/ranks/rank_choice.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace plimsoll {
namespace {

/// Gives equal lists equal small numbers, in order of first appearance. Lists are short and many.
class SignatureNumbering {
 public:
  std::uint32_t operator()(const std::vector<std::uint32_t>& list) {
    return numbers_.try_emplace(list, std::uint32_t(numbers_.size())).first->second;
  }
  std::size_t size() const { return numbers_.size(); }

 private:
  struct Hash {
    std::size_t operator()(const std::vector<std::uint32_t>& list) const {
      std::uint64_t hash = list.size();
      for (const std::uint32_t number : list)
        hash = (hash ^ number) * 0x9E3779B97F4A7C15 + (hash >> 29);
      return std::size_t(hash);
    }
  };
  std::unordered_map<std::vector<std::uint32_t>, std::uint32_t, Hash> numbers_;  // looked up only
};

/// Returns the classes that meet in a group, ascending.
std::vector<std::uint32_t> classes_in(const GroupInstance& instance,
                                      std::span<const std::uint32_t> classes) {
  std::vector<std::uint32_t> result;
  for (std::int64_t member : instance.members) {
    const std::uint32_t of = classes[std::size_t(member)];
    if (result.empty() || result.back() != of) result.push_back(of);  // neighbours are often alike
  }
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

}  // namespace

std::vector<std::uint32_t> behaviour_classes(const RankTopology& topology) {
  std::vector<std::uint32_t> classes(topology.expansion.begin(), topology.expansion.end());
  std::size_t count = 0;
  std::vector<std::uint32_t> signature;
  while (true) {
    // Which classes meet in each group.
    SignatureNumbering sets, signatures;
    std::vector<std::uint32_t> set_of;
    for (const GroupInstance& instance : topology.instances) {
      set_of.push_back(sets(classes_in(instance, classes)));
    }
    std::vector<std::uint32_t> refined;
    refined.reserve(classes.size());
    for (std::size_t rank = 0; rank < classes.size(); ++rank) {
      signature.assign(1, classes[rank]);
      for (const RankChannel& channel : topology.channels[rank]) {
        signature.push_back(channel.cost);
        signature.push_back(channel.grouped ? set_of[channel.instance]
                                            : classes[std::size_t(channel.peer)]);
      }
      refined.push_back(signatures(signature));
    }
    classes = std::move(refined);
    if (signatures.size() == count) return classes;  // nothing was split
    count = signatures.size();
  }
}

RankChoice choose_ranks(const RankTopology& topology, Folding folding) {
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

std::uint32_t ChannelNumbers::of_group(const GroupInstance& instance,
                                       std::span<const std::uint32_t> class_of) {
  return number({instance.group, classes_in(instance, class_of)});
}

std::uint32_t ChannelNumbers::of_transfer(std::uint32_t sender, std::uint32_t receiver,
                                          bool backward) {
  return number({std::nullopt, {sender, receiver, std::uint32_t(backward)}});
}

std::uint32_t ChannelNumbers::number(Key key) {
  return numbers_.try_emplace(std::move(key), std::uint32_t(numbers_.size())).first->second;
}

NumberedChannels number_channels(const Expansion& expansion, const RankTopology& topology,
                                 const RankChoice& choice, std::int64_t rank,
                                 ChannelNumbers& numbers) {
  const std::uint32_t own = choice.class_of[std::size_t(rank)];
  const std::vector<RankChannel>& channels = topology.channels[std::size_t(rank)];
  NumberedChannels result;
  for (std::size_t c = 0; c < channels.size(); ++c) {
    if (channels[c].grouped) {
      const GroupInstance& instance = topology.instances[channels[c].instance];
      result.number.push_back(numbers.of_group(instance, choice.class_of));
      result.alone.push_back(classes_in(instance, choice.class_of).size() == 1);
    } else {
      const std::uint32_t peer = choice.class_of[std::size_t(channels[c].peer)];
      const ClassChannel& channel = expansion.channels[c];
      result.number.push_back(channel.sends
                                  ? numbers.of_transfer(own, peer, channel.stage_offset < 0)
                                  : numbers.of_transfer(peer, own, channel.stage_offset > 0));
      result.alone.push_back(false);
    }
  }
  return result;
}

}  // namespace plimsoll
