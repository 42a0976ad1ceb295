// A folder of checkpoints, such as "step-100" and "step-200". A checkpoint has its name only when
// it is whole: it is made in a folder of another name and renamed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/descriptor.h"

namespace plimsoll {

/// Returns the folder of the checkpoint that `path` means: `path` itself, or the one with the most
/// steps in it. Throws InputError where there is none.
std::filesystem::path find_checkpoint(const std::filesystem::path& path);

/// Returns the step that the name of a folder says, such as 100 of "step-100", or nothing. The path
/// may end in a slash, or be "." within it.
std::optional<std::int64_t> step_of_name(const std::filesystem::path& path);

/// Writes what was written to a file or folder to its storage. Throws EnvironmentError.
void sync_path(const std::filesystem::path& path);

/// Makes a folder that is not there yet. Throws EnvironmentError where there is anything of that
/// name, such as a link to a folder elsewhere.
void make_folder(const std::filesystem::path& path);

/// A CheckpointFolder is where one run saves.
class CheckpointFolder {
 public:
  /// Makes the folder where it is missing, locks it against other runs, and removes what runs that
  /// were killed have left. Of whole checkpoints it keeps the latest `keep`. Throws
  /// EnvironmentError.
  CheckpointFolder(std::filesystem::path path, std::int64_t keep);

  /// Returns the steps of the checkpoints in it, ascending.
  std::vector<std::int64_t> steps() const;
  /// Returns where the checkpoint of a step lies, or will.
  std::filesystem::path of_step(std::int64_t step) const;
  /// Returns where it is made. All processes of a run know this name.
  std::filesystem::path unfinished(std::int64_t step) const;
  /// Makes that folder, empty.
  void begin(std::int64_t step) const;
  /// Syncs it, gives it its name and removes the oldest checkpoints. One of the same step is kept
  /// until the new one has its name.
  void finish(std::int64_t step) const;
  /// Removes what a checkpoint that failed has left, so that a full disk has room again. The next
  /// run removes what cannot be removed now.
  void abandon() const noexcept;

 private:
  /// Removes halves of checkpoints, and gives one that was being replaced its name back.
  void tidy() const;

  std::filesystem::path path_;
  std::int64_t keep_;
  Descriptor lock_;
};

/// Returns the name of a folder in which the checkpoint of a step is made, below the folder of
/// checkpoints.
std::filesystem::path unfinished_checkpoint(const std::filesystem::path& folder, std::int64_t step);

}  // namespace plimsoll
