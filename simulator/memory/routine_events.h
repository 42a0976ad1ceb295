// Routine events: when each tensor of a routine is first written and last used, as an allocator
// sees it.
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

/// The memory of one tensor of a routine, or of several that share it by ops that work in place.
struct TensorStorage {
  std::optional<std::size_t> slot;  ///< absent: in the frame
  Bytes offset, bytes;
  bool is_copy = false;    ///< of the tensor at the offset, as long as which it lives
  std::uint32_t name = 0;  ///< index into TensorNames
  TensorRole role = TensorRole::activation;
  std::uint32_t stream = 0;
  Bytes computed;       ///< of a gradient of parameters: its size in the type the op computes in
  bool output = false;  ///< the model's output, as its loss holds it
  bool stays = false;   ///< one block serves all storages of this name, from the first write on
};

/// A storage is written before an op, or is dead after it.
struct StorageEvent {
  enum class Kind : std::uint8_t { write, last_use } kind;
  std::uint32_t storage;
};

struct RoutineEvents {
  std::vector<TensorStorage> storages;
  std::vector<StorageEvent> events;  ///< in order of ops; the writes of one op come first
};

/// Numbers the names of the tensors of all routines and buffers.
class TensorNames {
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

/// Reads the events of a routine. A framework's memory beside the Program's tensors is among them:
/// copies that live as long as another tensor, and memory that an op has while it runs.
RoutineEvents read_events(const Routine& routine, const Framework& framework, TensorNames& names);
/// Returns the events of all routines of a Program.
std::vector<RoutineEvents> events_of(const Program& program, const Framework& framework,
                                     TensorNames& names);

}  // namespace plimsoll
