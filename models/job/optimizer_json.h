// The optimizer and the loss scaling of a job file are read and written here.
#pragma once

#include <string>

#include "base/json.h"
#include "models/job/job.h"

namespace plimsoll {

Optimizer optimizer_from(JsonObject object);
LossScale loss_scale_from(JsonObject object);
Json optimizer_json(const Optimizer& optimizer);
Json loss_scale_json(const LossScale& scale);
/// Checks the limits of files, for jobs that were not read from one.
void check_optimizer(const Job& job, const std::string& file);

}  // namespace plimsoll
