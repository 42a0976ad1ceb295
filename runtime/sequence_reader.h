// A SequenceReader says where a sequence of the global batch lies in the training text.
#pragma once

#include <string>

#include "base/error.h"
#include "runtime/backend.h"

namespace plimsoll {

class SequenceReader {
 public:
  /// Throws InputError where a text is shorter than one sequence.
  SequenceReader(const TrainingText& text, std::int64_t sequence)
      : text_(text), sequence_(sequence), starts_(starts_in(text.bytes)) {
    if (!text.held_out.empty()) held_out_starts_ = starts_in(text.held_out);
  }

  /// Returns the byte of its text at which sequence `index` of a step's global batch starts.
  std::int64_t start(std::int64_t step, std::int64_t index) const {
    const std::int64_t batch = step < 0 ? -1 - step : step;
    return (batch * text_.global_batch + index) * sequence_ %
           (step < 0 ? held_out_starts_ : starts_);
  }
  /// Returns the sequence, with one byte after it.
  const std::byte* sequence(std::int64_t step, std::int64_t index) const {
    return text_of(step).data() + start(step, index);
  }
  /// Returns its text's last byte, counted from the start of the sequence.
  std::int64_t last(std::int64_t step, std::int64_t index) const {
    return std::int64_t(text_of(step).size()) - 1 - start(step, index);
  }
  /// Returns how many values start() has: it is (step * global_batch + index) * sequence mod
  /// starts.
  std::int64_t starts() const { return starts_; }
  /// Returns how many there are in the text that is held out.
  std::int64_t held_out_starts() const { return held_out_starts_; }

 private:
  std::span<const std::byte> text_of(std::int64_t step) const {
    return step < 0 ? text_.held_out : text_.bytes;
  }
  std::int64_t starts_in(std::span<const std::byte> text) const {
    const std::int64_t starts = std::int64_t(text.size()) - sequence_ - 1;
    if (starts > 0) return starts;
    throw InputError("training text", "",
                     "found " + std::to_string(text.size()) + " bytes; a sequence of " +
                         std::to_string(sequence_) + " needs at least " +
                         std::to_string(sequence_ + 2));
  }

  TrainingText text_;
  std::int64_t sequence_, starts_;
  std::int64_t held_out_starts_ = 1;
};

}  // namespace plimsoll
