// Traces: every interval is an event, to the picosecond.
#include "reports/trace.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace plimsoll {
namespace {

TEST(Trace, IsOneEventPerIntervalAndPointOfMemory) {
  Timeline timeline;
  Interval op;
  op.rank = 3;
  op.kind = OpKind::matmul;
  op.phase = Phase::backward;
  op.routine = "layer \"backward\"";
  op.layer = 1;
  op.posted = op.begin = Picoseconds(1'500'000'000'001);
  op.end = Picoseconds(1'500'002'000'003);
  Interval gather = op;
  gather.stream = Stream::mp;
  gather.kind = OpKind::all_gather;
  gather.posted = Picoseconds(1'500'000'000'000);
  Interval call = op;
  call.kind.reset();
  timeline.intervals = {op, gather, call};
  RankMemory memory;
  memory.rank = 3;
  memory.by_role[0] = Bytes(64);
  MemoryPoint point;
  point.by_role[0] = Bytes(64);
  memory.curve = {point};
  timeline.memory = {memory};

  const std::string text = chrome_trace(timeline);
  const Json trace = parse_json(text, "trace");
  std::vector<Json> complete, counters;
  std::vector<std::string> names;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") complete.push_back(event);
    if (event.at("ph") == "C") counters.push_back(event);
    if (event.at("ph") == "M") names.push_back(event.at("args").at("name"));
  }
  EXPECT_EQ(names, (std::vector<std::string>{"rank 3", "compute", "mp"}));
  ASSERT_EQ(complete.size(), 3u);
  EXPECT_EQ(complete[0].at("name"), "matmul");
  EXPECT_EQ(complete[0].at("pid"), 3);
  EXPECT_EQ(complete[0].at("args").at("routine"), op.routine);
  EXPECT_NE(text.find("\"ts\": 1500000.000001, \"dur\": 2.000002"), text.npos) << text;
  EXPECT_FALSE(complete[0].at("args").contains("wait_us"));
  EXPECT_EQ(complete[1].at("args").at("wait_us"), 0.000001);
  EXPECT_EQ(complete[2].at("name"), op.routine);
  ASSERT_EQ(counters.size(), 1u);
  EXPECT_EQ(counters[0].at("args").at("parameter"), 64);
  EXPECT_EQ(chrome_trace(timeline), text);
}

/// A viewer keeps the last value of a class, so it must be told when the class is gone.
TEST(Trace, EveryPointSaysEveryClassThatOccurs) {
  Timeline timeline;
  RankMemory memory;
  MemoryPoint before, after;
  after.time = Picoseconds(1'000'000);
  before.by_role[std::size_t(TensorRole::saved)] = Bytes(64);
  after.by_role[std::size_t(TensorRole::gradient)] = Bytes(128);
  memory.curve = {before, after};
  memory.by_role = after.by_role;  // the peak has no saved ones either
  timeline.memory = {memory};
  std::vector<Json> counters;
  const Json trace = parse_json(chrome_trace(timeline), "trace");
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "C") counters.push_back(event.at("args"));
  }
  ASSERT_EQ(counters.size(), 2u);
  EXPECT_EQ(counters[0], (Json{{"gradient", 0}, {"saved", 64}}));
  EXPECT_EQ(counters[1], (Json{{"gradient", 128}, {"saved", 0}}));
}

}  // namespace
}  // namespace plimsoll
