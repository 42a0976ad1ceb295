// The local communicator: results of every kind, bitwise reproducibility, stream order, and what
// happens when ranks disagree, stop or fail.
#include "runtime/communicator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <thread>

#include "base/error.h"
#include "runtime/half.h"
#include "tests/runtime/patience.h"
#include "tests/states.h"

namespace plimsoll {
namespace {

using std::chrono::milliseconds;
using Floats = std::vector<float>;

const Group kMp{{Axis::mp}, false};
const Group kDp{{Axis::dp}, false};

Grid grid_of(std::int64_t mp, std::int64_t dp = 1, std::int64_t pp = 1) {
  Grid grid;
  grid.degree[std::size_t(Axis::mp)] = mp;
  grid.degree[std::size_t(Axis::dp)] = dp;
  grid.degree[std::size_t(Axis::pp)] = pp;
  return grid;
}

std::byte* bytes(Floats& values) { return reinterpret_cast<std::byte*>(values.data()); }

/// Runs `body(rank, communicator)` on a thread per rank; returns what each threw ("" for nothing).
std::vector<std::string> on_ranks(const Grid& grid, milliseconds deadline,
                                  const std::function<void(std::int64_t, Communicator&)>& body) {
  auto handles = make_local_communicators(grid, deadline, std::chrono::steady_clock::now());
  std::vector<std::string> errors(handles.size());
  std::vector<std::jthread> threads;
  for (std::size_t rank = 0; rank < handles.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(std::int64_t(rank), *handles[rank]);
      } catch (const RankFailure& error) {
        errors[rank] = std::string("RankFailure: ") + error.what();
      } catch (const EnvironmentError& error) {
        errors[rank] = std::string("EnvironmentError: ") + error.what();
      } catch (const std::exception& error) {
        errors[rank] = error.what();
      }
    });
  }
  threads.clear();
  return errors;
}

void expect_no_errors(const std::vector<std::string>& errors) {
  for (std::size_t rank = 0; rank < errors.size(); ++rank) EXPECT_EQ(errors[rank], "") << rank;
}

CollectiveOperand whole(Floats& values) {
  return {DType::f32, std::int64_t(values.size()), bytes(values)};
}

Communicator::Ticket all_reduce(Communicator& ranks, Floats& values, const Group& group = kMp,
                                const CommunicationLabel& label = {1, "test", 0}) {
  return ranks.post_collective(OpKind::all_reduce, {group}, whole(values), label);
}

/// Value of element i on a rank: small integers, so sums are exact.
float value(std::int64_t rank, std::int64_t i) { return float((rank + 1) * 1000 + i % 97); }

Floats operand(std::int64_t rank, std::int64_t elements) {
  Floats values;
  for (std::int64_t i = 0; i < elements; ++i) values.push_back(value(rank, i));
  return values;
}

class EverySize : public testing::TestWithParam<std::tuple<std::int64_t, std::int64_t>> {};

TEST_P(EverySize, AllReduceAddsEveryRanksOperand) {
  const auto [ranks, parts] = GetParam();
  const std::int64_t elements = parts * ranks;
  expect_no_errors(on_ranks(grid_of(ranks), kPatient, [&](std::int64_t rank, Communicator& comm) {
    Floats values = operand(rank, elements);
    comm.wait(all_reduce(comm, values));
    for (std::int64_t i = 0; i < elements; ++i) {
      float sum = 0;
      for (std::int64_t other = 0; other < ranks; ++other) sum += value(other, i);
      ASSERT_EQ(values[std::size_t(i)], sum) << i;
    }
  }));
}

