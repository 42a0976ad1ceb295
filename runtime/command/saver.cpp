// Ranks agree on how a checkpoint went before and behind each of its steps: made, written, named.
#include <fmt/format.h>

#include <exception>

#include "base/error.h"
#include "base/file.h"
#include "runtime/checkpoint/writer.h"
#include "runtime/command/train.h"

namespace plimsoll {
namespace {

/// Messages between ranks begin with one of these.
constexpr char kDone = '+', kFailed = '-';

/// Returns what `work` returns, or why it failed.
template <class Work>
std::string attempt(const Work& work) {
  try {
    return kDone + work();
  } catch (const std::exception& error) {
    return kFailed + std::string(error.what());
  }
}

void refuse_failure(const std::string& message, std::int64_t steps) {
  if (message[0] == kDone) return;
  throw EnvironmentError(fmt::format("no checkpoint behind step {}: {}", steps, message.substr(1)));
}

}  // namespace

Saver::Saver(std::span<const Program> programs, const SaveOptions& options, std::int64_t first_rank,
             std::int64_t locals, std::int64_t steps, Processes* processes,
             std::chrono::milliseconds deadline)
    : options_(options),
      tensors_(whole_tensors(programs)),
      files_(lay_out(tensors_, kept_moments(programs))),
      first_rank_(first_rank),
      meeting_(make_meeting(locals, processes, deadline)) {
  shares_ = write_shares(programs, first_rank + locals - 1);
  shares_.erase(shares_.begin(), shares_.begin() + first_rank);
  if (first_rank != 0) return;
  folder_.emplace(options.folder, options.keep);
  const std::vector<std::int64_t> there = folder_->steps();
  if (there.empty() || there.back() <= steps) return;
  throw InputError(
      options.folder.string(), "",
      fmt::format("it has step-{}, and this run begins behind step {}: resume from it, "
                  "or save in another folder",
                  there.back(), steps));
}

void Saver::begin(std::int64_t steps) const {
  folder_->begin(steps);
  make_files(folder_->unfinished(steps), files_);
}

std::string Saver::write(std::int64_t local, std::int64_t steps, const Executor& executor) const {
  CheckpointWriter writer(unfinished_checkpoint(options_.folder, steps), files_, tensors_.size());
  executor.save(shares_[std::size_t(local)], writer);
  writer.sync();
  return to_bytes(writer.sums());
}

void Saver::finish(std::int64_t steps, const std::vector<std::string>& written,
                   const Scalars& scalars) const {
  WrittenSums sums;
  sums.files.assign(files_.size(), std::vector<WrittenSums::Sum>(tensors_.size()));
  for (std::size_t rank = 0; rank < written.size(); ++rank) {
    const std::string rest = written[rank].substr(1);
    if (written[rank][0] == kFailed) throw EnvironmentError(fmt::format("rank {}: {}", rank, rest));
    add(sums, rest);
  }
  CheckpointRecord record = options_.record;
  const auto scalar = [&](Scalar which) { return scalars[std::size_t(which)]; };
  record.step = steps;
  record.updates = std::int64_t(scalar(Scalar::step));
  record.loss_scale = scalar(Scalar::loss_scale);
  record.good_steps = std::int64_t(scalar(Scalar::good_steps));
  record.skipped_steps = std::int64_t(scalar(Scalar::skipped));
  record.overflowed = scalar(Scalar::found) != 0;
  record.moments = moment_names(files_.size() - 1);
  add_tensors(record, tensors_, files_, sums);
  write_file_atomically(folder_->unfinished(steps) / kRecordName, checkpoint_text(record));
  folder_->finish(steps);
}

void Saver::save(std::int64_t local, std::int64_t steps, const Executor& executor) {
  const bool leads = first_rank_ + local == 0;
  std::string message;
  const auto lead = [&](const auto& work) {
    message = attempt([&] { return work(), std::string(); });
    if (message[0] == kFailed) folder_->abandon();
  };
  if (leads) lead([&] { begin(steps); });
  refuse_failure(meeting_->broadcast(local, message), steps);

  message = attempt([&] { return write(local, steps, executor); });
  const std::vector<std::string> written = meeting_->gather(local, message);
  if (leads) lead([&] { finish(steps, written, executor.scalars()); });
  refuse_failure(meeting_->broadcast(local, message), steps);
  if (leads && options_.saved) options_.saved(folder_->of_step(steps));
}

}  // namespace plimsoll
