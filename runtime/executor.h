// Executor: walks one rank's Program step by step, with a backend's kernels and a communicator.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "graph/program.h"
#include "graph/step_flops.h"
#include "graph/timeline.h"
#include "graph/traffic.h"
#include "runtime/backend.h"
#include "runtime/communicator.h"

namespace plimsoll {

/// The work of a rank at this moment, for whoever watches that it does not stop.
struct Heartbeat {
  std::atomic<std::int64_t> calls{0};  ///< issued since construction
  std::atomic<std::int64_t> step{0};
  std::atomic<const char*> routine{""};
};

struct ExecutorOptions {
  std::int64_t rank = 0;
  std::int64_t seed = 0;  ///< of the job: initial parameters
  Bytes workspace;  ///< Framework::workspace; the Program's workspace buffer holds at least this
  /// Guard zones around blocks; blocks are filled with NaN when acquired and when released. The
  /// layout is then the executor's own; sizes and lifetimes stay the Program's.
  bool checking = false;
  std::chrono::steady_clock::time_point epoch;
  /// Devices only: how long a step's kernels may take after the last was enqueued.
  std::chrono::milliseconds deadline{60'000};
  bool replay = true;              ///< devices may replay kernels as they captured them
  Heartbeat* heartbeat = nullptr;  ///< updated at every call, when given
};

struct StepResult {
  Picoseconds end;           ///< wall clock at the end of the step, from the epoch
  float loss = 0;            ///< valid on ranks of the last stage
  float gradient_norm = 0;   ///< of unscaled gradients, before clipping
  float loss_scale = 1;      ///< of this step
  std::int64_t skipped = 0;  ///< steps without update so far
};

class Executor {
 public:
  /// Allocates the arena, builds kernels, initialises parameters; call it on the thread that will
  /// run the steps. `backend`, `communicator` and the text must outlive it. Throws EnvironmentError
  /// when there is no memory and whatever the backend's prepare() throws.
  Executor(const Program& program, Backend& backend, Communicator& communicator, TrainingText text,
           const ExecutorOptions& options);
  ~Executor();

  /// Room for one step's trace, so that recording it allocates nothing large.
  void reserve_trace(Timeline& trace);
  /// Runs step `index` (from 0); with `trace`, also appends its intervals and this rank's memory
  /// with its curve. When something fails it aborts the communicator, then throws
  /// std::runtime_error or EnvironmentError naming rank, step (counted from 1) and routine
  /// (RankFailure when it was another rank that failed); the executor cannot go on after that.
  StepResult step(std::int64_t index, Timeline* trace = nullptr);

  /// Where parameters are gathered when a step begins, they are whole only then: gathers them once
  /// more, after the last step. Every rank calls it; it throws as step() does.
  void gather_parameters();

  /// Counted from acquire and release since construction, in the sizes that the bound tensors
  /// need. `arena` is the end of the farthest block that was acquired. Without a curve.
  RankMemory memory() const;
  /// The communications that were posted in the last traced step, as they happened.
  const std::vector<Traffic>& traffic() const;
  /// The FLOPs of the kernels in that step.
  const PhaseFlops& flops() const;
  /// Copies of arenas, for tests that compare strategies.
  std::vector<float> gradients() const;
  std::vector<float> parameters() const;

 private:
  struct State;
  /// Runs `work`; what it throws becomes what step() throws, and the other ranks are told.
  template <class Work>
  auto reporting(std::int64_t step, const Work& work);
  std::unique_ptr<State> state_;
};

}  // namespace plimsoll