TEST_P(EverySize, AllReduceMaxTakesTheLargest) {
  const auto [ranks, parts] = GetParam();
  const std::int64_t elements = parts * ranks;
  expect_no_errors(on_ranks(grid_of(ranks), kPatient, [&](std::int64_t rank, Communicator& comm) {
    Floats values(std::size_t(elements), -5);
    for (std::int64_t i = 0; i < elements; ++i) {
      if (i % ranks == rank) values[std::size_t(i)] = float(i) - 3;
    }
    comm.wait(comm.post_collective(OpKind::all_reduce, {kMp, Reduction::max}, whole(values), {}));
    for (std::int64_t i = 0; i < elements; ++i) {
      ASSERT_EQ(values[std::size_t(i)], float(i) - 3);  // never below -3: larger than every -5
    }
  }));
}

TEST_P(EverySize, ReduceScatterLeavesTheOwnPartReduced) {
  const auto [ranks, parts] = GetParam();
  expect_no_errors(on_ranks(grid_of(ranks), kPatient, [&](std::int64_t rank, Communicator& comm) {
    Floats values = operand(rank, parts * ranks);
    comm.wait(comm.post_collective(OpKind::reduce_scatter, {kMp}, whole(values), {}));
    for (std::int64_t i = rank * parts; i < (rank + 1) * parts; ++i) {
      float sum = 0;
      for (std::int64_t other = 0; other < ranks; ++other) sum += value(other, i);
      ASSERT_EQ(values[std::size_t(i)], sum) << i;
    }
  }));
}

TEST_P(EverySize, AllGatherCollectsEveryPart) {
  const auto [ranks, parts] = GetParam();
  expect_no_errors(on_ranks(grid_of(ranks), kPatient, [&](std::int64_t rank, Communicator& comm) {
    Floats values(std::size_t(parts * ranks), -1);
    for (std::int64_t i = rank * parts; i < (rank + 1) * parts; ++i) {
      values[std::size_t(i)] = value(rank, i);
    }
    comm.wait(comm.post_collective(OpKind::all_gather, {kMp}, whole(values), {}));
    for (std::int64_t i = 0; i < parts * ranks; ++i) {
      ASSERT_EQ(values[std::size_t(i)], value(i / parts, i)) << i;
    }
  }));
}

TEST_P(EverySize, RingsShiftEitherWay) {
  const auto [ranks, parts] = GetParam();
  expect_no_errors(on_ranks(grid_of(ranks), kPatient, [&](std::int64_t rank, Communicator& comm) {
    for (const std::int64_t shift : {1, -1}) {
      const Floats given = operand(rank, parts * ranks);
      Floats values = given, got(given.size(), -1);
      CollectiveOperand operands = whole(values);
      operands.part = bytes(got);
      CollectiveParams params{kMp};
      params.shift = shift;
      comm.wait(comm.post_collective(OpKind::ring_shift, params, operands, {}));
      EXPECT_EQ(values, given);  // only read
      EXPECT_EQ(got, operand((rank - shift + ranks) % ranks, parts * ranks)) << shift;
    }
  }));
}

TEST_P(EverySize, AllToAllExchangesParts) {
  const auto [ranks, parts] = GetParam();
  expect_no_errors(on_ranks(grid_of(ranks), kPatient, [&](std::int64_t rank, Communicator& comm) {
    const Floats given = operand(rank, parts * ranks);
    Floats values = given, got(given.size(), -1);
    CollectiveOperand operands = whole(values);
    operands.part = bytes(got);
    comm.wait(comm.post_collective(OpKind::all_to_all, {kMp}, operands, {}));
    EXPECT_EQ(values, given);  // only read
    for (std::int64_t i = 0; i < parts * ranks; ++i)
      ASSERT_EQ(got[std::size_t(i)], value(i / parts, rank * parts + i % parts)) << i;
  }));
}

