// Trainings that are saved and go on.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "models/job/job.h"
#include "runtime/command/train.h"

namespace plimsoll {

/// An empty folder, removed at the end.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TrainOptions some_steps(std::int64_t steps);
SaveOptions save_in(const std::filesystem::path& folder, const Job& job);
/// Trains to `steps` steps in all, from the latest checkpoint in a folder, and checks that it fits.
TrainResult go_on(const std::vector<Program>& programs, const Job& job,
                  const std::filesystem::path& folder, std::int64_t steps);

/// A training of four steps at once, and its last two from a checkpoint behind the second.
struct Continued {
  TrainResult whole, resumed;
};
Continued continue_training(const std::vector<Program>& programs, const Job& job);

/// The contents of the files of the latest checkpoint in a folder, without checkpoint.json.
std::vector<std::string> saved_values(const std::filesystem::path& folder);
/// Reads the latest checkpoint in a folder into all ranks of the Programs and writes it from them,
/// in another folder, without a step between.
void copy_through(const std::vector<Program>& programs, const std::filesystem::path& from,
                  const std::filesystem::path& to);

}  // namespace plimsoll
