// The text form of Graph and Program is what `planner passes` prints and what golden tests hold.
// parse(print(x)) == x for every value that verifies. Lines that start with "# " are comments.
// Parsers throw InputError with FILE:LINE.
#pragma once

#include <string>
#include <string_view>

#include "graph/graph.h"
#include "graph/program.h"

namespace plimsoll {

std::string print(const Graph& graph);
std::string print(const Program& program);
std::string print(const Routine& routine, std::size_t index);
Graph parse_graph(std::string_view text, const std::string& file);
Program parse_program(std::string_view text, const std::string& file);

/// Returns the class name and text of an op's parameters, e.g. "transpose_b=true scale=0.125".
std::string print(const OpParams& params);

}  // namespace plimsoll
