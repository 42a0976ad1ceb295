// A rank whose deadline has passed says what it has seen of the other ranks.
#include "runtime/comm/rank_status.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "tests/states.h"

namespace plimsoll {
namespace {

constexpr std::chrono::seconds kDeadline{4};
constexpr std::int64_t kSecond = 1'000'000'000;

RankReport report(std::int64_t rank, std::int64_t silent, bool waits) {
  RankReport made;
  made.rank = rank;
  made.silent = silent;
  made.waits = waits;
  made.posts[0] = {rank + 1, 2, short_text("all_reduce")};
  return made;
}

std::string who(std::vector<RankReport> ranks, bool all = true) {
  const std::string said = describe(ranks, kDeadline, all);
  return said.substr(0, said.find(" ("));
}

TEST(RankStatus, NamesRanksThatGiveNoSignThenNoAnswerThenThoseThatCompute) {
  const RankReport waits = report(0, 0, true), computes = report(1, kSecond, false);
  const RankReport stopped = report(2, 3 * kSecond, false);
  const RankReport unknown = report(3, RankReport::kNoAnswer, false);
  EXPECT_TRUE(states(who({waits, computes, stopped, unknown}),
                     {"rank 2", "no sign", "3.0 s", "rank 3", "no answer"}));
  EXPECT_TRUE(states(who({waits, computes, unknown}), {"rank 3", "no answer"}));
  EXPECT_TRUE(states(who({waits, computes}), {"rank 1", "computes"}));
  EXPECT_TRUE(states(who({waits}), {"all ranks wait"}));
  EXPECT_TRUE(states(who({waits}, false), {"all ranks", "this host"}));
}

TEST(RankStatus, HasTheLastPostsOfEachRankThatAnswered) {
  RankReport waits = report(6, 0, true);
  waits.posts[1] = {6, 2, short_text("send")};
  waits.posts[2] = {5, 1, short_text("recv")};
  EXPECT_TRUE(
      states(describe(std::vector{waits, report(7, RankReport::kNoAnswer, false)}, kDeadline, true),
             {"rank 7", "rank 6: waits", "step 3", "post 7: all_reduce", "6: send", "5: recv"}));
}

TEST(RankStatus, OfLongTextsKeepsTheBegin) {
  const std::array<char, 96> kept = short_text(std::string(200, 'a'));
  EXPECT_EQ(std::string(kept.data()), std::string(95, 'a'));
}

/// Two ranks, of which the second may be on another host.
struct Board {
  RankStatus first, second;
  RankStatusBoard board{first, {{0, &first}, {1, &second}}, true};
};

TEST(RankStatusBoard, KeepsTheLastPosts) {
  Board of;
  for (const char* what : {"one", "two", "three", "four", "five"})
    of.board.posts(what, {0, "layer", 0});
  of.board.waits_to("meet the other ranks");
  const std::vector<RankReport> seen = of.board.reports();
  EXPECT_TRUE(seen[0].waits);
  std::vector<std::string> kept;
  for (const PostReport& post : seen[0].posts)
    kept.push_back(std::to_string(post.number) + " " + post.what.data());
  EXPECT_EQ(kept,
            (std::vector<std::string>{"6 meet the other ranks", "5 five in routine layer",
                                      "4 four in routine layer", "3 three in routine layer"}));
  EXPECT_NE(of.board.describe(kDeadline).find("rank 1: has posted nothing"), std::string::npos);
}

// The streams of a GPU come to communications again that were shown before.
TEST(RankStatusBoard, GoesBackToAnEarlierCommunication) {
  Board of;
  for (const std::int64_t number : {7, 8, 9}) of.board.is_at(number, 0, "to send");
  of.board.is_at(8, 0, "kernels before it are to send");
  of.second.waits = true;
  EXPECT_TRUE(states(of.board.describe(kDeadline),
                     {"rank 0", "rank 0: computes", "step 1", "post 8: kernels before it",
                      "7: to send", "rank 1: has posted nothing"}));
}

TEST(RankStatusBoard, AsksForTheRanksOfOtherHosts) {
  RankStatus own;
  RankStatusBoard board(own, {{1, &own}}, false);
  board.waits_to("meet the other ranks");
  EXPECT_EQ(board.describe(kDeadline).substr(0, 27), "all ranks of this host wait");
  board.set_others([] { return std::optional(std::vector{report(0, 0, false)}); });
  EXPECT_EQ(board.describe(kDeadline).substr(0, 49),
            "rank 0 still computes (rank 0: computes, step 3, ");
  board.set_others([] { return std::optional<std::vector<RankReport>>(); });
  EXPECT_EQ(board.describe(kDeadline).substr(0, 27), "all ranks of this host wait");
}

}  // namespace
}  // namespace plimsoll
