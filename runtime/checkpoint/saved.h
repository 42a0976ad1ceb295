// A SavedCheckpoint is a checkpoint that was found whole, from which a training may go on.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "plan/checkpoint.h"
#include "runtime/checkpoint/layout.h"

namespace plimsoll {

class SavedCheckpoint {
 public:
  /// Reads the checkpoint that `path` means, as find_checkpoint() says, without its values. Throws
  /// InputError where a file is missing, malformed, or does not match checkpoint.json.
  explicit SavedCheckpoint(const std::filesystem::path& path);

  const std::filesystem::path& folder() const { return folder_; }
  const CheckpointRecord& record() const { return record_; }

  /// Throws InputError where the job is another one: at its first field that differs and decides
  /// which model is trained, and on which data. Returns the fields that differ and may, in words.
  std::vector<std::string> check_job(const Job& job) const;
  /// Throws InputError where the tensors are not those of the Programs.
  void check_tensors(std::span<const Program> programs) const;
  /// Reads all values. Throws InputError at the tensor whose values are not those that were
  /// written.
  void check_values() const;

  /// Returns a reader for one rank. Its functions throw InputError where a file has become shorter,
  /// and EnvironmentError where it cannot be read.
  std::unique_ptr<StateReader> reader() const;

 private:
  std::filesystem::path folder_;
  CheckpointRecord record_;
  std::vector<LaidFile> files_;
};

}  // namespace plimsoll