TEST_P(EverySize, PartsMayLieOutsideTheWhole) {
  const auto [ranks, parts] = GetParam();
  expect_no_errors(on_ranks(grid_of(ranks), kPatient, [&](std::int64_t rank, Communicator& comm) {
    const Floats given = operand(rank, parts * ranks);
    Floats values = given, part(std::size_t(parts), -1);
    CollectiveOperand operand = whole(values);
    operand.part = bytes(part);
    comm.wait(comm.post_collective(OpKind::reduce_scatter, {kMp}, operand, {}));
    EXPECT_EQ(values, given);  // only read
    for (std::int64_t i = 0; i < parts; ++i) {
      float sum = 0;
      for (std::int64_t other = 0; other < ranks; ++other) sum += value(other, rank * parts + i);
      ASSERT_EQ(part[std::size_t(i)], sum) << i;
    }
    values.assign(values.size(), -1);
    comm.wait(comm.post_collective(OpKind::all_gather, {kMp}, operand, {}));
    for (std::int64_t i = 0; i < parts * ranks; ++i) {
      float sum = 0;
      for (std::int64_t other = 0; other < ranks; ++other) sum += value(other, i);
      ASSERT_EQ(values[std::size_t(i)], sum) << i;
    }
  }));
}

TEST_P(EverySize, ReduceChangesTheRootOnly) {
  const auto [ranks, parts] = GetParam();
  const std::int64_t elements = parts + 3;  // need not divide
  for (std::int64_t root = 0; root < ranks; ++root) {
    expect_no_errors(on_ranks(grid_of(ranks), kPatient, [&](std::int64_t rank, Communicator& comm) {
      Floats values = operand(rank, elements);
      comm.wait(
          comm.post_collective(OpKind::reduce, {kMp, Reduction::sum, root}, whole(values), {}));
      for (std::int64_t i = 0; i < elements; ++i) {
        float sum = 0;
        for (std::int64_t other = 0; other < ranks; ++other) sum += value(other, i);
        ASSERT_EQ(values[std::size_t(i)], rank == root ? sum : value(rank, i)) << i;
      }
    }));
  }
}

TEST_P(EverySize, BroadcastCopiesTheRootsOperand) {
  const auto [ranks, parts] = GetParam();
  const std::int64_t elements = parts + 3;
  for (std::int64_t root = 0; root < ranks; ++root) {
    expect_no_errors(on_ranks(grid_of(ranks), kPatient, [&](std::int64_t rank, Communicator& comm) {
      Floats values = operand(rank, elements);
      comm.wait(
          comm.post_collective(OpKind::broadcast, {kMp, Reduction::sum, root}, whole(values), {}));
      EXPECT_EQ(values, operand(root, elements));
    }));
  }
}

// 1 and 17 elements per part miss the vector width, 3000 cross the chunk size.
INSTANTIATE_TEST_SUITE_P(Ranks, EverySize,
                         testing::Combine(testing::Values(1, 2, 3, 4),
                                          testing::Values(1, 17, 1024, 3000)));

// 256 + 1 is a tie that bf16 rounds back to 256, and so is 2048 + 1 in f16: added one at a time,
// the small numbers would be lost.
TEST(LocalCommunicator, SumsOf16BitTypesAreRoundedOnce) {
  struct Case {
    DType type;
    float large;
  };
  for (const Case c : {Case{DType::bf16, 256}, Case{DType::f16, 2048}}) {
    for (const OpKind kind : {OpKind::all_reduce, OpKind::reduce_scatter}) {
      expect_no_errors(on_ranks(grid_of(3), kPatient, [&](std::int64_t rank, Communicator& comm) {
        const Floats mine(3, rank == 0 ? c.large : 1);
        std::vector<std::byte> stored(6);
        from_f32(c.type, mine.data(), stored.data(), 3);
        comm.wait(comm.post_collective(kind, {kMp}, {c.type, 3, stored.data()}, {}));
        Floats sums(3);
        to_f32(c.type, stored.data(), sums.data(), 3);
        EXPECT_EQ(sums[std::size_t(rank)], c.large + 2) << to_text(kind);
      }));
    }
  }
}

