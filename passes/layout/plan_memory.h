// The memory plan gives every buffer an offset in the arena.
#pragma once

#include "graph/program.h"

namespace plimsoll {

/// Most frames live for one call each, so all of these share one place of the size of the largest.
/// The plan then walks the calls in issue order as an allocator would. Buffers released before a
/// call give their room back. The buffers that the call acquires take the smallest hole that fits,
/// larger buffers first. Buffers of the host lie behind the arena, in the same way. Sets
/// Buffer::offset and Program::arena_bytes, and changes nothing else.
/// `guard` is the number of bytes kept free behind every buffer (checking builds).
void plan_memory(Program& program, Bytes guard = Bytes(0));

}  // namespace plimsoll
