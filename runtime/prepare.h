// Prepare: a Program made ready to run on one rank. Everything a step would have to look up
// (kernels, addresses, waits, what is acquired and released where) is found once.
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
  /// Communications (indices into PreparedProgram::ops) of the same call that must be over first.
  std::vector<std::uint32_t> waits;
  // Communications only: the operand.
  CollectiveOperand operand;      ///< of transfers: what is sent or received is the whole
  std::vector<BufferId> buffers;  ///< that it lies in
  Traffic traffic;                ///< of one execution
};

struct PreparedCall {
  const Call* call = nullptr;
  const Routine* routine = nullptr;
  std::uint32_t first_op = 0;        ///< its ops are [first_op, first_op + routine->ops.size())
  std::vector<std::uint32_t> waits;  ///< communications of earlier calls
  std::vector<BufferId> releases, acquires;  ///< once the waits are over, in this order
};

struct PreparedProgram {
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::vector<PreparedOp> ops;  ///< in issue order
  std::vector<PreparedCall> calls;
  std::vector<std::uint32_t> communications;  ///< indices into `ops`, ascending
  std::vector<BufferId> persistent;
  std::vector<BufferId> last_releases;  ///< at the end of the step
};

/// `program`, `arena` and `context` must outlive the result.
PreparedProgram prepare_program(const Program& program, const Arena& arena, Backend& backend,
                                const RankContext& context);

/// By buffer: the bytes that the tensors bound to it reach on this rank (the workspace: what the
/// framework states). What memory is counted in.
std::vector<Bytes> needed_bytes(const Program& program, const Coordinates& at, Bytes workspace);

/// Start of a call's slot within its buffer on this rank.
Bytes slot_offset(const Binding& binding, const Coordinates& at);

}  // namespace plimsoll
