// The tiny network of the pass tests is built here.
#include "tests/passes/tiny_net.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "graph/verify/verify.h"
#include "passes/cut/cut_blocks.h"
#include "passes/layout/plan_memory.h"
#include "passes/pipeline.h"
#include "passes/schedule/schedule.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kRows = 8, kTable = 16;

/// Writes the blocks one after the other.
class Net {
 public:
  Net(const Job& job, std::int64_t width) : job_(job) {
    graph_.name = "tiny";
    scalars_ = add("scalars", {kScalars}, TensorRole::scalar);
    begin("table", BlockKind::embedding);
    const TensorId tokens = add("tokens", {kRows}, TensorRole::activation, DType::i32);
    const TensorId table = parameter("table", {kTable, width});
    x_ = add("x", {kRows, width}, TensorRole::activation);
    push(OpKind::load_tokens, {}, {tokens}, DataParams{kRows});
    push(OpKind::embedding, {tokens, table}, {x_}, VocabularyParams{kTable});
    end();
  }

  void begin(const std::string& name, BlockKind kind) {
    block_ = BlockId(graph_.blocks.size());
    Block& block = graph_.blocks.emplace_back();
    block.name = name;
    block.kind = kind;
    if (x_ == TensorId()) return;
    block.input = x_ = add(name + ".x", graph_.at(x_).shape, TensorRole::activation);
  }
  void end() { graph_.at(block_).output = x_; }

  void layer(const std::string& number, std::int64_t columns, bool bias = true) {
    const std::int64_t rows = graph_.at(x_).shape[1];
    std::vector<TensorId> inputs = {x_, parameter("w" + number, {rows, columns})};
    if (bias) inputs.push_back(parameter("b" + number, {columns}));
    x_ = add("y" + number, {kRows, columns}, TensorRole::activation);
    push(OpKind::matmul, inputs, {x_}, MatmulParams{});
  }

  /// Without parameters.
  Graph with_loss() {
    begin("loss", BlockKind::head);
    const TensorId targets = add("targets", {kRows}, TensorRole::activation, DType::i32);
    push(OpKind::load_targets, {}, {targets}, DataParams{kRows});
    const std::int64_t classes = graph_.at(x_).shape[1];
    const VocabularyParams params{classes, 1, 1.0 / double(job_.global_batch * kRows)};
    const TensorId max = add("max", {kRows}, TensorRole::activation);
    const TensorId stats = add("stats", {kRows, 2}, TensorRole::activation);
    const TensorId log_sum_exp = add("log_sum_exp", {kRows}, TensorRole::activation);
    push(OpKind::logits_max, {x_}, {max}, params);
    push(OpKind::logits_sum_exp, {x_, max, targets}, {stats}, params);
    push(OpKind::token_loss, {max, stats, scalars_}, {log_sum_exp, scalars_}, params);
    return std::move(graph_);
  }

 private:
  TensorId add(std::string name, Shape shape, TensorRole role, DType dtype = DType::f32) {
    Tensor tensor;
    tensor.name = std::move(name);
    tensor.shape = std::move(shape);
    tensor.role = role;
    tensor.dtype = dtype;
    if (role != TensorRole::scalar) tensor.block = block_;
    return graph_.add(std::move(tensor));
  }
  TensorId parameter(const std::string& name, Shape shape) {
    const TensorId id = add(name, std::move(shape), TensorRole::parameter);
    graph_.at(id).init = Init::normal;
    return id;
  }
  void push(OpKind kind, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
            OpParams params) {
    Op op;
    op.kind = kind;
    op.block = block_;
    op.inputs = std::move(inputs);
    op.outputs = std::move(outputs);
    op.params = std::move(params);
    graph_.ops.push_back(std::move(op));
  }

  const Job& job_;
  Graph graph_;
  BlockId block_;
  TensorId scalars_, x_;
};

}  // namespace

Job tiny_job() {
  Job job = read_job(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/gpt-nano.json");
  job.layers = 2;
  job.clip_norm = 0;
  job.optimizer.kind = OptimizerKind::sgd;
  return job;
}

Graph tiny_net(const Job& job, std::int64_t width) {
  Net net(job, width);
  net.begin("first", BlockKind::layer);
  for (const char* number : {"1", "2"}) net.layer(number, width);
  net.end();
  net.begin("last", BlockKind::layer);
  for (const char* number : {"3", "4", "5"}) net.layer(number, width);
  net.layer("6", 2);
  net.end();
  return net.with_loss();
}

Graph equal_weights(const Job& job, std::int64_t tensors) {
  Net net(job, 8);
  for (const std::string name : {"first", "last"}) {
    net.begin(name, BlockKind::layer);
    for (std::int64_t i = 0; i < tensors; ++i) net.layer(name + std::to_string(i), 8, false);
    net.end();
  }
  return net.with_loss();
}

std::vector<Program> last_stage(const Job& job, Graph graph, const std::string& fields,
                                const Framework& framework) {
  const Strategy strategy = parse_strategy("pp=2," + fields);
  const std::int64_t devices = strategy.pp * strategy.dp * strategy.sharding_degree;
  EXPECT_TRUE(legal(job, strategy, devices)) << legal(job, strategy, devices).reason();
  const PassContext context{job, strategy, framework};
  EXPECT_TRUE(verify(graph)) << verify(graph).reason();
  apply_parameter_groups(graph, job);
  for (const GraphPass& pass : graph_passes()) {
    pass.run(graph, context);
    EXPECT_TRUE(verify(graph)) << pass.name << ": " << verify(graph).reason();
  }
  const CutGraph cut = cut_blocks(graph, arena_alignment(job, strategy), cut_choices(strategy));
  const StageLayout stages = stage_layout(job, strategy, block_shapes(graph));
  std::vector<Program> programs = schedule_stage(graph, cut, context, stages, 1);
  for (Program& program : programs) {
    plan_memory(program);
    const Verdict verdict = verify(program);
    EXPECT_TRUE(verdict) << verdict.reason();
    const Verdict order = verify_memory_order(program);
    EXPECT_TRUE(order) << order.reason();
  }
  return programs;
}

std::vector<std::string> op_list(const Program& program, const std::vector<Phase>& phases) {
  std::vector<std::pair<std::string, int>> runs;
  for (const Call& call : program.calls) {
    const Routine& routine = program.at(call.routine);
    const bool listed = std::find(phases.begin(), phases.end(), routine.phase) != phases.end();
    if (!listed || routine.name == "begin_step") continue;
    for (const Op& op : routine.ops) {
      std::string kind(to_text(op.kind));
      if (const auto* collective = std::get_if<CollectiveParams>(&op.params)) {
        kind += "." + to_text(collective->group);
        if (collective->reduction == Reduction::max) kind += ".max";
      }
      if (runs.empty() || runs.back().first != kind) runs.push_back({kind, 0});
      ++runs.back().second;
    }
  }
  std::vector<std::string> list;
  for (const auto& [kind, count] : runs)
    list.push_back(count == 1 ? kind : kind + " x" + std::to_string(count));
  return list;
}

}  // namespace plimsoll