TEST(LocalCommunicator, GathersMoveTheBytesOf16BitTypes) {
  expect_no_errors(on_ranks(grid_of(3), kPatient, [&](std::int64_t rank, Communicator& comm) {
    std::vector<std::uint16_t> parts(6, 0xffff);
    parts[std::size_t(2 * rank)] = parts[std::size_t(2 * rank + 1)] = std::uint16_t(rank + 7);
    comm.wait(comm.post_collective(OpKind::all_gather, {kMp},
                                   {DType::bf16, 6, reinterpret_cast<std::byte*>(parts.data())},
                                   {}));
    EXPECT_EQ(parts, (std::vector<std::uint16_t>{7, 7, 8, 8, 9, 9}));
  }));
}

TEST(LocalCommunicator, MaximumKeepsNotANumber) {
  expect_no_errors(on_ranks(grid_of(2), kPatient, [](std::int64_t rank, Communicator& comm) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    Floats values = rank == 0 ? Floats{nan, 1} : Floats{1, nan};
    comm.wait(comm.post_collective(OpKind::all_reduce, {kMp, Reduction::max}, whole(values), {}));
    EXPECT_TRUE(std::isnan(values[0]) && std::isnan(values[1]));
  }));
}

TEST(LocalCommunicator, GroupsOfOneCompleteAtOnce) {
  auto handles =
      make_local_communicators(grid_of(1), milliseconds(0), std::chrono::steady_clock::now());
  Floats values{1, 2, 3};
  const CommunicationTimes times = handles[0]->wait(all_reduce(*handles[0], values));
  EXPECT_EQ(values, (Floats{1, 2, 3}));
  EXPECT_LE(times.posted, times.begin);
  EXPECT_LE(times.begin, times.end);
}

TEST(LocalCommunicator, SubGroupsAreIndependent) {
  // mp 2 x dp 2: ranks 0,1 | 2,3 along mp and 0,2 | 1,3 along dp.
  expect_no_errors(on_ranks(grid_of(2, 2), kPatient, [](std::int64_t rank, Communicator& comm) {
    Floats inner{float(1 << rank)}, outer{float(1 << rank)};
    const auto first = all_reduce(comm, inner, kMp);
    const auto second = all_reduce(comm, outer, kDp);
    comm.wait(second);
    comm.wait(first);
    EXPECT_EQ(inner[0], rank < 2 ? 1 + 2 : 4 + 8);
    EXPECT_EQ(outer[0], rank % 2 == 0 ? 1 + 4 : 2 + 8);
  }));
}

TEST(LocalCommunicator, TransfersPairInPostingOrder) {
  // Both directions at once, many in flight; the sender's values come out in order.
  constexpr int kTransfers = 50;
  expect_no_errors(on_ranks(grid_of(1, 1, 2), kPatient, [](std::int64_t stage, Communicator& comm) {
    const std::int64_t peer = stage == 0 ? 1 : -1;
    std::vector<Floats> sent, received;
    for (int i = 0; i < kTransfers; ++i) {
      sent.push_back(Floats(std::size_t(i + 1), float(100 * stage + i)));
      received.push_back(Floats(std::size_t(i + 1)));
    }
    std::vector<Communicator::Ticket> tickets;
    for (std::size_t i = 0; i < kTransfers; ++i) {
      const Bytes size(std::int64_t(4 * (i + 1)));
      tickets.push_back(comm.post_send(peer, size, bytes(sent[i]), {}));
      tickets.push_back(comm.post_recv(peer, size, bytes(received[i]), {}));
    }
    for (const auto ticket : tickets) comm.wait(ticket);
    for (std::size_t i = 0; i < kTransfers; ++i) {
      EXPECT_EQ(received[i], Floats(i + 1, float(100 * (1 - stage) + int(i))));
    }
  }));
}

