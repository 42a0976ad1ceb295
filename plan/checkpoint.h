// A CheckpointRecord is what a checkpoint says of itself, beside the values that it keeps.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/tensor.h"
#include "models/job/job.h"

namespace plimsoll {

inline constexpr std::int64_t kCheckpointVersion = 1;

/// Returns the names of so many moments of an optimizer, 0 to 2, as PyTorch calls them: those of
/// torch.optim.SGD or AdamW. Adafactor's have the latter.
const std::vector<std::string>& moment_names(std::size_t moments);

struct CheckpointTensor {
  std::string name;
  Shape shape;
  /// Checksums of its values in the model's file, and in those of the moments where it has some.
  std::vector<std::uint64_t> checksums;
};

struct CheckpointRecord {
  std::int64_t step = 0;  ///< steps that were made
  std::string plan_digest;
  std::int64_t data_bytes = 0;  ///< of the training text
  std::string data_digest;      ///< SHA-256 of the text
  std::string rates;            ///< the schedule of the learning rate, in words
  std::int64_t updates = 0;     ///< steps that changed the parameters
  double loss_scale = 1;
  std::int64_t good_steps = 0;       ///< in a row without overflow, since the scale last changed
  std::int64_t skipped_steps = 0;    ///< without update
  bool overflowed = false;           ///< whether the last step was
  std::vector<std::string> moments;  ///< names of the optimizer's moments
  std::vector<CheckpointTensor> tensors;
  Job job;
};

/// Reads the file checkpoint.json of a checkpoint. Throws InputError unless the keys are exactly
/// these, moments are those of an optimizer, each tensor has its checksums, and the digest at the
/// end is that of the other keys.
CheckpointRecord parse_checkpoint(std::string_view text, const std::string& file);
std::string checkpoint_text(const CheckpointRecord& record);

}  // namespace plimsoll
