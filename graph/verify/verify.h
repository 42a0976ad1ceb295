// The verifier: structure rules and the op table's legality, run after every pass.
#pragma once

#include <span>

#include "base/error.h"
#include "graph/graph.h"
#include "graph/program.h"

namespace plimsoll {

/// Every op legal by the table, every tensor defined before it is read and defined once (state
/// tensors: gradients, scalars, arenas may be written again), borders of blocks chain.
Verdict verify(const Graph& graph);

/// One program: operands placed inside their slots and frames, bindings inside their buffers and
/// alive, waits on earlier calls, segments inside the arena, buckets cover it.
Verdict verify(const Program& program);

/// A verified program with offsets: on streams that run by themselves, every op finds its memory
/// written by the ops it reads from and no longer used by the ops it overwrites, whether they share
/// a tensor or only an address. Order comes from streams and waits, not from the issue order.
Verdict verify_memory_order(const Program& program);

/// All classes of one job together (in the order of class_of): collectives and transfers pair up,
/// and the happens-before graph over representative ranks (stream order, waits, one node per
/// collective, one per send/receive pair) has no cycle, so no execution can deadlock.
Verdict verify_together(std::span<const Program> programs);

}  // namespace plimsoll
