// A Timeline is exported for trace viewers.
#pragma once

#include <string>

#include "graph/timeline.h"

namespace plimsoll {

/// Returns the Trace Event Format (Google, "Trace Event Format", 2016, JSON Object Format), which
/// chrome://tracing and ui.perfetto.dev open. There is a process per rank, a thread per stream, a
/// complete event per interval, and a counter with the live bytes by class. Times are microseconds
/// with six decimals, so every picosecond is kept. The argument wait_us of a communication is the
/// time that it waited for its last participant. This time may overlap earlier intervals of its
/// stream.
std::string chrome_trace(const Timeline& timeline);

}  // namespace plimsoll
