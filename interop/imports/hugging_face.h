// A config.json of Hugging Face transformers is read as a Job. The format and the defaults of its
// classes are those of huggingface/transformers, src/transformers/models/MODEL_TYPE. Nothing is
// fetched from a hub, and code that a file names (auto_map) is never run.
#pragma once

#include <string>
#include <string_view>

#include "interop/imports/imported.h"

namespace plimsoll {

bool looks_like_hugging_face(std::string_view text);
/// Returns a Job with exactly the parameters that the library's model has. Throws InputError for a
/// model that no Job states exactly: the message names the key, its value and what a job can state.
Imported read_hugging_face(std::string_view text, const std::string& file,
                           const ImportGiven& given);

}  // namespace plimsoll
