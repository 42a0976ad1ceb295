// A PassContext is the input of every pass: the job, its strategy, and the framework.
#pragma once

#include "models/framework/framework.h"
#include "models/job/job.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

struct PassContext {
  const Job& job;
  const Strategy& strategy;
  const Framework& framework;
};

}  // namespace plimsoll
