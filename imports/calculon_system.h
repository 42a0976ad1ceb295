// Reads systems of calculon (github.com/calculon-ai/calculon, systems/*.json) as clusters.
#pragma once

#include <string>
#include <string_view>

#include "imports/imported.h"

namespace plimsoll {

/// Returns whether a text has the keys that every system has.
bool looks_like_calculon_system(std::string_view text);

/// Sets the cluster, with notes on what a cluster file does not state. A system gives efficiencies
/// as steps over sizes. They become one share for large ops, and one fixed time for each op
/// (docs/reference/imports.md). Throws InputError with the JSON pointer.
Imported read_calculon_system(std::string_view text, const std::string& file,
                              const ImportGiven& given);

}  // namespace plimsoll
