// An Executor runs one rank's Program step by step, with a backend's kernels and a communicator.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/op.h"
#include "graph/program.h"
#include "graph/step_flops.h"
#include "graph/timeline.h"
#include "graph/traffic.h"
#include "runtime/backend.h"
#include "runtime/communicator.h"
#include "runtime/state/kept_state.h"

namespace plimsoll {

class RankDevice;
struct PreparedCall;
struct PreparedOp;

/// A RoutedRows holds what one call's experts got in the traced step, as the ops of routers leave
/// it in memory. Ranks that are equal in mp and cp choose for the same tokens.
struct RoutedRows {
  std::uint64_t call = 0;    ///< index in Program::calls
  std::int64_t dropped = 0;  ///< choices of the rank's whole sequences that found no room
  std::int64_t rows = -1;    ///< rows that came for this rank's experts, where ranks share them out
  /// Rows that came and for which the rank has no memory. Where the ranks that share each expert
  /// got the same rows, the first of these ranks counts them.
  std::int64_t overflowed = 0;
};

/// Returns a message that names the layer of the model.
std::string to_text(const RowOverflow& overflow);

/// Returns whether ops of this kind say what experts get.
bool routes_rows(const Op& op);
/// Adds what an op has just read and written. `device` is null where the host can read it.
void add_routed(RoutedRows& routed, const PreparedCall& call, const PreparedOp& op,
                const Coordinates& at, RankDevice* device);

/// A Heartbeat shows the work of a rank at this moment. The watchdog reads it to notice that a rank
/// has stopped.
struct Heartbeat {
  std::atomic<std::int64_t> calls{0};  ///< issued since construction
  std::atomic<std::int64_t> step{0};
  std::atomic<const char*> routine{""};
  /// The rank is between two steps: it saves its state, or waits for others. It issues no calls,
  /// and takes as long as storage does.
  std::atomic<bool> between_steps{false};
};

struct ExecutorOptions {
  std::int64_t rank = 0;
  std::int64_t seed = 0;  ///< seed of the job, for initial parameters
  Bytes workspace;  ///< Framework::memory.process.workspace; the Program's workspace buffer holds
                    ///< at least this
  /// Puts guard zones around blocks, and fills blocks with NaN when they are acquired and released.
  /// The layout is then the executor's own, while sizes and lifetimes stay the Program's.
  bool checking = false;
  std::chrono::steady_clock::time_point epoch;
  /// For devices only: the longest time of a step's kernels after the last one was enqueued.
  std::chrono::milliseconds deadline{60'000};
  bool replay = true;              ///< devices may replay kernels that they captured
  Heartbeat* heartbeat = nullptr;  ///< updated at every call, when given
  RateSchedule rates;              ///< of the learning rate
  /// Returns whether any rank passed true. All ranks call it in each step, before they update
  /// anything: rows of experts may have had no memory. Where it returns true, the step updates
  /// nothing. Empty: such rows end the run.
  std::function<bool(bool own)> any_overflow = {};
  /// State with which the rank begins, instead of initial parameters. Read by the constructor.
  StateReader* state = nullptr;
};

struct StepResult {
  Picoseconds end;  ///< wall clock at the end of the step, from the epoch
  /// When the rank could begin it: the end of the step before, or of what came between. Whoever
  /// calls step() sets it.
  Picoseconds begin;
  float loss = 0;  ///< valid on ranks that compute it
  /// Norm of unscaled gradients, before clipping; NaN where no step computes one.
  float gradient_norm = std::numeric_limits<float>::quiet_NaN();
  float loss_scale = 1;      ///< loss scale of this step
  std::int64_t skipped = 0;  ///< steps without update so far
  /// Rows of experts had no memory on some rank. The rank's state is that before the step.
  bool withheld = false;
  /// Mean loss of the text that is held out, behind the step; NaN where it was not computed.
  float held_out_loss = std::numeric_limits<float>::quiet_NaN();
};

class Executor {
 public:
  /// Allocates the arena, builds kernels and initialises parameters. It is called on the thread
  /// that will run the steps. `backend`, `communicator` and the text must outlive it. Throws
  /// EnvironmentError when there is no memory, and the exceptions of the backend's prepare().
  Executor(const Program& program, Backend& backend, Communicator& communicator, TrainingText text,
           const ExecutorOptions& options);
  ~Executor();

  /// Reserves room for one step's trace, so that recording it allocates nothing large.
  void reserve_trace(Timeline& trace);
  /// Runs step `index` (from 0; behind loaded state, as many as steps were made). With `trace`, it
  /// also appends the step's intervals and this rank's memory with its curve. When something fails
  /// it aborts the communicator and throws std::runtime_error or EnvironmentError, naming rank,
  /// step (counted from 1) and routine. Where another rank failed it throws RankFailure. The
  /// executor cannot continue after that.
  StepResult step(std::int64_t index, Timeline* trace = nullptr);
  /// Returns which rows of this rank had no memory in a step that was withheld, or nothing where
  /// it was another rank's.
  std::optional<std::string> overflow() const;

  /// Returns the loss of global batch `batch` of the text that is held out, on ranks that compute
  /// it. It runs a whole step whose update changes nothing, so it costs one. It throws as step()
  /// does.
  float evaluate(std::int64_t batch);

  /// Gives `writer` this rank's share of the state behind the last step. Throws what `writer` does.
  void save(const WriteShare& share, StateWriter& writer) const;
  /// Returns the scalars of the last step.
  Scalars scalars() const;

  /// Gathers parameters once more after the last step, where they are otherwise gathered when a
  /// step begins and are whole only then. Every rank calls it, and it throws as step() does.
  void gather_parameters();

  /// Returns the memory counted from acquires and releases since construction, in the sizes that
  /// the bound tensors need. `arena` is the end of the farthest block that was acquired. There is
  /// no curve.
  RankMemory memory() const;
  /// Returns the communications that were posted in the last traced step.
  const std::vector<Traffic>& traffic() const;
  /// Returns the FLOPs of the kernels in that step.
  const PhaseFlops& flops() const;
  /// Returns the rows of experts in that step's forward, in order of calls. A device keeps them to
  /// itself.
  const std::vector<RoutedRows>& routed() const;
  /// Return copies of arenas, for tests that compare strategies.
  std::vector<float> gradients() const;
  std::vector<float> parameters() const;

 private:
  struct State;
  /// Runs `work`, tells the other ranks if it throws, and throws what step() throws.
  template <class Work>
  auto reporting(std::int64_t step, const Work& work);
  std::unique_ptr<State> state_;
};

}  // namespace plimsoll
