// The tiny pipeline of the reference's section 7.A: two stages, two owners, and on the last stage
// four fully connected layers; counts of what the optimizer phase issues (A2, A3).
#include <gtest/gtest.h>

#include <map>

#include "graph/text.h"
#include "graph/verify.h"
#include "passes/cut_blocks.h"
#include "passes/pipeline.h"
#include "passes/plan_memory.h"
#include "passes/schedule.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kLayers = 4;
const std::int64_t kWidths[] = {64, 64, 64, 64, 2};

/// Builds the two blocks: a table of tokens, and four layers without activations between them.
class Net {
 public:
  Net() {
    graph_.name = "tiny";
    graph_.blocks.resize(2);
    graph_.blocks[0].name = "table";
    graph_.blocks[0].kind = BlockKind::embedding;
    graph_.blocks[1].name = "fc";
    graph_.blocks[1].kind = BlockKind::head;
    add("scalars", {kScalars}, TensorRole::scalar, {});
    add_table();
    add_layers();
  }
  Graph take() { return std::move(graph_); }

 private:
  void add_table() {
    const BlockId block(0);
    const TensorId tokens = add("tokens", {8}, TensorRole::saved, block, DType::i32);
    const TensorId table = parameter("table", {16, 64}, block);
    const TensorId x = add("x", {8, 64}, TensorRole::activation, block);
    const TensorId dx = add("x.gradient", {8, 64}, TensorRole::activation, block);
    push(OpKind::load_tokens, Phase::forward, block, {}, {tokens}, DataParams{8});
    push(OpKind::embedding, Phase::forward, block, {tokens, table}, {x}, VocabularyParams{16});
    push(OpKind::embedding_backward, Phase::backward, block, {dx, tokens}, {gradient_.at(table)},
         VocabularyParams{16});
    graph_.at(block).output = x;
    graph_.at(block).output_gradient = dx;
  }

  void add_layers() {
    const BlockId block(1);
    std::vector<TensorId> y = {add("y0", {8, 64}, TensorRole::activation, block)};
    std::vector<TensorId> weights, biases;
    graph_.at(block).input = y[0];
    for (std::int64_t i = 0; i < kLayers; ++i) {
      const std::string name = std::to_string(i + 3);
      weights.push_back(parameter("w" + name, {kWidths[i], kWidths[i + 1]}, block));
      biases.push_back(parameter("b" + name, {kWidths[i + 1]}, block));
      y.push_back(add("y" + name, {8, kWidths[i + 1]}, TensorRole::saved, block));
      push(OpKind::matmul, Phase::forward, block,
           {y[std::size_t(i)], weights.back(), biases.back()}, {y.back()}, MatmulParams{});
    }
    TensorId dy = add("dy", {8, 2}, TensorRole::activation, block);
    push(OpKind::add, Phase::backward, block, {y.back(), y.back()}, {dy}, {});
    for (std::size_t i = kLayers; i-- > 0;) {
      MatmulParams of_weight, of_input;
      of_weight.transpose_a = of_weight.accumulate = true;
      of_input.transpose_b = true;
      const TensorId dx =
          add("dy" + std::to_string(i), {8, kWidths[i]}, TensorRole::activation, block);
      push(OpKind::bias_gradient, Phase::backward, block, {dy}, {gradient_.at(biases[i])}, {});
      push(OpKind::matmul, Phase::backward, block, {y[i], dy}, {gradient_.at(weights[i])},
           of_weight);
      push(OpKind::matmul, Phase::backward, block, {dy, weights[i]}, {dx}, of_input);
      dy = dx;
    }
    graph_.at(block).input_gradient = dy;
  }

  TensorId add(std::string name, Shape shape, TensorRole role, std::optional<BlockId> block,
               DType dtype = DType::f32) {
    Tensor tensor;
    tensor.name = std::move(name);
    tensor.shape = std::move(shape);
    tensor.role = role;
    tensor.block = block;
    tensor.dtype = dtype;
    return graph_.add(std::move(tensor));
  }
  TensorId parameter(const std::string& name, Shape shape, BlockId block) {
    const TensorId id = add(name, shape, TensorRole::parameter, block);
    graph_.at(id).init = Init::normal;
    const TensorId gradient = add(name + ".gradient", shape, TensorRole::gradient, block);
    graph_.at(gradient).gradient_of = id;
    gradient_[id] = gradient;
    return id;
  }
  void push(OpKind kind, Phase phase, BlockId block, std::vector<TensorId> inputs,
            std::vector<TensorId> outputs, OpParams params) {
    Op op;
    op.kind = kind;
    op.phase = phase;
    op.block = block;
    op.inputs = std::move(inputs);
    op.outputs = std::move(outputs);
    op.params = std::move(params);
    graph_.ops.push_back(std::move(op));
  }

  Graph graph_;
  std::map<TensorId, TensorId> gradient_;
};

