// Reads scripts and flag files that start a framework's training program.
#pragma once

#include <string>
#include <string_view>

#include "interop/imports/imported.h"

namespace plimsoll {

/// Returns whether a text has the flags of sizes that every Megatron-LM job has, or the marks of a
/// table whose settings are options of a command line (SettingOptions).
bool looks_like_framework_script(std::string_view text);

/// Reads the job, the strategy and the framework's switches by the table of models/presets/flags
/// that fits, whose rows name their sources. `given.devices` takes the place of what the file
/// says of them. Without both there is no strategy. The job is named after the file. Throws
/// InputError with the line of a flag that no job, strategy or framework states, or that
/// contradicts another.
Imported read_framework_script(std::string_view text, const std::string& file,
                               const ImportGiven& given = {});

}  // namespace plimsoll
