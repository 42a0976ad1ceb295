// Manual pages (section 1) of a program and its commands, written from their options and their
// help.
#pragma once

#include <string>

namespace CLI {
class App;
}  // namespace CLI

namespace plimsoll {

/// Returns the page of a command in the man macros of troff. `source` is the program with its
/// version: "planner 1.0".
std::string manual_page(const CLI::App& command, const std::string& source);

}  // namespace plimsoll
