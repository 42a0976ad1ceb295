// Parts of sequences that are cut as wholes or example by example: each token is in one list, and
// lists, positions and rows of memory agree.
#include "runtime/sequence_part.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

namespace plimsoll {
namespace {

TEST(SequencePart, OfExamplesHasEachTokenOnce) {
  for (const std::int64_t ranks : {2, 4}) {
    const std::vector<std::int64_t> ends = {16, 24, 56, 64};
    const auto around = [&](std::int64_t position) {
      std::int64_t begin = 0, i = 0;
      while (ends[std::size_t(i)] <= position) begin = ends[std::size_t(i++)];
      return std::pair(begin, ends[std::size_t(i)]);
    };
    constexpr std::int64_t kTokens = 64, kBatch = 2;
    std::set<std::int64_t> positions, rows;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const SequencePart own{kTokens / ranks, ranks, rank, kBatch};
      std::int64_t last = -1;
      for (std::int64_t i = 0; i < own.tokens; ++i) {
        const auto [begin, end] = around(i * ranks);
        const std::int64_t position = own.position(i, begin, end);
        EXPECT_GT(position, last);
        last = position;
        positions.insert(position);
        const auto [first, behind] = around(position);
        EXPECT_EQ(own.before(position, first, behind), i);
        const SequencePart all{kTokens, ranks, -1, kBatch};
        for (const std::int64_t of : {0, 1}) {
          const std::int64_t row = all.row(of, position, first, behind);
          EXPECT_EQ(row, (rank * kBatch + of) * own.tokens + i);
          rows.insert(row);
        }
      }
    }
    EXPECT_EQ(positions.size(), std::size_t(kTokens));
    EXPECT_EQ(rows.size(), std::size_t(kTokens * kBatch));
  }
}

}  // namespace
}  // namespace plimsoll
