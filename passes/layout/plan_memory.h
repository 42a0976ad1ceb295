// Memory plan: an offset in the arena for every buffer.
#pragma once

#include "graph/program.h"

namespace plimsoll {

/// Frames live for one call each, so all take one place of the size of the largest. Then walks the
/// calls in issue order as an allocator would: buffers released before a call give their
/// room back, then those it acquires take the smallest hole that fits, larger ones first. Sets
/// Buffer::offset and Program::arena_bytes; changes nothing else. `guard`: bytes kept free behind
/// every buffer (checking builds).
void plan_memory(Program& program, Bytes guard = Bytes(0));

}  // namespace plimsoll
