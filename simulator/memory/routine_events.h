// Routine events: when each tensor of a routine is first written and last used, as far as an
// allocator sees it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "graph/program.h"
#include "models/framework/framework.h"

namespace plimsoll {

/// The offset of a piece that lies beside a tensor in a slot and goes with it: no tensor has such
/// an offset.
inline constexpr Bytes kBeside{1};

/// Tensors of a routine that share one place.
struct Piece {
  std::optional<std::size_t> slot;  ///< absent: in the frame
  Bytes offset, bytes;
  std::uint32_t name = 0;  ///< index of names
  TensorRole role = TensorRole::activation;
  std::uint32_t stream = 0;
  Bytes computed;       ///< of a gradient of parameters: in the type that the op computes in
  bool output = false;  ///< what the model gives, as its loss has it
  bool stays = false;   ///< one for all pieces of this name, from the first write on
};

/// A piece's change before or after an op.
struct Event {
  enum class Kind : std::uint8_t { write, last_use } kind;
  std::uint32_t piece;
};

struct RoutineEvents {
  std::vector<Piece> pieces;
  std::vector<Event> events;  ///< in order of ops; of one op what it writes comes first
};

/// Tensor names of all routines and buffers, once each.
class Names {
 public:
  std::uint32_t of(const std::string& name) {
    const auto [found, fresh] = index_.try_emplace(name, std::uint32_t(names_.size()));
    if (fresh) names_.push_back(name);
    return found->second;
  }
  const std::string& operator[](std::uint32_t index) const { return names_[index]; }

 private:
  std::map<std::string, std::uint32_t> index_;
  std::vector<std::string> names_;
};

/// A framework's memory beside the Program's tensors is among them: copies that live as long as
/// another tensor, and memory that an op has while it runs.
RoutineEvents read_events(const Routine& routine, const Framework& framework, Names& names);

}  // namespace plimsoll
