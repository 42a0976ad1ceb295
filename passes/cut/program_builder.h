// Grows one Program: routines, buffers whose ends become known later, calls with their frames.
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
/// those that are reduced in every micro-batch.
inline constexpr DType kGradientType = DType::f32;

/// Whether an op of another stream than compute's waits for no op of its routine: its call then
/// waits for the call that computed last.
bool begins_elsewhere(const Routine& routine);

class ProgramBuilder {
 public:
  Program program;

  std::size_t next_call() const { return program.calls.size(); }
  /// The latest call with ops on the compute stream. Whatever another stream writes into memory
  /// that is acquired later waits for it: what was released before may be that memory.
  std::size_t last_compute() const { return last_compute_; }
  Buffer& buffer(BufferId id) { return program.buffers[id.index()]; }

  RoutineId add_routine(const Routine& routine);
  /// Adds a routine unless it is there: an equal name with slots of equal size and type is the same
  /// routine.
  RoutineId shared_routine(const Routine& routine);
  /// A routine of one communication op on its payload slot; equal name and size are shared.
  RoutineId payload_routine(const std::string& name, OpKind kind, Phase phase, Stream stream,
                            TensorRole role, DType type, Bytes bytes, OpParams params);

  /// Alive from call `begin`; `end` is set when its last use is known (0 until then).
  BufferId add_buffer(std::string name, TensorRole role, Bytes bytes, std::size_t begin,
                      std::size_t end = 0);
  /// The buffer is used by a call before `end`.
  void extend(BufferId id, std::size_t end) { buffer(id).end = std::max(buffer(id).end, end); }
  BufferId add_persistent(std::string name, TensorRole role, Bytes bytes);

  /// Also acquires the routine's frame for the call.
  std::size_t add_call(RoutineId routine, std::optional<std::int64_t> layer,
                       std::optional<std::int64_t> micro_batch, std::vector<Binding> bindings,
                       std::vector<Wait> waits);

  /// The port of `call` whose tensor lies at `offset` of the slot of this kind (and entry, where
  /// each has its own), if it has one.
  std::optional<std::size_t> find_port(std::size_t call, SlotKind kind, Bytes offset,
                                       std::optional<std::size_t> entry = {}) const;
  /// The port of a call that must have one.
  std::size_t port_of(std::size_t call, SlotKind kind, Bytes offset = Bytes(0)) const;

  /// Whether a communication of the routine waits for none of its computation: on its own stream it
  /// would run into that of the call before, whose results it reads and whose frame it writes.
  bool begins_elsewhere(RoutineId id) const { return facts_[id.index()].begins_elsewhere; }

  /// Buffers without an end live to the end of the step.
  Program finish();

 private:
  std::map<std::tuple<std::string, Bytes, DType>, RoutineId> payload_routines_;
  struct RoutineFacts {
    bool computes = false;  ///< it has ops on the compute stream
    bool begins_elsewhere = false;
  };
  std::vector<RoutineFacts> facts_;  ///< by routine
  std::size_t last_compute_ = 0;
};

}  // namespace plimsoll
