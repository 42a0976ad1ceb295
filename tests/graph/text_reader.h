// The text form of Graphs and Programs is read back: it leaves nothing out, and tests state graphs
// in it. Lines that start with "# " are comments. Throws InputError with FILE:LINE.
#pragma once

#include <string>
#include <string_view>

#include "graph/text.h"

namespace plimsoll {

Graph parse_graph(std::string_view text, const std::string& file);
Program parse_program(std::string_view text, const std::string& file);

}  // namespace plimsoll
