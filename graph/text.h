// The text form of Graph and Program is what `planner passes` prints and what golden tests hold. It
// leaves nothing out: tests/graph/text_reader.h reads it back.
#pragma once

#include <string>

#include "graph/graph.h"
#include "graph/program.h"

namespace plimsoll {

std::string print(const Graph& graph);
std::string print(const Program& program);
std::string print(const Routine& routine, std::size_t index);

/// Returns the class name and text of an op's parameters, e.g. "transpose_b=true scale=0.125".
std::string print(const OpParams& params);

}  // namespace plimsoll
