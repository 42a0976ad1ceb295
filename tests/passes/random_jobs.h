// Jobs drawn at random: tiny ones, with every field that families have.
#pragma once

#include "models/job/job.h"
#include "tests/random_values.h"

namespace plimsoll {

/// Draws a job that passes check_job().
Job draw_job(Random& random);

}  // namespace plimsoll
