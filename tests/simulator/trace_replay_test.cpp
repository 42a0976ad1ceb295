// A recorded step whose every address follows from the rules of PyTorch's allocator by hand, and
// records that no such allocator can have made.
#include "simulator/memory/trace_replay.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace plimsoll {
namespace {

// Addresses and sizes in MiB unless a number says bytes. Before the first event: 20 at 100, of
// which 8 are handed out; 2 at 400 with 512 bytes handed out, of the pool for small requests; 32 at
// 200, all free.
const std::string kTrace = R"([{
  "id": "by hand",
  "initial": {"segments": [[104857600, 20971520], [419430400, 2097152], [209715200, 33554432]],
              "live": [[1, 104857600, 8388608], [2, 419430400, 512]]},
  "events": [
    ["R", 33554432, 209715200],
    ["a", 3, 4194304, 113246208],
    ["a", 4, 1000, 419430912],
    ["S", 20971520, 52428800], ["a", 5, 9437184, 52428800],
    ["f", 3],
    ["a", 6, 11534336, 61865984],
    ["f", 5],
    ["a", 7, 8912896, 52428800],
    ["S", 14680064, 314572800], ["a", 8, 13631488, 314572800],
    ["a", 9, 1, 419431936]
  ],
  "expected": {"peak_reserved_bytes": 58720256}}])";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

TraceReplay replay_of(const std::string& text) {
  return replay(parse_allocator_traces(text, "traces.json").at(0));
}

std::string error_of(const std::string& text) {
  try {
    parse_allocator_traces(text, "traces.json");
  } catch (const InputError& error) {
    return error.pointer() + ": " + error.what();
  }
  return "";
}

TEST(TraceReplay, EverySegmentAndEveryAddressIsFoundAgain) {
  ASSERT_TRUE(is_allocator_traces(kTrace, "traces.json"));
  EXPECT_FALSE(is_allocator_traces(R"([{"id": "a run"}])", "runs.json"));
  const TraceReplay found = replay_of(kTrace);
  EXPECT_TRUE(found.exact()) << found.first_difference;
  EXPECT_EQ(found.allocations, 7);
  EXPECT_EQ(found.equal_addresses, 7);
  EXPECT_EQ(found.segments, 2);
  EXPECT_EQ(found.equal_segments, 2);
  EXPECT_EQ(found.other_segments, 0);
  EXPECT_EQ(found.given_back, 1);
  EXPECT_EQ(found.simulated_given_back, 1);
  EXPECT_EQ(found.simulated_most_reserved, Bytes(std::int64_t{56} << 20));
}

TEST(TraceReplay, AnotherAddressIsNoticedAtItsEvent) {
  const TraceReplay found =
      replay_of(replaced(kTrace, R"(["a", 6, 11534336, 61865984])", R"(["a", 6, 11534336, 0])"));
  EXPECT_FALSE(found.exact());
  EXPECT_EQ(found.first_difference, 6);
  EXPECT_EQ(found.equal_addresses, 6);
  EXPECT_EQ(found.equal_segments, 2) << "the segments are the same";
}

TEST(TraceReplay, AnotherSegmentIsNoticedAtItsAllocation) {
  // 22 MiB for a request of 9 MiB: the real one takes 20.
  std::string text =
      replaced(kTrace, R"(["S", 20971520, 52428800])", R"(["S", 23068672, 52428800])");
  text = replaced(text, "58720256", "60817408");
  const TraceReplay found = replay_of(text);
  EXPECT_FALSE(found.exact());
  EXPECT_EQ(found.first_difference, 4);
  EXPECT_EQ(found.equal_segments, 1);
  EXPECT_EQ(found.other_segments, 1);
  EXPECT_NE(found.simulated_most_reserved, found.most_reserved);
}

TEST(TraceReplay, ASegmentThatStaysIsNoticed) {
  std::string text = replaced(kTrace, R"(["R", 33554432, 209715200],)", "");
  text = replaced(text, "58720256", "92274688");
  const TraceReplay found = replay_of(text);
  EXPECT_EQ(found.given_back, 0);
  EXPECT_FALSE(found.exact()) << "32 MiB free: no segment is needed for 9";
}

TEST(AllocatorTraces, RefuseWhatNoAllocatorDoes) {
  EXPECT_EQ(error_of(kTrace), "");
  const auto broken = [](const std::string& from, const std::string& to) {
    return error_of(replaced(kTrace, from, to));
  };
  EXPECT_NE(broken(R"(["f", 5])", R"(["f", 3])").find("/0/events/7"), std::string::npos);
  EXPECT_NE(broken(R"(["f", 3])", R"(["f", 3, 4])").find("[\"f\", id]"), std::string::npos);
  EXPECT_NE(broken(R"(["a", 9,)", R"(["a", 8,)").find("alive already"), std::string::npos);
  EXPECT_NE(broken(R"(["a", 9, 1,)", R"(["a", 9, -1,)").find("/0/events/11/2"), std::string::npos);
  EXPECT_NE(broken("33554432, 209715200],\n", "1024, 209715200],\n").find("no such segment"),
            std::string::npos);
  EXPECT_NE(broken("14680064, 314572800", "14680064, 110100480").find("overlaps"),
            std::string::npos);
  EXPECT_NE(broken("[1, 104857600, 8388608]", "[1, 94371840, 8388608]").find("block 1"),
            std::string::npos);
  EXPECT_NE(broken("58720256", "58720257").find("peak of 58720256"), std::string::npos);
  EXPECT_NE(broken(R"(["f", 5])", R"(["x", 5])").find("known are"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
