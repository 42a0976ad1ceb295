// The mixture of experts and the MTP modules of a job file are read, written and checked here.
#pragma once

#include <string>

#include "base/json.h"
#include "models/job/job.h"

namespace plimsoll {

/// `ffn_hidden` is the job's, which experts have unless they state their own.
Experts experts_from(JsonObject object, std::int64_t ffn_hidden);
Json experts_json(const Experts& experts);
/// Checks the limits of files and the rules between experts and the rest of a job that has them.
void check_experts(const Job& job, const std::string& file);

MultiToken mtp_from(JsonObject object);
Json mtp_json(const MultiToken& mtp);
void check_mtp(const Job& job, const std::string& file);

}  // namespace plimsoll
