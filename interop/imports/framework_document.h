// Reads configuration files of training frameworks.
#pragma once

#include <string>
#include <string_view>

#include "interop/imports/imported.h"

namespace plimsoll {

/// Returns whether some table of models/presets/flags recognizes the document.
bool looks_like_framework_document(std::string_view text);

/// Reads the job, the strategy and the framework's switches by that table, whose rows name their
/// sources. The model may come from `given.job`. Without a number of devices there is no strategy.
/// The job is named after the file. Throws InputError with the line and the key.
Imported read_framework_document(std::string_view text, const std::string& file,
                                 const ImportGiven& given);

}  // namespace plimsoll
