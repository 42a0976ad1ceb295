// A ProgramBuilder grows one Program: routines, calls with their frames, and buffers whose ends
// become known later.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "graph/program.h"

namespace plimsoll {

/// The type of optimizer state, masters and scalars, of the gradients that the update reads, and of
/// gradients that are reduced in every micro-batch.
inline constexpr DType kGradientType = DType::f32;

/// Returns whether an op on another stream than compute waits for no op of its routine. Its call
/// then waits for the latest call that computed.
bool begins_elsewhere(const Routine& routine);

/// Adds further waits.
inline void append(std::vector<Wait>& waits, const std::vector<Wait>& more) {
  waits.insert(waits.end(), more.begin(), more.end());
}

class ProgramBuilder {
 public:
  Program program;

  std::size_t next_call() const { return program.calls.size(); }
  /// Returns the latest call with ops on the compute stream. When another stream writes into memory
  /// acquired later, it waits for this call, since that memory may have been released before.
  std::size_t last_compute() const { return last_compute_; }
  Buffer& buffer(BufferId id) { return program.buffers[id.index()]; }

  RoutineId add_routine(const Routine& routine);
  /// Adds a routine unless it is there already. Routines with one name and with slots of equal size
  /// and type are the same.
  RoutineId shared_routine(const Routine& routine);
  /// Adds a routine of one communication op on its payload slot. Routines of equal name and size
  /// are shared.
  RoutineId payload_routine(const std::string& name, OpKind kind, Phase phase, Stream stream,
                            TensorRole role, DType type, Bytes bytes, OpParams params);

  /// Adds a routine that copies bytes between the device's and the host's memory, on the stream of
  /// such copies. Routines of equal name and size are shared.
  RoutineId copy_routine(const std::string& name, OpKind kind, Phase phase, TensorRole role,
                         Bytes bytes);

  /// Adds a buffer that is alive from call `begin`. `end` is set when its last use is known, and 0
  /// until then.
  BufferId add_buffer(std::string name, TensorRole role, Bytes bytes, std::size_t begin,
                      std::size_t end = 0);
  /// Says that a call before `end` uses the buffer.
  void extend(BufferId id, std::size_t end) { buffer(id).end = std::max(buffer(id).end, end); }
  BufferId add_persistent(std::string name, TensorRole role, Bytes bytes);
  /// Adds one in the host's memory.
  BufferId add_on_host(std::string name, TensorRole role, Bytes bytes);

  /// Adds a call, and acquires the routine's frame for it.
  std::size_t add_call(RoutineId routine, std::optional<std::int64_t> layer,
                       std::optional<std::int64_t> micro_batch, std::vector<Binding> bindings,
                       std::vector<Wait> waits);

  /// Returns the port of `call` whose tensor lies at `offset` of the slot of this kind, if it has
  /// one. `entry` selects the slot where each entry has its own.
  std::optional<std::size_t> find_port(std::size_t call, SlotKind kind, Bytes offset,
                                       std::optional<std::size_t> entry = {}) const;
  /// Returns the port of a call that must have one.
  std::size_t port_of(std::size_t call, SlotKind kind, Bytes offset = Bytes(0)) const;

  /// Returns whether a communication of the routine waits for none of its computation. On its own
  /// stream such a communication would overlap the call before, whose results it reads and into
  /// whose frame it writes.
  bool begins_elsewhere(RoutineId id) const { return facts_[id.index()].begins_elsewhere; }

  /// Returns the Program. Buffers without an end live to the end of the step.
  Program finish();

 private:
  void keep_used_frames();  ///< lets frames live until their last communication is waited for

  std::map<std::tuple<std::string, Bytes, DType>, RoutineId> payload_routines_;
  struct RoutineFacts {
    bool computes = false;  ///< it has ops on the compute stream
    bool begins_elsewhere = false;
  };
  std::vector<RoutineFacts> facts_;  ///< by routine
  std::size_t last_compute_ = 0;
};

}  // namespace plimsoll
