// The readers of files that describe a training job, one for each kind of file.
#pragma once

#include <string>
#include <string_view>

#include "interop/imports/imported.h"

namespace plimsoll {

/// Return whether a text is of a kind, sound or not. The reader names a fault in it.
///   - a config.json of Hugging Face transformers
///   - flags of sizes that every Megatron-LM job has, or the marks of a table whose settings are
///     options of a command line (SettingOptions)
///   - a configuration file that some table of models/presets/flags recognizes
bool looks_like_hugging_face(std::string_view text);
bool looks_like_framework_script(std::string_view text);
bool looks_like_framework_document(std::string_view text);

/// Returns a Job with exactly the parameters that the library's model has. The format and the
/// defaults of its classes are those of huggingface/transformers,
/// src/transformers/models/MODEL_TYPE. Nothing is fetched from a hub, and code that a file names
/// (auto_map) is never run. Throws InputError for a model that no Job states exactly: the message
/// names the key, its value and what a job can state.
Imported read_hugging_face(std::string_view text, const std::string& file,
                           const ImportGiven& given);

/// Read the job, the strategy and the framework's switches by the table of models/presets/flags
/// that fits, whose rows name their sources. `given.devices` takes the place of what a script
/// states of them, and `given.job` has the model that a configuration file lacks. Without a number
/// of devices there is no strategy. The job is named after the file. Throw InputError with the line
/// of a flag that no job, strategy or framework states, or that contradicts another.
Imported read_framework_script(std::string_view text, const std::string& file,
                               const ImportGiven& given = {});
Imported read_framework_document(std::string_view text, const std::string& file,
                                 const ImportGiven& given);

/// Returns which trainer's file, of those that are not read, the text looks like, and what to give
/// instead, by the marks of models/presets/readers/foreign-files.json; else an empty text.
std::string foreign_file(std::string_view text);

}  // namespace plimsoll
