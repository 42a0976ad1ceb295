// The keys of a job file that say what attention is in a llama layer. It is internal to models/.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "models/job/job.h"

namespace plimsoll {

/// Reads the keys of attention that an object has.
void read_attention(JsonObject& object, Job& job);
/// Writes the keys whose values are not their defaults, and `rotary_base`.
void write_attention(const Job& job, Json& value);
/// Checks sizes and what excludes each other. Throws InputError at `file`.
void check_llama_attention(const Job& job, const std::string& file);

/// Reads a list of 1 and 0 that says which layers of a period have something.
std::vector<bool> layer_pattern_from(JsonObject& object, const char* key);
Json layer_pattern_json(const std::vector<bool>& pattern);

}  // namespace plimsoll
