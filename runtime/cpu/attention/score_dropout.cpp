// Rows of scores are dropped a tile at a time.
#include "runtime/cpu/attention/score_dropout.h"

#include <algorithm>

#include "models/job/philox.h"
#include "runtime/cpu/vectorize.h"

namespace plimsoll {

namespace {

PLIMSOLL_VECTORIZE void keep_or_drop(float* values, const std::uint32_t* words,
                                     std::uint32_t threshold, float scale, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i)
    values[i] = words[i] >= threshold ? values[i] * scale : 0.0f;
}

}  // namespace

ScoreDropout::ScoreDropout(const KernelRequest& request, const AttentionOperands& shape,
                           std::int64_t columns, Scratch& scratch)
    : params_(shape.params) {
  if (params_.dropout <= 0) return;
  const BatchPlace place(request.context);
  const std::int64_t ranks = request.context.program->grid[Axis::cp];
  sequence_ = shape.keys.tokens / shape.params.key_ranks * ranks;
  place_.emplace(place);
  threshold_ = std::uint32_t(params_.dropout * 0x1p32);
  scale_ = float(1 / (1 - params_.dropout));
  words_ = reinterpret_cast<std::uint32_t*>(scratch.take_floats(columns));
}

void ScoreDropout::apply(const AttentionOperands& shape, const RunPosition& position,
                         std::int64_t batch, std::int64_t head, std::int64_t query, RowRange tile,
                         RowRange seen, float* row) const {
  if (position.step < 0) return;  // held out: all is kept
  const PhiloxKey key = philox_key(params_.seed, position.step, params_.site);
  const std::int64_t sequence = place_->first_sequence(position.micro_batch) + batch;
  const std::int64_t begin = ((sequence * shape.all_heads + shape.first_head + head) * sequence_ +
                              shape.queries.position(query)) *
                             sequence_;
  const std::int64_t chunk = shape.keys.chunk();
  for (std::int64_t i = seen.begin; i < seen.end;) {
    const std::int64_t token = tile.begin + i;
    const std::int64_t count = std::min(seen.end - i, chunk - token % chunk);
    philox_words(key, position.layer, begin + shape.keys.position(token), count, words_);
    keep_or_drop(row + i, words_, threshold_, scale_, count);
    i += count;
  }
}

}  // namespace plimsoll
