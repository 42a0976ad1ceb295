// Jobs drawn at random: tiny ones, with every field that families have.
#pragma once

#include "models/job/job.h"
#include "tests/random_values.h"

namespace plimsoll {

/// Draws a job that passes check_job().
Job draw_job(Random& random);
/// Draws adapters for a job, or parameters that are frozen. Some jobs can have neither, and stay.
void draw_frozen(Random& random, Job& job);

/// Draws lengths of examples for a job, where it can have some.
void draw_lengths(Random& random, Job& job);

}  // namespace plimsoll
