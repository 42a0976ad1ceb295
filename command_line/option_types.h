// Option types: what kind of value a flag takes. Help, completion and manual pages show it.
#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace plimsoll {

/// Names the types of all text options of a program and its commands by their flag, which means
/// alike everywhere: CLUSTER for --cluster. Options that have a type of their own keep it.
void name_types(CLI::App& program);

}  // namespace plimsoll
