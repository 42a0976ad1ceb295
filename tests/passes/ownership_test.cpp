// The acceptance cases of the reference's sections 7.A (A1, A8), 7.B and 7.E, by their numbers.
#include "passes/owners/ownership.h"

#include <gtest/gtest.h>

#include "graph/text.h"
#include "passes/graph/parameter_casts.h"
#include "passes/owners/broadcast_parameters.h"
#include "passes/owners/owner_mode.h"

namespace plimsoll {
namespace {

using Sizes = std::vector<std::int64_t>;
using Groups = std::vector<std::vector<std::size_t>>;

std::vector<FusionMember> members(const Sizes& sizes, DType dtype = DType::f32) {
  std::vector<FusionMember> result;
  for (const std::int64_t size : sizes) result.push_back({size, dtype});
  return result;
}

Sizes loads(const Sizes& sizes, const Sizes& owners, std::int64_t ranks) {
  Sizes sums(std::size_t(ranks), 0);
  for (std::size_t i = 0; i < sizes.size(); ++i) sums[std::size_t(owners[i])] += sizes[i];
  return sums;
}

TEST(Ownership, A1PrefixOfTheTinyPipeline) {
  // w3 b3 w4 b4 w5 b5 w6 b6: three FC 64 x 64 and one 64 x 2, with biases.
  const Sizes sizes = {4096, 64, 4096, 64, 4096, 64, 128, 2};
  const Sizes owners = prefix_owners(sizes, 2);
  EXPECT_EQ(owners, (Sizes{0, 0, 0, 1, 1, 1, 1, 1}));
  EXPECT_EQ(loads(sizes, owners, 2), (Sizes{8256, 4354}));
}

TEST(Ownership, B1EqualTensors) {
  EXPECT_EQ(prefix_owners(Sizes{4, 4, 4, 4}, 2), (Sizes{0, 0, 0, 1}));
  EXPECT_EQ(greedy_owners(Sizes{4, 4, 4, 4}, 2), (Sizes{0, 1, 0, 1}));
}

TEST(Ownership, B2PrefixLeavesRanksEmpty) {
  EXPECT_EQ(prefix_owners(Sizes{5, 5, 90}, 3), (Sizes{0, 0, 0}));
  EXPECT_EQ(prefix_owners(Sizes{90, 5, 5}, 3), (Sizes{0, 1, 2}));
  EXPECT_EQ(greedy_owners(Sizes{5, 5, 90}, 3), (Sizes{0, 1, 2}));
}

TEST(Ownership, B3SortingBalances) {
  const Sizes sizes = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(prefix_owners(sizes, 3), (Sizes{0, 0, 0, 0, 1, 2}));
  EXPECT_EQ(loads(sizes, prefix_owners(sizes, 3), 3), (Sizes{10, 5, 6}));
  EXPECT_EQ(greedy_owners(sizes, 3), (Sizes{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(loads(sizes, greedy_owners(sizes, 3), 3), (Sizes{5, 7, 9}));
  EXPECT_EQ(sorted_greedy_owners(sizes, 3), (Sizes{0, 1, 2, 2, 1, 0}));
  EXPECT_EQ(loads(sizes, sorted_greedy_owners(sizes, 3), 3), (Sizes{7, 7, 7}));
}

TEST(Fusion, B4ClosesBeforeTheLimit) {
  EXPECT_EQ(fuse_below(members({10, 10, 10, 10, 40, 1}), 32), (Groups{{0, 1, 2}, {3}, {4}, {5}}));
}

TEST(Fusion, B5ChangesOfTypeClose) {
  std::vector<FusionMember> mixed = members({10, 5, 10});
  mixed[1].dtype = DType::f16;
  EXPECT_EQ(fuse_below(mixed, 32), (Groups{{0}, {1}, {2}}));
}

TEST(Fusion, OwnersAndMembersThatStayAloneClose) {
  std::vector<FusionMember> owned = members({1, 1, 1, 1});
  owned[2].owner = owned[3].owner = 1;
  EXPECT_EQ(fuse_below(owned, 32), (Groups{{0, 1}, {2, 3}}));
  owned[1].alone = true;
  EXPECT_EQ(fuse_below(owned, 32), (Groups{{0}, {1}, {2, 3}}));
}

// Owners are chosen from the front of the model, and the last owner's tensors come first.
TEST(OwnerMode, OwnersComeTogetherAndStatedOnesStay) {
  Strategy strategy;
  strategy.sharding_degree = 2;
  strategy.sharding_stage = 2;
  EXPECT_FALSE(owner_mode(strategy));
  EXPECT_FALSE(scatters_bundles(strategy));
  strategy.owners.sharding_owner = ShardingOwner::greedy;
  strategy.owners.collective_fusion = CollectiveFusion::none;
  EXPECT_TRUE(scatters_bundles(strategy));
  const auto mode = owner_mode(strategy);
  ASSERT_TRUE(mode);
  EXPECT_EQ(mode->reduced, Bytes(0));  // each tensor alone
  EXPECT_FALSE(mode->coalesces);

  Graph graph;
  for (const std::int64_t size : {4, 2, 2, 8}) {
    Tensor tensor;
    tensor.role = TensorRole::parameter;
    tensor.shape = {size};
    graph.add(std::move(tensor));
  }
  const auto of = [&](std::vector<std::size_t> tensors) {
    std::vector<Placement> all;
    for (const std::size_t t : tensors) all.push_back({TensorId(t), 0, {}, 1, 0, {}, 0, false});
    return all;
  };
  const auto text = [](const std::vector<Placement>& all) {
    Sizes pairs;
    for (const Placement& p : all)
      pairs.insert(pairs.end(), {std::int64_t(p.parameter.index()), *p.owner});
    return pairs;
  };
  std::vector<Placement> last = of({2, 1, 0});
  assign_owners(*mode, graph, {}, {}, last);
  EXPECT_EQ(text(last), (Sizes{2, 1, 1, 1, 0, 0}));
  // On the first stage the shared tensor 3 comes second, and goes to rank 1.
  std::vector<Placement> tied = of({3, 2, 1, 0});
  assign_owners(*mode, graph, TensorId(3), of({3, 0}), tied);
  EXPECT_EQ(text(tied), (Sizes{3, 1, 2, 0, 1, 0, 0, 0}));
}

// ---- 7.E ----

/// a: cast only, twice; b: cast and an f32 use; c: no cast; u: unused.
const char* const kUses = R"(graph uses
tensor %0 a f32[4,4] parameter
tensor %1 b f32[4,4] parameter
tensor %2 c f32[4,4] parameter
tensor %3 u f32[4,4] parameter
tensor %4 a16 f16[4,4] activation
tensor %5 b16 f16[4,4] activation
tensor %6 x f32[4,4] activation
tensor %7 x16 f16[4,4] activation
tensor %8 y16 f16[4,4] activation
tensor %9 y f32[4,4] activation
tensor %10 z f32[4,4] activation
tensor %11 a16.again f16[4,4] activation
tensor %12 w16 f16[4,4] activation
tensor %13 dz f32[4,4] activation
tensor %14 dx f32[4,4] activation
op cast forward (%0) -> (%4)
op cast forward (%1) -> (%5)
op matmul forward (%7, %4) -> (%8)
op matmul forward (%8, %5) -> (%12)
op matmul forward (%6, %1) -> (%9)
op matmul forward (%9, %2) -> (%10)
op cast recompute (%0) -> (%11)
op matmul backward (%13, %2) -> (%14)
)";

TEST(BroadcastParameters, ECastOnesAreReceivedInTheirTwinsType) {
  const Graph graph = parse_graph(kUses, "case");
  const std::vector<ParameterRead> found = parameters_read(graph);
  ASSERT_EQ(found.size(), 3u);                                        // u is not sent
  EXPECT_EQ(found[0], (ParameterRead{TensorId(0), TensorId(4), 0}));  // a16
  EXPECT_EQ(found[1], (ParameterRead{TensorId(1), TensorId(5), 1}));  // b16 and b
  EXPECT_EQ(found[2], (ParameterRead{TensorId(2), {}, 2}));           // c, forward and backward
}

TEST(BroadcastParameters, EEveryUseIsABroadcastOfItsOwn) {
  const Graph graph = parse_graph(kUses, "case");
  std::size_t of_c = 0;
  for (const UseBroadcast& broadcast : broadcasts_by_use(graph)) {
    of_c += broadcast.value == 2;
    EXPECT_EQ(broadcast.first, broadcast.last);
  }
  EXPECT_EQ(of_c, 2u);
}

TEST(BroadcastParameters, ETiedUsesAreFourOrOnePerSegment) {
  const Graph graph = parse_graph(R"(graph tied
tensor %0 w f32[4,4] parameter
tensor %1 head f32[4,4] parameter tied_to=%0
tensor %2 x f32[4,4] activation
tensor %3 y f32[4,4] activation
tensor %4 z f32[4,4] activation
tensor %5 dy f32[4,4] activation
tensor %6 dx f32[4,4] activation
op matmul forward (%2, %0) -> (%3)
op matmul forward (%3, %1) -> (%4)
op matmul backward (%4, %1) -> (%5)
op matmul backward (%5, %0) -> (%6)
)",
                                  "case");
  const std::vector<UseBroadcast> by_use = broadcasts_by_use(graph);
  EXPECT_EQ(by_use.size(), 4u);
  const auto segments = [&](Bytes limit) {
    const auto size = [&](std::size_t tensor) { return bytes_of(graph.at(TensorId(tensor))); };
    return broadcasts_by_segment(by_use, size, limit);
  };
  using Segments = std::vector<std::vector<UseBroadcast>>;
  EXPECT_EQ(segments(Bytes(1024)), (Segments{{{0, 0, 3}}}));
  // 64 bytes close a segment: one for every op.
  EXPECT_EQ(segments(Bytes(64)), (Segments{{{0, 0, 0}}, {{0, 1, 1}}, {{0, 2, 2}}, {{0, 3, 3}}}));
}

}  // namespace
}  // namespace plimsoll
