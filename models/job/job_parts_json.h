// The attention, experts and optimizer of a job file are read, written and checked here. It is
// internal to models/.
#pragma once

#include <cstdint>
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

/// `ffn_hidden` is the job's, which experts have unless they state their own.
Experts experts_from(JsonObject object, std::int64_t ffn_hidden);
Json experts_json(const Experts& experts);
/// Checks the limits of files and the rules between experts and the rest of a job that has them.
void check_experts(const Job& job, const std::string& file);

MultiToken mtp_from(JsonObject object);
Json mtp_json(const MultiToken& mtp);
void check_mtp(const Job& job, const std::string& file);

Optimizer optimizer_from(JsonObject object);
LossScale loss_scale_from(JsonObject object);
Json optimizer_json(const Optimizer& optimizer);
Json loss_scale_json(const LossScale& scale);
/// Checks the limits of files, for jobs that were not read from one.
void check_optimizer(const Job& job, const std::string& file);

}  // namespace plimsoll