TEST(LocalCommunicator, ReducesInRankOrderWhoeverArrivesLast) {
  // ((1e8 + 1) - 1e8) + 1 in float: 1e8 + 1 rounds to 1e8, so the sum is 1 in rank order, and 2
  // if rank 2 comes before rank 1.
  const Floats of_rank{1e8f, 1.0f, -1e8f, 1.0f};
  for (std::int64_t late = 0; late < 4; ++late) {
    expect_no_errors(on_ranks(grid_of(4), kPatient, [&](std::int64_t rank, Communicator& comm) {
      if (rank == late) std::this_thread::sleep_for(milliseconds(5));
      Floats values(37, of_rank[std::size_t(rank)]);
      comm.wait(all_reduce(comm, values));
      for (const float sum : values) EXPECT_EQ(sum, 1.0f);
    }));
  }
}

TEST(LocalCommunicator, ManyConcurrentRoundsStayBitwiseEqual) {
  const auto run = [] {
    std::vector<Floats> results(4);
    expect_no_errors(on_ranks(grid_of(4), kPatient, [&](std::int64_t rank, Communicator& comm) {
      Floats values(1500);
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = std::sin(float(i) * 0.7f + float(rank)) * std::exp(float(rank * 3));
      }
      for (int round = 0; round < 200; ++round) {
        comm.wait(all_reduce(comm, values));
        for (float& x : values) x = x * 0.31f + float(rank);
      }
      results[std::size_t(rank)] = values;
    }));
    return results;
  };
  EXPECT_EQ(run(), run());
}

TEST(LocalCommunicator, AStreamRunsItsCommunicationsInOrder) {
  // Rank 0 and 2 post a sum over mp, then, behind it on the same stream, a sum over dp of the same
  // memory. Ranks 1 and 3 join the mp sums last: the dp sums must not have started before.
  const Grid grid = grid_of(2, 2);
  auto handles = make_local_communicators(grid, kPatient, std::chrono::steady_clock::now());
  std::vector<Floats> values{{1}, {10}, {100}, {1000}};
  std::vector<Communicator::Ticket> inner(4), outer(4);
  for (const std::size_t rank : {0, 2, 1, 3}) {
    inner[rank] = all_reduce(*handles[rank], values[rank], kMp, {1, "test", 0});
    outer[rank] = all_reduce(*handles[rank], values[rank], kDp, {1, "test", inner[rank]});
  }
  for (std::size_t rank = 0; rank < 4; ++rank) {
    const CommunicationTimes first = handles[rank]->wait(inner[rank]);
    const CommunicationTimes second = handles[rank]->wait(outer[rank]);
    EXPECT_GE(second.begin, first.end);
    EXPECT_EQ(values[rank][0], 1111.0f) << rank;
  }
}

TEST(LocalCommunicator, TimesSayWhenTheLastRankArrived) {
  auto handles = make_local_communicators(grid_of(2), kPatient, std::chrono::steady_clock::now());
  Floats a{1}, b{2};
  const auto first = all_reduce(*handles[0], a);
  std::this_thread::sleep_for(milliseconds(2));
  const auto second = all_reduce(*handles[1], b);
  const CommunicationTimes early = handles[0]->wait(first), late = handles[1]->wait(second);
  EXPECT_GE(early.begin.count() - early.posted.count(), 2'000'000'000);  // 2 ms in ps
  EXPECT_EQ(early.begin, late.begin);
  EXPECT_EQ(early.end, late.end);
  EXPECT_LE(late.posted, late.begin);
}

TEST(LocalCommunicator, DeadlineNamesRankCollectiveStepAndRoutine) {
  auto handles =
      make_local_communicators(grid_of(2), milliseconds(30), std::chrono::steady_clock::now());
  Floats values(12);
  const auto ticket = all_reduce(*handles[0], values, kMp, {7, "layer forward", 0});
  try {
    handles[0]->wait(ticket);
    FAIL() << "the other rank never came";
  } catch (const EnvironmentError& error) {
    EXPECT_TRUE(states(
        error.what(), {"rank 0", "0.03 s", "step 8", "layer forward", "all_reduce of 12 f32", "mp",
                       "post 1", "rank 1 has not", "rank 0: waits", "rank 1: has posted nothing"}));
  }
  // The rank that comes too late learns why.
  EXPECT_THROW(all_reduce(*handles[1], values), RankFailure);
}

TEST(LocalCommunicator, AbortWakesEveryWaiterWithTheReason) {
  const auto errors = on_ranks(grid_of(4), kPatient, [](std::int64_t rank, Communicator& comm) {
    Floats values{1};
    if (rank == 3) {
      std::this_thread::sleep_for(milliseconds(10));
      comm.abort("rank 3 has no more paper");
      return;
    }
    comm.wait(all_reduce(comm, values));
  });
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(errors[rank], "RankFailure: rank 3 has no more paper");
  }
  EXPECT_EQ(errors[3], "");
}

