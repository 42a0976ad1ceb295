// Where a sequence of the global batch lies in the training text.
#pragma once

#include "runtime/cpu/kernels.h"

namespace plimsoll {

class SequenceReader {
 public:
  /// For a load op. Throws InputError where the text is shorter than one sequence.
  explicit SequenceReader(const KernelRequest& request);

  /// Sequence `index` of a step's global batch, with one byte after it.
  const std::byte* sequence(std::int64_t step, std::int64_t index) const {
    return text_.bytes.data() + (step * text_.global_batch + index) * sequence_ % starts_;
  }

 private:
  TrainingText text_;
  std::int64_t sequence_, starts_;
};

}  // namespace plimsoll
