// Hosts of ranks are accepted or refused for a plan's nodes.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/command/launch.h"

namespace plimsoll {
namespace {

std::string refusal(std::int64_t devices_per_node, const std::vector<std::string>& hosts) {
  const Verdict verdict = fits_placement(devices_per_node, hosts);
  return verdict ? "" : verdict.reason();
}

TEST(Placement, RanksFillNodesInOrder) {
  EXPECT_EQ(refusal(2, {"a", "a", "b", "b"}), "");
  EXPECT_EQ(refusal(4, {"a", "a", "a"}), "") << "the last node may be partly used";
  EXPECT_EQ(refusal(1, {"b", "a"}), "");
}

TEST(Placement, RanksOfANodeShareAHost) {
  EXPECT_EQ(refusal(2, {"a", "b", "a", "b"}),
            "ranks 0 and 1 are on hosts a and b; the plan puts 2 ranks on each node, in order");
  EXPECT_EQ(refusal(2, {"a", "a", "b", "c"}),
            "ranks 2 and 3 are on hosts b and c; the plan puts 2 ranks on each node, in order");
}

TEST(Placement, NodesHaveHostsOfTheirOwn) {
  EXPECT_EQ(refusal(1, {"a", "a"}),
            "ranks 0 and 1 share host a; the plan puts them on nodes 0 and 1, 1 rank on each");
  EXPECT_EQ(refusal(2, {"a", "a", "b", "b", "a"}),
            "ranks 0 and 4 share host a; the plan puts them on nodes 0 and 2, 2 ranks on each");
}

}  // namespace
}  // namespace plimsoll
