// A Saver writes checkpoints of a run: all ranks together, between two steps.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/program.h"
#include "plan/checkpoint.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/layout.h"
#include "runtime/command/meeting.h"
#include "runtime/executor.h"

namespace plimsoll {

struct SaveOptions {
  std::filesystem::path folder;
  std::int64_t every = 0;   ///< steps between checkpoints; 0: only where the run ends
  std::int64_t keep = 2;    ///< the latest ones that stay
  CheckpointRecord record;  ///< plan, data and job; the Saver sets the rest
  /// Called on process 0, once a checkpoint is whole.
  std::function<void(const std::filesystem::path& checkpoint)> saved;
};

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

}  // namespace plimsoll