/// One rank posts what the other did not: the second to come refuses, the first is woken.
void expect_mismatch(const std::function<void(std::int64_t, Communicator&)>& body,
                     const std::string& part) {
  const auto errors = on_ranks(grid_of(2, 1, 2), kPatient, body);
  int refusals = 0;
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("communication mismatch"), std::string::npos) << error;
    EXPECT_NE(error.find(part), std::string::npos) << error;
    refusals += !error.starts_with("RankFailure");
  }
  EXPECT_EQ(refusals, 1);
}

TEST(LocalCommunicator, RefusesDifferentSizes) {
  expect_mismatch(
      [](std::int64_t rank, Communicator& comm) {
        Floats values(rank == 0 ? 8 : 6);
        comm.wait(all_reduce(comm, values));
        comm.wait(comm.post_recv(rank < 2 ? 1 : -1, Bytes(4), bytes(values), {}));
      },
      "of 8 f32 elements over group mp");
}

TEST(LocalCommunicator, RefusesDifferentKinds) {
  expect_mismatch(
      [](std::int64_t rank, Communicator& comm) {
        Floats values(8);
        const OpKind kind = rank == 1 ? OpKind::all_gather : OpKind::all_reduce;
        comm.wait(comm.post_collective(kind, {kMp}, whole(values), {}));
        comm.wait(comm.post_recv(rank < 2 ? 1 : -1, Bytes(4), bytes(values), {}));
      },
      "all_gather of 8 f32 elements");
}

TEST(LocalCommunicator, RefusesDifferentRoots) {
  expect_mismatch(
      [](std::int64_t rank, Communicator& comm) {
        Floats values(8);
        const CollectiveParams params{kMp, Reduction::sum, rank % 2};
        comm.wait(comm.post_collective(OpKind::broadcast, params, whole(values), {}));
        comm.wait(comm.post_recv(rank < 2 ? 1 : -1, Bytes(4), bytes(values), {}));
      },
      "over group mp with root 1");
}

TEST(LocalCommunicator, RefusesADifferentOrderOfGroups) {
  const Group all{{Axis::mp, Axis::pp}, false};
  expect_mismatch(
      [&](std::int64_t rank, Communicator& comm) {
        Floats a(8), b(8);
        const auto first = all_reduce(comm, a, rank == 1 ? all : kMp);
        const auto second = all_reduce(comm, b, rank == 1 ? kMp : all);
        comm.wait(first);
        comm.wait(second);
        comm.wait(comm.post_recv(rank < 2 ? 1 : -1, Bytes(4), bytes(a), {}));
      },
      "but as collective");
}

TEST(LocalCommunicator, RefusesATransferOfAnotherSize) {
  const auto errors =
      on_ranks(grid_of(1, 1, 2), kPatient, [](std::int64_t stage, Communicator& comm) {
        Floats values(4);
        comm.wait(stage == 0 ? comm.post_send(1, Bytes(16), bytes(values), {})
                             : comm.post_recv(-1, Bytes(12), bytes(values), {}));
      });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("send of 16 bytes"), std::string::npos) << error;
    EXPECT_NE(error.find("recv of 12 bytes"), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace plimsoll
