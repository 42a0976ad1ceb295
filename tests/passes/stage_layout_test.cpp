// Which instances of a model's blocks a part has, and where the part lies.
#include "passes/strategy/stage_layout.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/states.h"

namespace plimsoll {
namespace {

using Ranges = std::vector<std::pair<std::int64_t, std::int64_t>>;  // first, count
using Layers = std::vector<std::int64_t>;

const std::vector<BlockShape> kPlain = {
    {BlockKind::embedding, 1}, {BlockKind::layer, 5}, {BlockKind::head, 1}};
// Layers 0 to 3 are the trunk, 4 to 6 the branch.
const std::vector<BlockShape> kBranched = {{BlockKind::embedding, 1},
                                           {BlockKind::layer, 4},
                                           {BlockKind::join, 1},
                                           {BlockKind::layer, 3},
                                           {BlockKind::head, 1}};

Ranges ranges_of(const std::vector<BlockShape>& blocks, const Layers& layers, std::int64_t part) {
  Ranges ranges;
  const ModelPart of = parts_of_model(blocks, layers)[std::size_t(part)];
  for (const BlockRange& range : of.blocks) {
    ranges.emplace_back(range.first, range.count);
  }
  return ranges;
}

TEST(StageLayout, LayersAreDealtOutInOrder) {
  EXPECT_EQ(ranges_of(kPlain, Layers{5}, 0), (Ranges{{0, 1}, {0, 5}, {0, 1}}));
  EXPECT_EQ(ranges_of(kPlain, Layers{2, 3}, 0), (Ranges{{0, 1}, {0, 2}, {0, 0}}));
  EXPECT_EQ(ranges_of(kPlain, Layers{2, 3}, 1), (Ranges{{0, 0}, {2, 3}, {0, 1}}));
}

TEST(StageLayout, LayersOfTrunkAndBranchAreNumberedThrough) {
  // The border between stages within the trunk, at the join, and within the branch.
  EXPECT_EQ(ranges_of(kBranched, Layers{3, 4}, 0),
            (Ranges{{0, 1}, {0, 3}, {0, 0}, {0, 0}, {0, 0}}));
  EXPECT_EQ(ranges_of(kBranched, Layers{3, 4}, 1),
            (Ranges{{0, 0}, {3, 1}, {0, 1}, {0, 3}, {0, 1}}));
  EXPECT_EQ(ranges_of(kBranched, Layers{4, 3}, 0),
            (Ranges{{0, 1}, {0, 4}, {0, 0}, {0, 0}, {0, 0}}));
  EXPECT_EQ(ranges_of(kBranched, Layers{4, 3}, 1),
            (Ranges{{0, 0}, {4, 0}, {0, 1}, {0, 3}, {0, 1}}));
  EXPECT_EQ(ranges_of(kBranched, Layers{5, 1, 1}, 0),
            (Ranges{{0, 1}, {0, 4}, {0, 1}, {0, 1}, {0, 0}}));
  EXPECT_EQ(ranges_of(kBranched, Layers{5, 1, 1}, 1),
            (Ranges{{0, 0}, {4, 0}, {0, 0}, {1, 1}, {0, 0}}));
}

TEST(StageLayout, VariantsHaveNoInstances) {
  std::vector<BlockShape> blocks = kPlain;
  blocks.push_back({BlockKind::layer, 5, true});
  EXPECT_EQ(ranges_of(blocks, Layers{2, 3}, 1), (Ranges{{0, 0}, {2, 3}, {0, 1}, {0, 0}}));
}

// Layers of two kinds, as in x o x x o x: a part's run in the order of the model.
TEST(StageLayout, LayersOfSeveralKindsAlternate) {
  const std::vector<BlockShape> blocks = {{BlockKind::embedding, 1},
                                          {BlockKind::layer, 4, false, {0, 2, 3, 5}},
                                          {BlockKind::layer, 2, false, {1, 4}},
                                          {BlockKind::head, 1}};
  EXPECT_TRUE(layers_alternate(blocks));
  EXPECT_FALSE(layers_alternate(kBranched));
  EXPECT_EQ(ranges_of(blocks, Layers{2, 4}, 0), (Ranges{{0, 1}, {0, 1}, {0, 1}, {0, 0}}));
  EXPECT_EQ(ranges_of(blocks, Layers{2, 4}, 1), (Ranges{{0, 0}, {1, 3}, {1, 1}, {0, 1}}));
  using Instances = std::vector<std::pair<std::size_t, std::int64_t>>;
  const auto instances = [&](const Layers& layers, std::int64_t part) {
    Instances found;
    const ModelPart of = parts_of_model(blocks, layers)[std::size_t(part)];
    for (const BlockInstance& one : instances_of(of, blocks)) {
      found.emplace_back(one.block, one.number);
    }
    return found;
  };
  EXPECT_EQ(instances({6}, 0),
            (Instances{{0, 0}, {1, 0}, {2, 1}, {1, 2}, {1, 3}, {2, 4}, {1, 5}, {3, 0}}));
  EXPECT_EQ(instances({2, 4}, 0), (Instances{{0, 0}, {1, 0}, {2, 1}}));
  EXPECT_EQ(instances({2, 2, 2}, 1), (Instances{{1, 2}, {1, 3}}));
}

TEST(StageLayout, EveryInstanceIsOnOnePart) {
  for (const Layers& layers :
       {Layers{7}, Layers{1, 6}, Layers{2, 2, 3}, Layers{1, 1, 1, 1, 1, 1, 1}}) {
    std::vector<std::int64_t> next(kBranched.size());
    for (const ModelPart& part : parts_of_model(kBranched, layers)) {
      const std::vector<BlockRange>& ranges = part.blocks;
      for (std::size_t b = 0; b < ranges.size(); ++b) {
        if (ranges[b].count == 0) continue;
        EXPECT_EQ(ranges[b].first, next[b]);
        if (kBranched[b].kind == BlockKind::layer) {
          EXPECT_EQ(ranges[b].number, ranges[b].first + (b == 3 ? 4 : 0));
        }
        next[b] += ranges[b].count;
      }
    }
    for (std::size_t b = 0; b < next.size(); ++b) EXPECT_EQ(next[b], kBranched[b].count);
  }
}

// In a V the second chunks go back from the last stage to the first.
TEST(StageLayout, EachPartIsAChunkOfAStage) {
  Job job = read_job("gpt2-small");
  job.layers = 7;
  Strategy strategy;
  strategy.pp = 2;
  strategy.pipeline.virtual_stages = 2;
  strategy.pipeline.layer_split = {1, 2, 3, 1};
  const auto layout_of = [&](Schedule schedule) {
    strategy.schedule = schedule;
    return stage_layout(job, strategy, block_shapes(job));
  };
  using Parts = std::vector<std::vector<std::size_t>>;
  const StageLayout round = layout_of(Schedule::one_f_one_b), v = layout_of(Schedule::zb_v);
  EXPECT_EQ(round.stages, (Parts{{0, 2}, {1, 3}}));
  EXPECT_EQ(v.stages, (Parts{{0, 3}, {1, 2}}));
  EXPECT_EQ(round.tied_stage, 1);
  EXPECT_EQ(v.tied_stage, 0);
  EXPECT_EQ(v.parts[3].first, 6);
  EXPECT_EQ(v.parts[3].layers, 1);
  for (const StageLayout& layout : {round, v}) {
    for (std::size_t part = 0; part < layout.parts.size(); ++part) {
      const ModelPart& one = layout.parts[part];
      EXPECT_EQ(layout.stages[std::size_t(one.stage)][std::size_t(one.chunk)], part);
    }
  }
  // Blocks are the embedding, the layers and the head.
  EXPECT_EQ(instances_per_stage(round), (std::vector<Layers>{{1, 4, 0}, {0, 3, 1}}));
  EXPECT_EQ(instances_per_stage(v), (std::vector<Layers>{{1, 2, 1}, {0, 5, 0}}));
}

TEST(StageLayout, LayoutsInMegatronsWordsAreSplits) {
  const auto split = [](std::string_view layout) {
    Strategy strategy;
    set_field(strategy, "layer_split", layout);
    return field_text(strategy, "layer_split");
  };
  EXPECT_EQ(split("Et*3|t*4|t*3L"), "3+4+3");
  EXPECT_EQ(split("E|(tt|)*3t|L"), "0+3x2+1+0");
  EXPECT_EQ(split("Et|t,t||tL"), "1+2+0+1");
  const auto refused = [&](std::string_view layout) -> std::string {
    try {
      split(layout);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  // An MTP module counts as a layer, behind the others.
  EXPECT_EQ(split("Et*3|t*4|t*2mL"), "3+4+3");
  EXPECT_EQ(refused("Et*3|mt*4|L"),
            "layer_split=Et*3|mt*4|L: a layout with MTP modules m behind all layers t is required");
  EXPECT_EQ(refused("t*3|t*4L"),
            "layer_split=t*3|t*4L: a layout that begins with E and ends with L is required");
  EXPECT_EQ(refused("E(t|t*4L"), "layer_split=E(t|t*4L: a layout with a ) for each ( is required");
}

TEST(StageLayout, MtpModulesComeOnTopOfTheLastPart) {
  Job job = read_job("deepseek-v3");
  Strategy strategy;
  strategy.pp = 2;
  strategy.pipeline.loss_as_layers = 3;
  EXPECT_EQ(layers_per_part(job, strategy), (Layers{32, 30}));
  strategy.pipeline.loss_as_layers = 0;
  strategy.pipeline.layer_split = {31, 31};
  const auto reason = [&] {
    const Verdict verdict = legal(job, strategy, strategy.pp);
    return verdict ? std::string() : verdict.reason();
  };
  EXPECT_EQ(reason(), "");
  EXPECT_EQ(stage_of_tied_table(job, strategy), 1);
  // On another stage than the head, as Et*3|(tt|)*29m|L has them.
  strategy.pp = 3;
  strategy.pipeline.layer_split = {31, 31, 0};
  EXPECT_EQ(reason(), "");
  EXPECT_EQ(stage_of_tied_table(job, strategy), 1);
  job.tied_embeddings = true;
  EXPECT_TRUE(states(reason(), {"layer_split", "MTP", "head", "tied_embeddings"}));
  job.mtp->depths = 2;
  strategy.pipeline.layer_split = {31, 31, 1};
  EXPECT_TRUE(states(reason(), {"layer_split", "several stages", "MTP"}));
}

}  // namespace
}  // namespace plimsoll
