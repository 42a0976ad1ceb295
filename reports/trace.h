// Trace: a Timeline for the viewers of others.
#pragma once

#include <string>

#include "graph/timeline.h"

namespace plimsoll {

/// The Trace Event Format (Google, "Trace Event Format", 2016, JSON Object Format) that
/// chrome://tracing and ui.perfetto.dev open: a process per rank, a thread per stream, a complete
/// event per interval, and a counter with the live bytes by class. Times are microseconds with six
/// decimals, so every picosecond is kept. What a communication waited for its last participant is
/// its argument wait_us: it may overlap what its stream did before.
std::string chrome_trace(const Timeline& timeline);

}  // namespace plimsoll
