// The verifier checks the rules of structure and the op table's legality after every pass.
#pragma once

#include <span>

#include "base/error.h"
#include "graph/graph.h"
#include "graph/program.h"

namespace plimsoll {

/// Checks that every op is legal by the table and every tensor is defined once, before it is read.
/// State tensors (gradients, scalars, arenas) may be written again. It checks also that borders of
/// blocks form a chain.
Verdict verify(const Graph& graph);

/// Checks one program: operands lie inside their slots and frames; bindings lie inside their
/// buffers, which are alive; waits are on earlier calls; segments lie inside the arena, and buckets
/// cover it.
Verdict verify(const Program& program);

/// Checks a verified program with offsets, on streams that run by themselves. Every op must find
/// its memory written by the ops from which it reads, and no longer used by the ops whose values it
/// overwrites. The ops may share a tensor or only an address. Order comes from streams and waits,
/// not from the issue order.
Verdict verify_memory_order(const Program& program);

/// Checks all classes of one job together, in the order of class_of. Collectives and transfers must
/// pair up. The happens-before graph over representative ranks must have no cycle, so that no
/// execution can deadlock. Its edges are stream order and waits; it has one node for each
/// collective and one for each pair of send and receive.
Verdict verify_together(std::span<const Program> programs);

}  // namespace plimsoll
