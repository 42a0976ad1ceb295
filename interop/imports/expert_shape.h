// The mixture of experts of a config.json is read here.
#pragma once

#include "interop/imports/architecture.h"
#include "interop/imports/config_fields.h"
#include "models/job/job.h"

namespace plimsoll {

/// Reads the part "experts" of an architecture's file.
ExpertKeys expert_keys_from(JsonObject object);
/// Sets the experts of a job whose architecture has some.
void read_experts(ConfigFields& fields, const ExpertKeys& known, Job& job);

}  // namespace plimsoll
