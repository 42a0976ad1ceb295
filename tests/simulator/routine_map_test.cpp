// Composed routines: by hand, and against the ops one by one.
#include "simulator/engine/routine_map.h"

#include <gtest/gtest.h>
// rapidcheck's GoogleTest macros need gtest.h first.
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "simulator/engine/stream_engine.h"

namespace plimsoll {
namespace {

TEST(RoutineMap, TwoStreamsByHand) {
  // compute 10, then mp 5 which waits for it, then compute 3 which waits for mp; 1 to issue each.
  const std::vector<std::uint32_t> none, first = {0}, second = {1};
  const std::vector<RoutineOp> ops = {{0, Picoseconds(1), Picoseconds(10), none},
                                      {1, Picoseconds(1), Picoseconds(5), first},
                                      {0, Picoseconds(1), Picoseconds(3), second}};
  const std::vector<std::uint32_t> events = {1};
  const RoutineMap map = compose(ops, events);
  EXPECT_EQ(map.dispatch.count(), 3);
  EXPECT_EQ(map.streams, (std::vector<std::uint32_t>{0, 1}));
  std::vector<Picoseconds> rows(4);
  // Issued at 100, nothing awaited, streams free: compute ends 101 + 10 + 5 + 3.
  apply(map, std::vector<Picoseconds>{Picoseconds(100), {}, {}, {}}.data(), rows.data());
  EXPECT_EQ(rows[0].count(), 119);
  EXPECT_EQ(rows[1].count(), 116);  // mp
  EXPECT_EQ(rows[2].count(), 119);  // all
  EXPECT_EQ(rows[3].count(), 116);  // op 1
  // The mp stream is busy until 500: its op is held up, and what waits for it.
  apply(map, std::vector<Picoseconds>{Picoseconds(100), {}, {}, Picoseconds(500)}.data(),
        rows.data());
  EXPECT_EQ(rows[1].count(), 505);
  EXPECT_EQ(rows[0].count(), 508);
  // An awaited event holds up the first op of both streams.
  apply(map, std::vector<Picoseconds>{Picoseconds(100), Picoseconds(300), {}, {}}.data(),
        rows.data());
  EXPECT_EQ(rows[1].count(), 315);
}

TEST(RoutineMap, AHostThatWaitsInsideIssuesTheRestLater) {
  // 1 to issue and 10 to run, of which the host waits for the first and 4 longer.
  const std::vector<std::uint32_t> none;
  const std::vector<RoutineOp> ops = {{0, Picoseconds(1), Picoseconds(10), none, Picoseconds(4)},
                                      {1, Picoseconds(1), Picoseconds(10), none}};
  const RoutineMap map = compose(ops, {});
  EXPECT_TRUE(map.host_waits);
  std::vector<Picoseconds> rows(4);
  apply(map, std::vector<Picoseconds>{Picoseconds(100), {}, Picoseconds(200), {}}.data(),
        rows.data());
  EXPECT_EQ(rows[0].count(), 210);
  EXPECT_EQ(rows[1].count(), 225);
  EXPECT_EQ(rows[2].count(), 225);  // all
  EXPECT_EQ(rows[3].count(), 215);  // the host has issued all
}

RC_GTEST_PROP(RoutineMap, EqualsItsOpsOneByOne, ()) {
  const auto count = *rc::gen::inRange<std::size_t>(1, 12);
  std::vector<std::vector<std::uint32_t>> waits(count);
  std::vector<RoutineOp> ops;
  for (std::uint32_t i = 0; i < count; ++i) {
    for (std::uint32_t j = 0; j < i; ++j) {
      if (*rc::gen::inRange(0, 4) == 0) waits[i].push_back(j);
    }
    ops.push_back({*rc::gen::inRange<std::uint32_t>(0, 3), Picoseconds(*rc::gen::inRange(1, 20)),
                   Picoseconds(*rc::gen::inRange(0, 30)), waits[i]});
    if (*rc::gen::inRange(0, 4) == 0) ops.back().host_wait = Picoseconds(*rc::gen::inRange(0, 9));
  }
  const std::vector<std::uint32_t> events = {
      *rc::gen::inRange<std::uint32_t>(0, std::uint32_t(count))};
  const RoutineMap map = compose(ops, events);

  // Three calls in a row, the last of which waits for the chosen op of the first.
  StreamEngine whole, single;
  whole.add_rank({0, 0, 0});
  single.add_rank({0, 1, 2});
  StreamEngine::Event awaited_whole = 0, awaited_single = 0, last_whole = 0, last_single = 0;
  for (int call = 0; call < 3; ++call) {
    std::vector<StreamEngine::Event> outside;
    if (call == 2) outside = {awaited_whole};
    last_whole = whole.add_call(map, outside);
    if (call == 0) awaited_whole = last_whole + 1;
    std::array<bool, 3> used = {};
    std::vector<StreamEngine::Event> own;
    for (std::uint32_t i = 0; i < count; ++i) {
      std::vector<StreamEngine::Event> all;
      for (std::uint32_t wait : waits[i]) all.push_back(own[wait]);
      if (call == 2 && !used[ops[i].stream]) all.push_back(awaited_single);
      used[ops[i].stream] = true;
      const auto event = single.add_op({ops[i].stream, ops[i].dispatch, ops[i].duration, {}}, all);
      own.push_back(event);
      if (call == 0 && i == events[0]) awaited_single = event;
      if (ops[i].host_wait) single.add_host_wait(*ops[i].host_wait, std::vector{event});
    }
    last_single = own[events[0]];
  }
  const std::vector<Picoseconds> starts = {Picoseconds(*rc::gen::inRange(0, 50))};
  const auto a = whole.run(starts), b = single.run(starts);
  RC_ASSERT(a.rank_end == b.rank_end);
  RC_ASSERT(a.host_end == b.host_end);
  RC_ASSERT(a.fired[awaited_whole] == b.fired[awaited_single]);
  RC_ASSERT(a.fired[last_whole + 1] == b.fired[last_single]);
}

}  // namespace
}  // namespace plimsoll
