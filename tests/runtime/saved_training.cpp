// Trainings that are saved and go on.
#include "tests/runtime/saved_training.h"

#include <unistd.h>

#include <atomic>

#include "base/file.h"
#include "runtime/checkpoint/writer.h"
#include "tests/runtime/nano.h"

namespace plimsoll {

ScratchFolder::ScratchFolder() {
  static std::atomic<int> number{0};
  path_ = std::filesystem::temp_directory_path() /
          ("plimsoll-checkpoints-" + std::to_string(::getpid()) + "-" + std::to_string(number++));
  std::filesystem::create_directories(path_);
}
ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

TrainOptions some_steps(std::int64_t steps) {
  TrainOptions options;
  options.steps = steps;
  options.warm_up_steps = 0;
  options.keep_parameters = true;
  return options;
}

SaveOptions save_in(const std::filesystem::path& folder, const Job& job) {
  SaveOptions save;
  save.folder = folder;
  save.record.plan_digest = "made up";
  save.record.data_bytes = std::int64_t(nano_text().size());
  save.record.data_digest = "made up";
  save.record.rates = "made up";
  save.record.job = job;
  return save;
}

TrainResult go_on(const std::vector<Program>& programs, const Job& job,
                  const std::filesystem::path& folder, std::int64_t steps) {
  const auto saved = std::make_shared<SavedCheckpoint>(folder);
  saved->check_job(job);
  saved->check_tensors(programs);
  saved->check_values();
  TrainOptions options = some_steps(steps - saved->record().step);
  options.resume = saved;
  return train_nano(programs, options, job);
}

Continued continue_training(const std::vector<Program>& programs, const Job& job) {
  const ScratchFolder scratch;
  TrainOptions options = some_steps(2);
  options.save = save_in(scratch.path(), job);
  train_nano(programs, options, job);
  return {train_nano(programs, some_steps(4), job), go_on(programs, job, scratch.path(), 4)};
}

std::vector<std::string> saved_values(const std::filesystem::path& folder) {
  const SavedCheckpoint saved(folder);
  std::vector<std::string> contents;
  for (const std::string& name : file_names(saved.record().moments.size()))
    contents.push_back(read_file(saved.folder() / name));
  return contents;
}

void copy_through(const std::vector<Program>& programs, const std::filesystem::path& from,
                  const std::filesystem::path& to) {
  const SavedCheckpoint saved(from);
  const std::vector<WholeTensor> tensors = whole_tensors(programs);
  const std::vector<LaidFile> files = lay_out(tensors, kept_moments(programs));
  const CheckpointFolder folder(to, 1);
  const std::int64_t step = saved.record().step;
  folder.begin(step);
  make_files(folder.unfinished(step), files);
  WrittenSums sums;
  sums.files.assign(files.size(), std::vector<WrittenSums::Sum>(tensors.size()));
  const Grid& grid = programs[0].grid;
  const std::vector<WriteShare> shares = write_shares(programs, grid.world_size() - 1);
  for (std::int64_t rank = 0; rank < grid.world_size(); ++rank) {
    const Coordinates at = grid.coordinates(rank);
    const Program& program = programs[class_of(programs, at)];
    Arena arena(program, false);
    load_state(program, arena, at, *saved.reader());
    CheckpointWriter writer(folder.unfinished(step), files, tensors.size());
    save_state(program, arena, at, shares[std::size_t(rank)], writer);
    writer.sync();
    add(sums, to_bytes(writer.sums()));
  }
  CheckpointRecord record = saved.record();
  record.tensors.clear();
  add_tensors(record, tensors, files, sums);
  write_file_atomically(folder.unfinished(step) / kRecordName, checkpoint_text(record));
  folder.finish(step);
}

}  // namespace plimsoll