/// Programs of stage 1: of owner 0 and of owner 1, which are ranks 2 and 3 of 4.
std::vector<Program> last_stage(const std::string& fields) {
  Job job = read_job(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/gpt-nano.json");
  job.layers = 2;
  job.clip_norm = 0;
  job.optimizer.kind = OptimizerKind::sgd;
  const Strategy strategy =
      parse_strategy("pp=2,sharding_degree=2,sharding_owner=prefix," + fields);
  const Framework framework = bundled_framework();
  const PassContext context{job, strategy, framework};
  Graph graph = Net().take();
  EXPECT_TRUE(verify(graph)) << verify(graph).reason();
  for (const GraphPass& pass : graph_passes()) {
    const std::string_view name = pass.name;
    if (name == "optimizer_step" || name == "flatten_optimizer" || name == "shard_optimizer") {
      pass.run(graph, context);
    }
  }
  EXPECT_TRUE(verify(graph)) << verify(graph).reason();
  const std::int64_t alignment = arena_alignment(job, strategy);
  const CutGraph cut = cut_blocks(graph, alignment);
  std::vector<Program> programs;
  for (const std::int64_t owner : {0, 1}) {
    programs.push_back(schedule_stage(graph, cut, context, 1, alignment, owner));
    plan_memory(programs.back());
    const Verdict verdict = verify(programs.back());
    EXPECT_TRUE(verdict) << verdict.reason();
    const Verdict order = verify_memory_order(programs.back());
    EXPECT_TRUE(order) << order.reason();
  }
  return programs;
}

/// The ops of a step by kind, in the order of the calls, of the kinds that A2 and A3 list.
std::vector<OpKind> optimizer_ops(const Program& program) {
  std::vector<OpKind> kinds;
  for (const Call& call : program.calls) {
    for (const Op& op : program.at(call.routine).ops) {
      const bool listed = op.kind == OpKind::reduce || op.kind == OpKind::broadcast ||
                          op.kind == OpKind::coalesce || op.kind == OpKind::sgd;
      if (listed) kinds.push_back(op.kind);
    }
  }
  return kinds;
}

/// Calls that wait for a reduction.
std::size_t waits_for_reductions(const Program& program) {
  std::size_t count = 0;
  for (const Call& call : program.calls) {
    const bool waits = std::any_of(call.waits.begin(), call.waits.end(), [&](const Wait& wait) {
      const Routine& awaited = program.at(program.calls[wait.call].routine);
      return awaited.ops[0].kind == OpKind::reduce;
    });
    count += waits;
  }
  return count;
}

std::vector<OpKind> repeated(std::initializer_list<std::pair<std::int64_t, OpKind>> runs) {
  std::vector<OpKind> kinds;
  for (const auto& [count, kind] : runs) kinds.insert(kinds.end(), std::size_t(count), kind);
  return kinds;
}

TEST(TinyPipeline, A1OwnersOfTheLastStage) {
  const Program program = last_stage("flatten=none")[1];
  std::map<std::string, std::int64_t> owners;
  std::int64_t loads[2] = {0, 0};
  for (const Segment& segment : program.segments) {
    owners[segment.parameter] = *segment.owner;
    loads[*segment.owner] += segment.elements;
  }
  EXPECT_EQ(
      owners,
      (std::map<std::string, std::int64_t>{
          {"w3", 0}, {"b3", 0}, {"w4", 0}, {"b4", 1}, {"w5", 1}, {"b5", 1}, {"w6", 1}, {"b6", 1}}));
  EXPECT_EQ(loads[0], 8256);
  EXPECT_EQ(loads[1], 4354);
}

TEST(TinyPipeline, A2WithoutFusion) {
  const auto programs = last_stage("flatten=none,collective_fusion=none");
  using enum OpKind;
  EXPECT_EQ(optimizer_ops(programs[1]), repeated({{8, reduce}, {5, sgd}, {8, broadcast}}));
  EXPECT_EQ(optimizer_ops(programs[0]), repeated({{8, reduce}, {3, sgd}, {8, broadcast}}));
  EXPECT_EQ(waits_for_reductions(programs[1]), 1u);  // the one synchronisation before the update
}

TEST(TinyPipeline, A3FusedBelow32MiB) {
  const std::string limits = "grad_bucket_bytes=32MiB,param_bucket_bytes=32MiB";
  const auto coalesced = last_stage("flatten=none,collective_fusion=coalesced," + limits);
  using enum OpKind;
  EXPECT_EQ(optimizer_ops(coalesced[1]), repeated({{1, coalesce},
                                                   {1, reduce},
                                                   {1, coalesce},
                                                   {1, reduce},
                                                   {5, sgd},
                                                   {1, coalesce},
                                                   {1, broadcast},
                                                   {1, coalesce},
                                                   {1, broadcast}}));
  EXPECT_EQ(waits_for_reductions(coalesced[1]), 1u);
  // Persistent arenas: the same without copies.
  const auto arena = last_stage("flatten=none," + limits);
  EXPECT_EQ(optimizer_ops(arena[1]), repeated({{2, reduce}, {5, sgd}, {2, broadcast}}));
}

}  // namespace
}  // namespace plimsoll
