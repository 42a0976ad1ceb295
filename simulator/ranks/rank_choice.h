// The choice of ranks: which ranks behave alike, so that one of them is simulated for all, and
// which channels of the chosen ranks are the same.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "simulator/ranks/topology.h"

namespace plimsoll {

enum class Folding : std::uint8_t {
  folded,    ///< one simulated rank for each class of ranks that behave alike
  unfolded,  ///< every rank is simulated
};

struct RankChoice {
  std::vector<std::uint32_t> class_of;        ///< by rank
  std::vector<std::int64_t> representatives;  ///< by class: its lowest rank
};

RankChoice choose_ranks(const RankTopology& topology, Folding folding);

/// Returns the class of each rank, numbered by lowest rank. It is the coarsest partition in which
/// ranks of one class run the same Program on devices of one kind, over channels of equal costs,
/// with groups and peers of the same classes.
std::vector<std::uint32_t> behaviour_classes(const RankTopology& topology);

/// Numbers the channels between classes of ranks. The n-th communications over one channel are one
/// rendezvous.
class ChannelNumbers {
 public:
  /// Returns the number of a group's channel.
  std::uint32_t of_group(const GroupInstance& instance, std::span<const std::uint32_t> class_of);
  /// Returns the number of the channel for transfers from one class of ranks to another.
  /// `backward`: the data goes to an earlier stage. Two stages send each other both activations and
  /// gradients, over two channels.
  std::uint32_t of_transfer(std::uint32_t sender, std::uint32_t receiver, bool backward);

 private:
  using Key = std::pair<std::optional<Group>, std::vector<std::uint32_t>>;
  std::uint32_t number(Key key);
  std::map<Key, std::uint32_t> numbers_;
};

/// The channels of one simulated rank, by channel of its Expansion.
struct NumberedChannels {
  std::vector<std::uint64_t> number;
  std::vector<bool> alone;  ///< no rank of another class takes part
};
NumberedChannels number_channels(const Expansion& expansion, const RankTopology& topology,
                                 const RankChoice& choice, std::int64_t rank,
                                 ChannelNumbers& numbers);

}  // namespace plimsoll
