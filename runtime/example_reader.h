// An ExampleReader contains where the examples of a micro-batch's sequences begin and end.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
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
    if (rows_->cuts_examples(context.program->grid[Axis::cp])) cut_begin_ = cut_end_ = begin_;
  }

  bool reads() const { return rows_ != nullptr; }
  /// The micro-batches that a rank has in a step, those of its partner among them.
  std::int64_t micro_batches() const {
    return place_->micro_batches * (place_->partner_index == place_->batch_index ? 1 : 2);
  }
  std::int64_t micro_batch() const { return place_->micro_batch; }
  std::int64_t sequence() const { return rows_->sequence(); }
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
    std::ranges::fill(cut_begin_, 0);
    std::ranges::fill(cut_end_, std::int32_t(length));
    targets_ = 0;
    rows_->each(step_, global_batch_, [&](std::int64_t row, std::int64_t at, std::int64_t tokens) {
      targets_ += tokens - 1;
      if (row < first || row >= first + batch) return;
      const std::int64_t from = (row - first) * length + at;
      std::fill_n(begin_.begin() + from, tokens, std::int32_t(at));
      std::fill_n(end_.begin() + from, tokens, std::int32_t(at + tokens));
      if (!cuts()) return;
      std::fill_n(cut_begin_.begin() + from, tokens, std::int32_t(at));
      std::fill_n(cut_end_.begin() + from, tokens, std::int32_t(at + tokens));
      std::fill(cut_begin_.begin() + from + tokens, cut_begin_.begin() + from - at + length,
                std::int32_t(at + tokens));  // padding, unless an example follows
    });
  }
  /// Returns the first position, and the end, of the example of a token at `position` in the
  /// micro-batch's sequence `of`.
  std::int64_t begin(std::int64_t of, std::int64_t position) const {
    return reads() ? begin_[index(of, position)] : 0;
  }
  std::int64_t end(std::int64_t of, std::int64_t position) const {
    if (!reads()) return std::numeric_limits<std::int64_t>::max();
    return end_[index(of, position)];
  }
  /// Returns the share in the loss of what this token predicts `ahead` tokens before it. It is
  /// nothing behind its example, and the shares of a step's next tokens have a mean of 1 over all
  /// tokens of the global batch: the loss is the mean over tokens that are predicted.
  double loss_share(std::int64_t of, std::int64_t position, std::int64_t ahead) const {
    if (!reads()) return 1;
    return position + ahead < end(of, position) ? share() : 0;
  }
  /// Whether ranks that share a sequence share each example. Padding is then cut as one.
  bool cuts() const { return !cut_begin_.empty(); }
  /// These are the functions of a part of sequence `of`.
  std::int64_t position(const SequencePart& part, std::int64_t of, std::int64_t i) const {
    if (!cuts() || part.rank < 0) return part.position(i);
    const std::size_t at = index(of, i * part.ranks);
    return part.position(i, cut_begin_[at], cut_end_[at]);
  }
  std::int64_t before(const SequencePart& part, std::int64_t of, std::int64_t position) const {
    if (!cuts() || part.rank < 0 || position <= 0 || position >= rows_->sequence())
      return part.before(position);
    const std::size_t at = index(of, position);
    return part.before(position, cut_begin_[at], cut_end_[at]);
  }
  std::int64_t row(const SequencePart& part, std::int64_t of, std::int64_t i) const {
    if (!cuts() || part.rank >= 0) return part.row(of, i);
    const std::size_t at = index(of, i);
    return part.row(of, i, cut_begin_[at], cut_end_[at]);
  }
  /// Returns the share of a token that is predicted.
  double share() const { return double(global_batch_ * rows_->sequence()) / double(targets_); }
  std::span<const std::int32_t> begins() const { return begin_; }
  std::span<const std::int32_t> ends() const { return end_; }
  std::span<const std::int32_t> cut_begins() const { return cut_begin_; }
  std::span<const std::int32_t> cut_ends() const { return cut_end_; }

 private:
  std::size_t index(std::int64_t of, std::int64_t position) const {
    return std::size_t(of * rows_->sequence() + position);
  }

  const ExampleRows* rows_;
  std::optional<BatchPlace> place_;
  std::int64_t global_batch_ = 0, targets_ = 0, step_ = 0, micro_batch_ = -1;
  std::vector<std::int32_t> begin_, end_;  ///< by sequence and position
  std::vector<std::int32_t> cut_begin_, cut_end_;
};

}  // namespace plimsoll
