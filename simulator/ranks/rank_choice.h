// Which ranks are simulated, and over which channels their communications meet.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "simulator/ranks/folding.h"

namespace plimsoll {

enum class Folding : std::uint8_t {
  folded,    ///< one simulated rank per class of ranks that behave alike
  unfolded,  ///< every rank by itself
};

struct RankChoice {
  std::vector<std::uint32_t> class_of;        ///< by rank
  std::vector<std::int64_t> representatives;  ///< by class: its lowest rank
};

RankChoice choose_ranks(const LinkTopology& topology, Folding folding);

/// Numbers the channels over which classes meet: the k-th meetings on one channel are one
/// rendezvous.
class Channels {
 public:
  std::uint32_t of_group(const GroupInstance& instance, std::span<const std::uint32_t> class_of);
  /// `backward`: to an earlier stage. Two stages send each other both activations and gradients.
  std::uint32_t of_transfer(std::uint32_t sender, std::uint32_t receiver, bool backward);

 private:
  using Key = std::pair<std::optional<Group>, std::vector<std::uint32_t>>;
  std::uint32_t number(Key key);
  std::map<Key, std::uint32_t> numbers_;
};

/// The channels of one simulated rank, by link of its Program.
struct RankChannels {
  std::vector<std::uint64_t> channel;
  std::vector<bool> alone;  ///< nobody of another class takes part
};
RankChannels channels_of(const Expansion& expansion, const LinkTopology& topology,
                         const RankChoice& choice, std::int64_t rank, Channels& channels);

}  // namespace plimsoll
