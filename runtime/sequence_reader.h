// A SequenceReader says where a sequence of the global batch lies in the training text.
#pragma once

#include <string>

#include "base/error.h"
#include "runtime/backend.h"

namespace plimsoll {

class SequenceReader {
 public:
  /// Throws InputError where the text is shorter than one sequence.
  SequenceReader(const TrainingText& text, std::int64_t sequence)
      : text_(text), sequence_(sequence), starts_(std::int64_t(text.bytes.size()) - sequence - 1) {
    if (starts_ > 0) return;
    throw InputError("training text", "",
                     "found " + std::to_string(text.bytes.size()) + " bytes; a sequence of " +
                         std::to_string(sequence) + " needs at least " +
                         std::to_string(sequence + 2));
  }

  /// Returns the byte of the text at which sequence `index` of a step's global batch starts.
  std::int64_t start(std::int64_t step, std::int64_t index) const {
    return (step * text_.global_batch + index) * sequence_ % starts_;
  }
  /// Returns the sequence, with one byte after it.
  const std::byte* sequence(std::int64_t step, std::int64_t index) const {
    return text_.bytes.data() + start(step, index);
  }
  /// Returns the text's last byte, counted from the start of the sequence.
  std::int64_t last(std::int64_t step, std::int64_t index) const {
    return std::int64_t(text_.bytes.size()) - 1 - start(step, index);
  }
  /// Returns how many values start() has: it is (step * global_batch + index) * sequence mod
  /// starts.
  std::int64_t starts() const { return starts_; }

 private:
  TrainingText text_;
  std::int64_t sequence_, starts_;
};

}  // namespace plimsoll
