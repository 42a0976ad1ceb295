// Train: runs a job's Programs for some steps, on threads of this process or as one of several
// processes, and measures.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/program.h"
#include "graph/step_flops.h"
#include "graph/traffic.h"
#include "models/framework/framework.h"
#include "models/job/job.h"
#include "plan/measured.h"
#include "runtime/backend.h"
#include "runtime/processes.h"

namespace plimsoll {

struct TrainOptions {
  std::string backend = "cpu";
  std::int64_t steps = 20;         ///< >= 1; the last one is traced
  std::int64_t warm_up_steps = 2;  ///< not in step_times
  std::chrono::milliseconds deadline{60'000};
  bool checking = false;
  bool replay = true;            ///< devices may replay kernels as they captured them
  bool keep_gradients = false;   ///< copy every rank's gradient arena after the first step
  bool keep_parameters = false;  ///< ... and parameter arena after the last
  /// Called on the calling thread, in order, once all ranks have finished a step.
  std::function<void(std::int64_t step, double loss, Seconds step_time)> progress;
  /// Instead of make_backend(backend): tests inject ranks that fail.
  std::function<std::unique_ptr<Backend>(std::int64_t rank)> backend_of_rank;
  /// Where given, this process is one rank of them, and all call train() alike. Else all ranks are
  /// threads of this process.
  Processes* processes = nullptr;
};

struct TrainResult {
  Measured measured;                                      ///< plan_digest left empty
  std::vector<std::vector<float>> gradients, parameters;  ///< by rank, when kept
  std::vector<std::vector<Traffic>> traffic;              ///< by rank: sent in the last step
  std::vector<PhaseFlops> flops;                          ///< by rank: multiplied in it
};

/// `programs` are all classes of a job. Throws EnvironmentError (deadline) or std::runtime_error (a
/// rank threw), naming rank, communication and step. A rank that has not stopped one more deadline
/// after the failure is left behind on its thread, which holds copies of all it can reach.
///
/// With processes, the result is on process 0 and empty on the others; `progress` is called on the
/// process whose rank has the loss.
///
/// Step time k is the time from when the last rank ended step k - 1 to when the last rank ends k.
TrainResult train(std::span<const Program> programs, const Job& job, const Framework& framework,
                  std::span<const std::byte> text, const TrainOptions& options);

}  // namespace plimsoll
