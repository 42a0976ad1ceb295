// An ExampleReader contains where the examples of a micro-batch's sequences begin and end.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "models/job/examples.h"
#include "runtime/batch_place.h"

namespace plimsoll {

/// Each token of padding is a separate example. If a job states no lengths, a sequence is one
/// example without end.
class ExampleReader {
 public:
  explicit ExampleReader(const RankContext& context) : rows_(context.text.examples) {
    if (rows_ == nullptr) return;
    place_.emplace(context);
    global_batch_ = context.text.global_batch;
    begin_.resize(std::size_t(place_->micro_batch * rows_->sequence()));
    end_ = begin_;
  }

  bool reads() const { return rows_ != nullptr; }
  /// Lays out the examples of a step's micro-batch, which the functions below are about.
  void read(const RunPosition& position) {
    if (!reads() || (step_ == position.step && micro_batch_ == position.micro_batch)) return;
    step_ = position.step;
    micro_batch_ = position.micro_batch;
    const std::int64_t length = rows_->sequence(), batch = place_->micro_batch;
    const std::int64_t first = place_->first_sequence(micro_batch_);
    for (std::int64_t i = 0; i < batch * length; ++i) {
      begin_[std::size_t(i)] = std::int32_t(i % length);
      end_[std::size_t(i)] = std::int32_t(i % length + 1);
    }
    targets_ = 0;
    rows_->each(step_, global_batch_, [&](std::int64_t row, std::int64_t at, std::int64_t tokens) {
      targets_ += tokens - 1;
      if (row < first || row >= first + batch) return;
      const std::int64_t from = (row - first) * length + at;
      std::fill_n(begin_.begin() + from, tokens, std::int32_t(at));
      std::fill_n(end_.begin() + from, tokens, std::int32_t(at + tokens));
    });
  }
  /// Returns the first position, and the end, of the example of a token at `position` in the
  /// micro-batch's sequence `of`.
  std::int64_t begin(std::int64_t of, std::int64_t position) const {
    return reads() ? begin_[std::size_t(of * rows_->sequence() + position)] : 0;
  }
  std::int64_t end(std::int64_t of, std::int64_t position) const {
    if (!reads()) return std::numeric_limits<std::int64_t>::max();
    return end_[std::size_t(of * rows_->sequence() + position)];
  }
  /// Returns the share in the loss of what this token predicts `ahead` tokens before it. It is
  /// nothing behind its example, and the shares of a step's next tokens have a mean of 1 over all
  /// tokens of the global batch: the loss is the mean over tokens that are predicted.
  double loss_share(std::int64_t of, std::int64_t position, std::int64_t ahead) const {
    if (!reads()) return 1;
    if (position + ahead >= end(of, position)) return 0;
    return double(global_batch_ * rows_->sequence()) / double(targets_);
  }

 private:
  const ExampleRows* rows_;
  std::optional<BatchPlace> place_;
  std::int64_t global_batch_ = 0, targets_ = 0, step_ = 0, micro_batch_ = -1;
  std::vector<std::int32_t> begin_, end_;  ///< by sequence and position
};

}  // namespace plimsoll
