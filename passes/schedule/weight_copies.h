// Copies of layers' weights in 8 bits are made in the first micro-batch of a step, for all of it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "passes/cut/program_builder.h"

namespace plimsoll {

/// The copies of all instances of a stage lie in one buffer.
class WeightCopies {
 public:
  explicit WeightCopies(ProgramBuilder& build) : build_(build) {}

  /// Adds memory for what this routine of an instance writes; it may have no ops. To be called for
  /// each instance in order. `copies` must outlive this object.
  void add_instance(const Routine& copies);
  /// Adds the buffer, once all instances are known.
  void add_buffer();
  /// Returns the memory of an instance's copies.
  Binding binding(std::size_t instance) const { return {buffer_, offsets_[instance], {}}; }
  /// Makes an instance's copies, if it has any. `bind` binds the slots of the call.
  void call(std::size_t instance, std::int64_t micro_batch, const std::vector<Wait>& waits,
            const std::function<Binding(const Slot&)>& bind);

 private:
  ProgramBuilder& build_;
  std::vector<const Routine*> copies_;            ///< by instance
  std::vector<Bytes> offsets_;                    ///< by instance
  Bytes bytes_;                                   ///< of all
  std::map<const Routine*, RoutineId> routines_;  ///< looked up only
  BufferId buffer_;
};

}  // namespace plimsoll
