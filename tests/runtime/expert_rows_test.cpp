// Collectives of rows of experts, whose number depends on data, against moving row by row.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "runtime/comm/transfer.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kRanks = 3, kExperts = 4, kColumns = 2, kMost = 40;

/// Rows of three ranks. Some experts get none of some ranks.
struct Rows {
  std::vector<std::int32_t> ends;  // [ranks, experts]
  std::vector<std::vector<float>> own, all;
  explicit Rows(std::mt19937_64& random) {
    for (std::int64_t rank = 0; rank < kRanks; ++rank) {
      std::int32_t end = 0;
      for (std::int64_t e = 0; e < kExperts; ++e) ends.push_back(end += std::int32_t(random() % 3));
      own.emplace_back(kMost * kColumns);
      all.emplace_back(kMost * kColumns);
      for (float& value : own.back()) value = float(random() % 100);
      for (float& value : all.back()) value = float(random() % 100);
    }
  }
  std::int64_t first(std::int64_t rank, std::int64_t expert) const {
    return expert == 0 ? 0 : ends[std::size_t(rank * kExperts + expert - 1)];
  }
  std::int64_t last(std::int64_t rank, std::int64_t expert) const {
    return ends[std::size_t(rank * kExperts + expert)];
  }
  void move(OpKind kind, std::vector<std::vector<float>>& from, std::vector<std::vector<float>>& to,
            std::int64_t most = kMost) const {
    std::vector<MemberData> members;
    for (std::size_t i = 0; i < kRanks; ++i) {
      members.push_back({reinterpret_cast<std::byte*>(from[i].data()),
                         reinterpret_cast<std::byte*>(to[i].data()),
                         {ends.data(), kExperts, kColumns, true, most}});
    }
    move_collective(kind, {}, DType::f32, kMost * kColumns, members);
  }
  /// Calls visit(rank, row with that rank, row among all) in the order of all rows.
  template <class Visit>
  void each(Visit visit) const {
    std::int64_t together = 0;
    for (std::int64_t e = 0; e < kExperts; ++e) {
      for (std::int64_t rank = 0; rank < kRanks; ++rank) {
        for (std::int64_t row = first(rank, e); row < last(rank, e); ++row)
          visit(std::size_t(rank), row, together++);
      }
    }
  }
};

float at(const std::vector<float>& rows, std::int64_t row, std::int64_t column) {
  return rows[std::size_t(row * kColumns + column)];
}

TEST(ExpertRows, OfAllRanksAreSortedByExpertAndThenByRank) {
  std::mt19937_64 random(1);
  for (int draw = 0; draw < 50; ++draw) {
    Rows rows(random);
    rows.move(OpKind::all_gather_rows, rows.own, rows.all);
    rows.each([&](std::size_t rank, std::int64_t row, std::int64_t together) {
      for (const std::vector<float>& all : rows.all) {
        for (std::int64_t c = 0; c < kColumns; ++c)
          EXPECT_EQ(at(all, together, c), at(rows.own[rank], row, c));
      }
    });
  }
}

// A rank that gets more rows than it has memory for must not write behind it before the run ends.
TEST(ExpertRows, WithoutMemoryAreNotMoved) {
  std::mt19937_64 random(3);
  for (std::int64_t most = 0; most < 12; ++most) {
    Rows rows(random);
    const std::vector<std::vector<float>> before = rows.all;
    rows.move(OpKind::all_gather_rows, rows.own, rows.all, most);
    rows.each([&](std::size_t rank, std::int64_t row, std::int64_t together) {
      for (std::size_t i = 0; i < kRanks; ++i) {
        const float expected =
            together < most ? at(rows.own[rank], row, 0) : at(before[i], together, 0);
        EXPECT_EQ(at(rows.all[i], together, 0), expected);
      }
    });
  }
}

// Ranks have the experts 2 r and 2 r + 1. What none has memory for comes back as 0.
TEST(ExpertRows, ComeBackOrAreDropped) {
  std::mt19937_64 random(4);
  constexpr std::int64_t kPairs = 2;
  for (std::int64_t most = 0; most < 12; ++most) {
    Rows rows(random);
    const std::vector<std::vector<float>> before = rows.own;
    const auto move = [&](OpKind kind, std::vector<std::vector<float>>& from,
                          std::vector<std::vector<float>>& to) {
      std::vector<MemberData> members;
      for (std::size_t i = 0; i < kPairs; ++i) {
        members.push_back({reinterpret_cast<std::byte*>(from[i].data()),
                           reinterpret_cast<std::byte*>(to[i].data()),
                           {rows.ends.data(), kExperts, kColumns, false, most}});
      }
      move_collective(kind, {}, DType::f32, kMost * kColumns, members);
    };
    move(OpKind::exchange_rows, rows.own, rows.all);
    move(OpKind::return_rows, rows.all, rows.own);
    std::vector<std::int64_t> received(kPairs);
    for (std::int64_t e = 0; e < kExperts; ++e) {
      std::int64_t& taken = received[std::size_t(e / 2)];
      for (std::size_t rank = 0; rank < kPairs; ++rank) {
        for (std::int64_t row = rows.first(std::int64_t(rank), e);
             row < rows.last(std::int64_t(rank), e); ++row) {
          const float expected = taken++ < most ? at(before[rank], row, 1) : 0;
          EXPECT_EQ(at(rows.own[rank], row, 1), expected) << "rank " << rank << " row " << row;
        }
      }
    }
  }
}

TEST(ExpertRows, AreSummedForTheRankThatGaveThem) {
  std::mt19937_64 random(2);
  for (int draw = 0; draw < 50; ++draw) {
    Rows rows(random);
    rows.move(OpKind::reduce_scatter_rows, rows.all, rows.own);
    rows.each([&](std::size_t rank, std::int64_t row, std::int64_t together) {
      for (std::int64_t c = 0; c < kColumns; ++c) {
        float sum = 0;
        for (const std::vector<float>& all : rows.all) sum += at(all, together, c);
        EXPECT_EQ(at(rows.own[rank], row, c), sum);
      }
    });
  }
}

}  // namespace
}  // namespace plimsoll
