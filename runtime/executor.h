// Executor: walks one rank's Program step by step, with a backend's kernels and a communicator.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "graph/program.h"
#include "graph/timeline.h"
#include "runtime/backend.h"
#include "runtime/communicator.h"

namespace plimsoll {

struct ExecutorOptions {
  std::int64_t rank = 0;
  std::int64_t seed = 0;       ///< of the job: initial parameters
  Bytes workspace;             ///< Framework::workspace
  bool checking = false;       ///< guard zones around blocks, released blocks poisoned
  std::chrono::steady_clock::time_point epoch;
};

struct StepResult {
  Picoseconds end;       ///< wall clock at the end of the step, from the epoch
  float loss = 0;        ///< valid on ranks of the last stage
  float gradient_norm = 0;
};

class Executor {
 public:
  /// Allocates the arena, builds kernels, initialises parameters. `program` must outlive it.
  Executor(const Program& program, Backend& backend, Communicator& communicator, TrainingText text,
           const ExecutorOptions& options);
  ~Executor();

  /// Runs one step; with `trace`, also records its intervals and memory curve into it.
  StepResult step(std::int64_t index, Timeline* trace = nullptr);

  /// Counted from acquire and release since construction.
  RankMemory memory() const;
  /// Copies of arenas, for tests that compare strategies.
  std::vector<float> gradients() const;
  std::vector<float> parameters() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace plimsoll
