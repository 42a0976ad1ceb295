// All passes are listed in order, run, verified and printed.
#include "passes/pipeline.h"

#include <fmt/format.h>

#include <array>

#include "base/error.h"
#include "base/parallel.h"
#include "graph/text.h"
#include "graph/verify/verify.h"
#include "passes/cut/cut_blocks.h"
#include "passes/graph/passes.h"
#include "passes/layout/plan_memory.h"
#include "passes/owners/broadcast_parameters.h"
#include "passes/schedule/schedule.h"

namespace plimsoll {

namespace {

constexpr std::array<GraphPass, 22> kPasses = {{
    {"select_kernels", "Replaces abstract ops by the kernels that the framework has.",
     select_kernels},
    {"context_parallel", "Gives each of cp ranks a part of every sequence.", context_parallel},
    {"tensor_parallel",
     "Splits weights over mp; adds the conjugate pairs that make the result whole.",
     tensor_parallel},
    {"sequence_parallel",
     "Splits tokens over mp between the split layers: gathers before them, scatters behind them.",
     sequence_parallel},
    {"expert_parallel", "Places experts on expert-parallel ranks, and sends them their tokens.",
     expert_parallel},
    {"mixed_precision",
     "Puts activations in the job's type and casts parameters; statistics and the loss stay f32.",
     mixed_precision},
    {"backward", "Adds gradient ops; what they read is saved; conjugate pairs become all-reduces.",
     backward},
    {"context_exchange", "Exchanges keys and values, or heads, between ranks that share sequences.",
     context_exchange},
    {"fp8_linears", "Casts the operands of linear layers to 8 bits, transposed if needed.",
     fp8_linears},
    {"defer_weight_gradients",
     "Puts weight gradients behind the sum of their layer's input gradient over mp.",
     defer_weight_gradients},
    {"recompute", "Drops what layers, or their attention cores, saved; backward repeats it.",
     recompute},
    {"chunk_loss", "Lets the head give gradients of a part of the tokens at once.", chunk_loss},
    {"optimizer_step",
     "Adds zeroing, finite check, global norm, clipping and the update, tensor by tensor.",
     optimizer_step},
    {"narrow_gradients", "Adds gradients up in the job's type; the update reads an f32 copy.",
     narrow_gradients},
    {"gradient_merge",
     "Makes gradients of single micro-batches separate tensors, cast and added, by tensor or fused.",
     gradient_merge},
    {"flatten_optimizer",
     "Makes these ops of every tensor few ops on flat arenas, or on one for each attribute group.",
     flatten_optimizer},
    {"partial_gradients", "Sums gradients that mp ranks computed in parts.", partial_gradients},
    {"data_parallel", "Sums gradients over the replicas.", data_parallel},
    {"shard_optimizer", "Scatters gradients, updates a part on each rank, gathers parameters.",
     shard_optimizer},
    {"place_casts", "Moves casts of parameters into the update, which then keeps f32 masters.",
     place_casts},
    {"offload_optimizer",
     "Lets the host update a share of the parameters, or keep moments, in its own memory.",
     offload_optimizer},
    {"broadcast_parameters",
     "Broadcasts parameters from their owners before every op that reads them.",
     broadcast_parameters},
}};

void prove_structure(std::string_view stage, const Graph& graph) {
  const Verdict verdict = verify(graph);
  INVARIANT(bool(verdict), "after " + std::string(stage) + ": " + verdict.reason());
}

void observe(const StageObserver& observer, std::string_view stage, const Graph& graph) {
  if (observer) observer(stage, [&](std::optional<std::int64_t>) { return print(graph); });
}

/// Runs a pass. What it returns is checked, so that a graph is verified only after a change.
void run_proven(const GraphPass& pass, Graph& graph, const PassContext& context) {
  const Graph before = graph;
  const bool changed = pass.run(graph, context);
  INVARIANT(changed == (graph != before), fmt::format("{} returned that it {} the graph", pass.name,
                                                      changed ? "changed" : "did not change"));
  if (changed) prove_structure(pass.name, graph);
}

void observe(const StageObserver& observer, std::string_view stage,
             const std::vector<Program>& programs, Proof proof) {
  for (const Program& program : programs) {
    if (proof == Proof::none) break;
    const Verdict verdict = verify(program);
    INVARIANT(bool(verdict),
              "after " + std::string(stage) + ": " + program.name + ": " + verdict.reason());
  }
  if (!observer) return;
  observer(stage, [&](std::optional<std::int64_t> rank) {
    if (rank) return print(programs[class_of(programs, programs[0].grid.coordinates(*rank))]);
    std::string text;
    for (const Program& program : programs) text += print(program);
    return text;
  });
}

/// Each stage by itself and all together, on all cores.
void prove_order(const std::vector<Program>& programs) {
  for_each_index(programs.size() + 1, 0, [&](std::size_t i) {
    if (i == 0) {  // the longest piece of work
      const Verdict together = verify_together(programs);
      INVARIANT(bool(together), together.reason());
      return;
    }
    const Program& program = programs[i - 1];
    const Verdict ordered = verify_memory_order(program);
    INVARIANT(bool(ordered), program.name + ": " + ordered.reason());
  });
}

}  // namespace

std::span<const GraphPass> graph_passes() { return kPasses; }

std::vector<std::string> stage_names() {
  std::vector<std::string> names = {"forward"};
  for (const GraphPass& pass : kPasses) names.emplace_back(pass.name);
  names.emplace_back("cut_blocks");
  names.emplace_back("schedule");
  names.emplace_back("plan_memory");
  return names;
}

Graph lower_graph(const PassContext& context, const StageObserver& observer, Proof proof) {
  Graph graph = build_forward(context.job, context.strategy.micro_batch);
  graph.grid.order = axes_of(context.strategy.rank_order);
  apply_parameter_groups(graph, context.job);
  if (proof != Proof::none) prove_structure("forward", graph);
  observe(observer, "forward", graph);
  for (const GraphPass& pass : kPasses) {
    if (proof == Proof::none) {
      pass.run(graph, context);
    } else {
      run_proven(pass, graph, context);
    }
    observe(observer, pass.name, graph);
  }
  return graph;
}

std::vector<Program> lower(const PassContext& context, const StageObserver& observer, Proof proof,
                           Addresses addresses) {
  const Graph graph = lower_graph(context, observer, proof);
  const CutGraph cut = cut_blocks(graph, arena_alignment(context.job, context.strategy),
                                  cut_choices(context.strategy));
  if (observer) observer("cut_blocks", [&](std::optional<std::int64_t>) { return print(cut); });
  const StageLayout stages = stage_layout(context.job, context.strategy, block_shapes(graph));
  std::vector<Program> programs;
  for (std::int64_t stage = 0; stage < context.strategy.pp; ++stage) {
    for (Program& program : schedule_stage(graph, cut, context, stages, stage))
      programs.push_back(std::move(program));
  }
  observe(observer, "schedule", programs, proof);
  if (addresses == Addresses::left_out) return programs;
  for (Program& program : programs) plan_memory(program);
  observe(observer, "plan_memory", programs, proof);
  if (proof == Proof::order) prove_order(programs);
  return programs;
}

}  // namespace plimsoll
