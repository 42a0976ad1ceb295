// A stage context has what all parts of a stage's schedule read, and the Program to which they add
// calls.
#pragma once

#include "passes/cut/program_builder.h"
#include "passes/layout/arena_layout.h"
#include "passes/strategy/pass_context.h"
#include "passes/strategy/pipeline_order.h"

namespace plimsoll {

/// StageArenas are the persistent buffers of a stage.
struct StageArenas {
  BufferId parameters, masters, first_moment, second_moment, scalars;
  BufferId gradients;              ///< unless they are released (Strategy::gradients)
  BufferId moment_scales;          ///< of moments in 8 bits
  BufferId micro_batch_gradients;  ///< for fused merges
  BufferId resident;               ///< sharding stage 3: parameters that stay whole, if any
  BufferId frozen;                 ///< frozen parameters, if any
  /// Where the host updates a share of the parameters, or has the moments between updates.
  BufferId host_parameters, host_gradients, host_first_moment, host_second_moment;
};

struct StageContext {
  const Graph& graph;
  const PassContext& context;
  const ArenaLayout& layout;
  StageArenas arenas{};
  ProgramBuilder build{};
};

/// The base of classes that add calls to a stage's Program while the schedule issues the others.
class StageCalls {
 public:
  explicit StageCalls(StageContext& stage)
      : graph_(stage.graph),
        context_(stage.context),
        layout_(stage.layout),
        arenas_(stage.arenas),
        build_(stage.build) {}

 protected:
  const Graph& graph_;
  const PassContext& context_;
  const ArenaLayout& layout_;
  StageArenas& arenas_;
  ProgramBuilder& build_;
};

/// WrittenGradients are the gradients of an instance to which an action has added.
struct WrittenGradients {
  std::size_t instance = 0;
  std::int64_t micro_batch = 0;
  ActionKind kind = ActionKind::backward;
  std::vector<std::size_t> calls;  ///< of the action
  bool complete = false;           ///< no further call adds to them in this micro-batch
  bool last = false;               ///< nor in this step
};

/// A GradientSink takes the gradients that calls write, and reduces them over ranks that saw other
/// sequences. Each stage has one: StepCollectives, MergedGradients or GradientReductions.
class GradientSink : protected StageCalls {
 public:
  using StageCalls::StageCalls;
  virtual ~GradientSink() = default;

  /// Returns the memory of a slot of gradients.
  virtual Binding binding(const Slot& slot, std::size_t instance,
                          std::int64_t micro_batch) const = 0;
  virtual void before_backward(std::int64_t /*micro_batch*/) {}
  virtual void before_call(std::size_t /*instance*/, const Routine& /*routine*/,
                           std::int64_t /*micro_batch*/) {}
  virtual void wrote(const WrittenGradients& written) = 0;
  /// `last` is set for the last backward of the step.
  virtual void after_backward(std::int64_t /*micro_batch*/, bool /*last*/) {}
  /// To be called when all backwards are issued. Returns the calls for which the update waits.
  virtual std::vector<std::size_t> finish() = 0;
};

}  // namespace plimsoll
