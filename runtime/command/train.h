// Training runs a job's Programs for some steps, on threads of this process or as one of several
// processes, and measures them.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
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
#include "runtime/checkpoint/saved.h"
#include "runtime/command/saver.h"
#include "runtime/processes.h"

namespace plimsoll {

/// A text that is not trained on, whose loss shows how well the model generalises.
struct HeldOut {
  std::vector<std::byte> text;
  std::int64_t every = 1;    ///< steps between its losses; the last step has one, too
  std::int64_t batches = 1;  ///< global batches of its text, from the start, whose mean it is
};

struct TrainOptions {
  std::string backend = "cpu";
  std::int64_t steps = 20;         ///< >= 1, behind those of `resume`; the last one is traced
  std::int64_t warm_up_steps = 2;  ///< steps that are not in step_times
  std::chrono::milliseconds deadline{60'000};
  bool checking = false;
  bool replay = true;            ///< devices may replay kernels that they captured
  bool keep_gradients = false;   ///< copy every rank's gradient arena after the first step
  bool keep_parameters = false;  ///< copy every rank's parameter arena after the last step
  RateSchedule rates;            ///< of the learning rate
  /// The checkpoint behind which training goes on. Its job and tensors were checked.
  std::shared_ptr<const SavedCheckpoint> resume;
  std::optional<HeldOut> held_out;
  /// Saves checkpoints, the last one where the run ends.
  std::optional<SaveOptions> save;
  /// Asked on ranks behind each step. Once it returns true on any of them, all ranks end behind the
  /// same step: behind this one where checkpoints are saved, else as soon as LastStep can tell.
  std::function<bool()> stop;
  /// Called on the calling thread, in order of the steps, once all ranks have finished a step.
  /// `held_out` is NaN behind steps without that loss.
  std::function<void(std::int64_t step, double loss, Seconds step_time, double held_out)> progress;
  /// Used instead of make_backend(backend). Tests inject ranks that fail.
  std::function<std::unique_ptr<Backend>(std::int64_t rank)> backend_of_rank;
  /// Where given, this process is one rank of them, and all call train() alike. Without it, all
  /// ranks are threads of this process.
  Processes* processes = nullptr;
};

struct TrainResult {
  std::int64_t steps = 0;  ///< made in this run: fewer than asked for where it was stopped
  /// plan_digest is left empty; and all where the run was stopped, since its last step has no trace
  Measured measured;
  std::vector<std::vector<float>> gradients, parameters;  ///< by rank, when kept
  std::vector<std::vector<Traffic>> traffic;              ///< by rank: bytes sent in the last step
  std::vector<PhaseFlops> flops;  ///< by rank: FLOPs of products in the last step
};

/// Trains; `programs` are all classes of a job. Throws EnvironmentError (deadline) or
/// std::runtime_error (a rank threw), naming rank, communication and step. A rank that has not
/// stopped one more deadline after the failure is left behind on its thread, which holds copies of
/// all that it can reach.
///
/// With processes, the result is on process 0 and empty on the others. `progress` is called on the
/// process whose rank has the loss.
///
/// The time of step k is from when the last rank ended step k - 1, or a checkpoint behind it, to
/// when the last rank ends step k.
TrainResult train(std::span<const Program> programs, const Job& job, const Framework& framework,
                  std::span<const std::byte> text, const TrainOptions& options);

}  // namespace plimsoll
