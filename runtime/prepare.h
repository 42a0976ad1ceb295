// A prepared Program is ready to run on one rank. Everything that a step would have to look up
// (kernels, addresses, waits, acquired and released buffers) is found once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "graph/program.h"
#include "graph/traffic.h"
#include "runtime/arena.h"
#include "runtime/backend.h"
#include "runtime/communicator.h"

namespace plimsoll {

struct PreparedOp {
  const Op* op = nullptr;
  Kernel* kernel = nullptr;  ///< null: a communication
  std::vector<std::byte*> inputs, outputs;
  /// Indices into PreparedProgram::ops of the communications of the same call that must be over
  /// first.
  std::vector<std::uint32_t> waits;
  // The next fields are for communications only: the operand.
  CollectiveOperand operand;      ///< for transfers: the sent or received bytes are the whole
  std::vector<BufferId> buffers;  ///< buffers that hold the operand
  Traffic traffic;                ///< traffic of one execution
};

struct PreparedCall {
  const Call* call = nullptr;
  const Routine* routine = nullptr;
  std::uint32_t first_op = 0;        ///< its ops are [first_op, first_op + routine->ops.size())
  std::vector<std::uint32_t> waits;  ///< indices of communications of earlier calls
  std::vector<BufferId> releases, acquires;  ///< released, then acquired, once the waits are over
};

struct PreparedProgram {
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::vector<PreparedOp> ops;  ///< in issue order
  std::vector<PreparedCall> calls;
  /// The first call behind all micro-batches, if there is one. None before it changes parameters.
  const Call* first_update = nullptr;
  std::vector<std::uint32_t> communications;  ///< indices into `ops`, ascending
  std::vector<BufferId> persistent;
  std::vector<BufferId> last_releases;  ///< released at the end of the step
};

/// Prepares a Program. `program`, `arena` and `context` must outlive the result.
PreparedProgram prepare_program(const Program& program, const Arena& arena, Backend& backend,
                                const RankContext& context);

/// Returns, by buffer, the bytes that its bound tensors need on this rank; memory is counted in
/// them. The workspace needs what the framework states.
std::vector<Bytes> needed_bytes(const Program& program, const Coordinates& at, Bytes workspace);

/// Returns the start of a call's slot within its buffer on this rank.
Bytes slot_offset(const Grid& grid, const Binding& binding, const Coordinates& at);

}  // namespace plimsoll
