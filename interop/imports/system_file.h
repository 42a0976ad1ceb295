// A system file has a cluster's engines, memories and networks, each with its efficiencies.
#pragma once

#include <string>
#include <string_view>

#include "interop/imports/imported.h"

namespace plimsoll {

/// Sets the cluster, and adds notes on what a cluster file does not state. The form is that of
/// calculon (github.com/calculon-ai/calculon, systems/*.json), which has efficiencies as steps over
/// sizes. They become one share for large ops, and one fixed time for each op
/// (docs/reference/imports.md). Throws InputError with the JSON pointer.
void read_system_file(Imported& imported, std::string_view text, const std::string& file,
                      const ImportGiven& given);

}  // namespace plimsoll
