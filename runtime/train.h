// Runs a job's Programs for some steps on threads of this process and measures.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "graph/program.h"
#include "models/framework.h"
#include "models/job.h"
#include "plan/measured.h"

namespace plimsoll {

struct TrainOptions {
  std::string backend = "cpu";
  std::int64_t steps = 20;
  std::int64_t warm_up_steps = 2;
  std::chrono::milliseconds deadline{60'000};
  bool checking = false;
  bool keep_gradients = false;  ///< copy every rank's gradient arena after the first step
  bool keep_parameters = false; ///< ... and parameter arena after the last
  /// Called on rank 0's thread after each step.
  std::function<void(std::int64_t step, double loss, Seconds step_time)> progress;
};

struct TrainResult {
  Measured measured;  ///< plan_digest left empty
  std::vector<std::vector<float>> gradients, parameters;  ///< by rank, when kept
};

/// programs[i] is the class of stage i. Throws EnvironmentError (deadline) or std::runtime_error (a
/// rank threw), naming rank, communication and step.
TrainResult train(std::span<const Program> programs, const Job& job, const Framework& framework,
                  std::span<const std::byte> text, const TrainOptions& options);

}  // namespace plimsoll
