// Training runs a job's Programs for some steps, on threads of this process or as one of several
// processes, and measures them.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
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
#include "plan/checkpoint.h"
#include "plan/measured.h"
#include "runtime/backend.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/layout.h"
#include "runtime/checkpoint/saved.h"
#include "runtime/command/meeting.h"
#include "runtime/executor.h"
#include "runtime/processes.h"

namespace plimsoll {

struct SaveOptions {
  std::filesystem::path folder;
  std::int64_t every = 0;   ///< steps between checkpoints; 0: only where the run ends
  std::int64_t keep = 2;    ///< the latest ones that stay
  CheckpointRecord record;  ///< plan, data and job; the Saver sets the rest
  /// Called on process 0, once a checkpoint is whole.
  std::function<void(const std::filesystem::path& checkpoint)> saved;
};

/// A Saver writes checkpoints of a run: all ranks together, between two steps.
class Saver {
 public:
  /// Opens the folder where this process has rank 0. `first_rank` is the first rank of this
  /// process. Throws EnvironmentError, and InputError where the folder has a checkpoint of more
  /// than `steps` steps, with which the run begins: it is of another run.
  Saver(std::span<const Program> programs, const SaveOptions& options, std::int64_t first_rank,
        std::int64_t locals, std::int64_t steps, Processes* processes,
        std::chrono::milliseconds deadline);

  /// Writes the checkpoint behind `steps` steps. Every rank calls it. It throws EnvironmentError on
  /// all of them where any cannot write; the checkpoints before stay.
  void save(std::int64_t local, std::int64_t steps, const Executor& executor);

  Meeting& meeting() { return *meeting_; }
  std::int64_t every() const { return options_.every; }

 private:
  void begin(std::int64_t steps) const;
  std::string write(std::int64_t local, std::int64_t steps, const Executor& executor) const;
  void finish(std::int64_t steps, const std::vector<std::string>& written,
              const Scalars& scalars) const;

  const SaveOptions options_;
  const std::vector<WholeTensor> tensors_;
  const std::vector<LaidFile> files_;
  const std::int64_t first_rank_;
  std::vector<WriteShare> shares_;          ///< by local rank
  std::optional<CheckpointFolder> folder_;  ///< where this process has rank 0
  std::unique_ptr<Meeting> meeting_;
};

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
