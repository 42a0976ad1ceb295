// Actions of the pipeline order become calls with their buffers and waits.
#include "passes/schedule/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "passes/cut/program_builder.h"
#include "passes/owners/owned_cuts.h"
#include "passes/schedule/crossing_buffers.h"
#include "passes/schedule/gradient_reductions.h"
#include "passes/schedule/kept_buffers.h"
#include "passes/schedule/merged_gradients.h"
#include "passes/schedule/offloaded_activations.h"
#include "passes/schedule/parameter_gathers.h"
#include "passes/schedule/persistent_buffers.h"
#include "passes/schedule/selection_biases.h"
#include "passes/schedule/stage_borders.h"
#include "passes/schedule/stage_routines.h"
#include "passes/schedule/stage_transfers.h"
#include "passes/schedule/step_collectives.h"
#include "passes/schedule/update_calls.h"
#include "passes/schedule/weight_copies.h"
#include "passes/strategy/pipeline_order.h"
#include "passes/strategy/sharding_rules.h"

namespace plimsoll {

namespace {

/// One routine of one instance for one micro-batch, about to be called.
struct Use {
  const Action& action;
  std::size_t instance = 0;  ///< index into ArenaLayout::instances
  const Routine& routine;
};

/// Returns the sink of a stage whose gradients are not only reduced once per step.
std::unique_ptr<GradientSink> gradient_sink(StageContext& stage, StepCollectives& collectives,
                                            UpdateCalls& updates) {
  const Strategy& strategy = stage.context.strategy;
  if (strategy.gradients.release || shards_gradients(strategy) ||
      reduction_of_micro_batches(stage.graph) != nullptr)
    return std::make_unique<GradientReductions>(stage, updates);
  return stage.layout.micro_batch_gradients ? std::make_unique<MergedGradients>(stage, collectives)
                                            : nullptr;
}

class StageScheduler : StageCalls {
 public:
  StageScheduler(StageContext& stage, const CutGraph& cut, const StageLayout& stages,
                 std::optional<std::int64_t> owner)
      : StageCalls(stage),
        collectives_(stage),
        updates_(stage, cut),
        sink_(gradient_sink(stage, collectives_, updates_)),
        gradients_(sink_ ? *sink_ : collectives_),
        gathers_(stage),
        borders_(graph_, context_, stages, layout_),
        transfers_(context_, build_),
        cuts_(graph_, cut, context_.strategy, owned_instances(layout_), owner),
        routines_(cuts_, build_),
        crossing_(layout_, cuts_, borders_, build_),
        offloaded_(stage, cuts_, routines_),
        weight_copies_(build_),
        selection_(stage) {
    program_.name = fmt::format("{}.stage{}", graph_.name, layout_.stage);
    program_.grid = grid_of(context_.strategy);
    program_.stage = layout_.stage;
    program_.owner = owner;
    if (owner) program_.name += fmt::format(".owner{}", *owner);
    program_.sharding_degree = equal_shards(context_.strategy);
    program_.micro_batch = context_.strategy.micro_batch;
    program_.micro_batches = micro_batches(context_.job, context_.strategy);
    program_.segments = layout_.segments;
    program_.buckets = layout_.buckets;
    program_.frozen = layout_.frozen;
    if (shards_parameters(context_.strategy)) {
      for (const FrozenRange& range : layout_.frozen_ranges)
        program_.frozen_ranges.push_back({range.begin.count(), range.bytes.count(), {}});
    }
  }

  Program run() {
    arenas_ =
        add_persistent_buffers(graph_, context_, layout_, gathers_.resident_elements(), build_);
    for (std::size_t i = 0; i < layout_.instances.size(); ++i) {
      routines_.add(i, block_of(i).parts);
      selection_.add_instance(cuts_.cut_of(i).forward);
      weight_copies_.add_instance(cuts_.cut_of(i).weight_copies);
    }
    weight_copies_.add_buffer();
    selection_.add_buffers();
    updates_.begin_step();
    selection_.begin_step();
    const std::vector<Action> actions =
        borders_.numbered(stage_order(context_.strategy, layout_.stage, program_.micro_batches));
    make_room(actions.size());
    offloaded_.begin_step(actions);
    collectives_.begin_step();
    if (gathers_.active()) gathers_.begin_step(parameter_uses(actions));
    for (const StageTransfers::Incoming& comes : borders_.expected()) transfers_.expect(comes);
    run_actions(actions);
    const std::size_t updated = updates_.update(gradients_.finish());
    selection_.end_step();
    collectives_.end_step(updated);
    transfers_.finish();
    offloaded_.finish();
    return build_.finish();
  }

 private:
  /// Reserves about as many calls as a step takes, since moving them all when the list grows costs
  /// more.
  void make_room(std::size_t actions) {
    const std::size_t calls = actions * (layout_.instances.size() / layout_.chunks.size() + 2);
    program_.calls.reserve(program_.calls.size() + calls);
    program_.buffers.reserve(program_.buffers.size() + 2 * calls);
  }

  // ---- choices of other passes about a call of an instance ----

  /// Prepares a call, and may add calls such as gathers. Returns the calls for which it waits.
  std::vector<Wait> before(const Use& use) {
    if (gathers_.active()) {
      // Gathers come first: they wait for computation up to the call before.
      const bool tied = has_slot(use.routine, SlotKind::tied_parameters);
      std::vector<Wait> waits;
      if (parameter_use(use)) waits = gathers_.before_use();
      append(waits, gathers_.resident_waits(use.instance, tied));
      gradients_.before_call(use.instance, use.routine, use.action.micro_batch);
      return waits;
    }
    gradients_.before_call(use.instance, use.routine, use.action.micro_batch);
    const bool first =
        routines_.begins(use.action.kind, use.instance) && begun_.insert(use.instance).second;
    if (!first) return {};
    const std::vector<Wait> waits = collectives_.parameter_waits(
        use.instance, has_slot(use.routine, SlotKind::tied_parameters));
    weight_copies_.call(use.instance, use.action.micro_batch, waits,
                        [&](const Slot& slot) { return bind_slot(slot, use); });
    return waits;
  }

  /// The parameters that a call reads and that have to be gathered, if there are any.
  std::optional<ParameterUse> parameter_use(const Use& use) const {
    ParameterUse parameters;
    parameters.instance = use.instance;
    for (const Slot& slot : use.routine.slots) {
      if (!gathers_.is_gathered(slot, use.instance)) continue;
      const bool tied = slot.kind == SlotKind::tied_parameters;
      (tied ? parameters.tied : parameters.own) = true;
      if (slot.entry) parameters.entries.push_back(*slot.entry);
    }
    if (!parameters.own && !parameters.tied) return std::nullopt;
    parameters.phase = use.action.kind == ActionKind::forward ? Phase::forward : Phase::backward;
    parameters.micro_batch = use.action.micro_batch;
    return parameters;
  }

  std::vector<ParameterUse> parameter_uses(const std::vector<Action>& actions) const {
    std::vector<ParameterUse> uses;
    for (const Action& action : actions) {
      const auto [begin, end] = layout_.chunks[std::size_t(action.chunk)];
      for (std::size_t i = 0; i < end - begin; ++i) {
        const bool forward = action.kind == ActionKind::forward;
        const std::size_t index = forward ? begin + i : end - 1 - i;
        if (!routines_.has(action.kind, index)) continue;
        const auto use = parameter_use({action, index, routines_.whole(action.kind, index)});
        if (use) uses.push_back(*use);
      }
    }
    return uses;
  }

  /// Returns the memory of a slot that lives longer than a micro-batch's forward and backward.
  Binding bind_slot(const Slot& slot, const Use& use) const {
    switch (slot.kind) {
      case SlotKind::resident_parameters:
        return gathers_.binding(slot, use.instance);
      case SlotKind::parameters:
      case SlotKind::tied_parameters:
      case SlotKind::frozen_parameters:
        if (gathers_.active()) return gathers_.binding(slot, use.instance);
        if (slot.kind == SlotKind::frozen_parameters)
          return {arenas_.frozen, layout_.instances[use.instance].frozen, {}};
        if (slot.kind == SlotKind::tied_parameters && !layout_.tied_base)
          return {arenas_.frozen, tied_frozen(layout_)->begin, {}};
        return {arenas_.parameters,
                layout_.parameters.offset(element_of(layout_, slot, use.instance)),
                {}};
      case SlotKind::gradients:
      case SlotKind::tied_gradients:
        return gradients_.binding(slot, use.instance, use.action.micro_batch);
      case SlotKind::weight_copies:
        return weight_copies_.binding(use.instance);
      case SlotKind::scalars:
        return {arenas_.scalars, {}, {}};
      case SlotKind::selection_bias:
      case SlotKind::expert_load:
      case SlotKind::layer_choices:
        return selection_.binding(slot.kind, use.instance, use.action.micro_batch);
      default:
        INVARIANT(false, "slot " + std::string(to_text(slot.kind)) + " is bound by the schedule");
    }
  }

  /// Follows the calls of a routine or of its parts, and may add calls of its own.
  void after(const Use& use, const std::vector<std::size_t>& calls) {
    const ActionKind kind = use.action.kind;
    if (gathers_.active() && parameter_use(use)) gathers_.after_use(calls.back());
    // Before the reductions of gradients, for which the update waits.
    if (computes_losses(kind, use.instance) && --losses_left_ == 0)
      collectives_.reduce_loss(calls.back());
    if (kind == ActionKind::forward) return;
    const bool last = --gradient_calls_left_[use.instance] == 0;
    const bool more = kind == ActionKind::input_gradient &&
                      routines_.has(ActionKind::weight_gradient, use.instance);
    gradients_.wrote({use.instance, use.action.micro_batch, kind, calls, !more, last});
  }

  // ---- actions ----

  void run_actions(const std::vector<Action>& actions) {
    gradient_calls_left_.resize(layout_.instances.size());
    for (const Action& action : actions) {
      const bool forward = action.kind == ActionKind::forward;
      if (!forward) last_backward_ = action.micro_batch;
      const auto [begin, end] = layout_.chunks[std::size_t(action.chunk)];
      for (std::size_t i = begin; i < end; ++i) {
        if (computes_losses(action.kind, i)) ++losses_left_;
        if (!forward && routines_.has(action.kind, i)) ++gradient_calls_left_[i];
      }
    }
    bool after_forward = false;
    const bool ahead = receives_ahead(context_.framework, context_.strategy);
    for (std::size_t i = 0; i < actions.size(); ++i) {
      const bool pair = actions[i].in_turns;
      const std::size_t posted = std::min(i + (pair ? 4 : 2), actions.size());
      for (std::size_t next = i; ahead && next < posted; ++next) {
        if (const auto comes = borders_.incoming(actions[next])) transfers_.post(*comes);
      }
      RunningAction first = begin(actions[i], after_forward);
      if (pair) {
        RunningAction second = begin(actions[++i], true);
        in_turns(first, second);
        finish(second);
      }
      while (first.goes_on()) issue(first);
      finish(first);
      after_forward = !pair && actions[i].kind == ActionKind::forward;
    }
  }

  /// Returns whether an instance is a head, whose losses such an action computes.
  bool computes_losses(ActionKind kind, std::size_t instance) const {
    return block_of(instance).kind == BlockKind::head && routines_.begins(kind, instance);
  }

  /// An action of which some calls are issued.
  struct RunningAction {
    Action action;
    std::vector<std::size_t> instances{};  ///< whose routines are called, in order
    std::size_t next = 0;                  ///< index into `instances`
    std::vector<std::size_t> calls{};      ///< of the parts of the next instance's routine
    std::vector<Wait> waits{};             ///< for what the next call reads
    std::optional<StageBorders::Border> passed_on{};  ///< by a chunk without layers
    bool goes_on() const { return next < instances.size(); }
  };

  /// Issues a forward and a backward that does not depend on it in turns, part by part, and ends
  /// the backward first. While the tokens of one travel to experts, the other computes.
  void in_turns(RunningAction& forward, RunningAction& backward) {
    while (backward.goes_on()) {
      issue(backward);
      if (!forward.goes_on()) continue;
      const bool last = forward.next + 1 == forward.instances.size() && is_last_part(forward);
      if (!last || !backward.goes_on()) issue(forward);
    }
  }

  std::vector<KeptBuffers>& kept_of(const Action& action) {
    return kept_[{action.chunk, action.micro_batch}];
  }

  const Block& block_of(std::size_t instance) const {
    return graph_.at(layout_.instances[instance].block);
  }

  /// Begins an action: it gets the border from which it computes.
  RunningAction begin(const Action& action, bool after_forward) {
    const auto [begin, end] = layout_.chunks[std::size_t(action.chunk)];
    const bool forward = action.kind == ActionKind::forward;
    if (!forward) begin_backward(action, after_forward);
    std::optional<StageBorders::Border> border = borders_.before(action, transfers_);
    if (border && !forward) transfers_.gradient_is_received(action);
    RunningAction running{action};
    if (begin == end) {
      running.passed_on = std::move(border);
      return running;
    }
    for (std::size_t i = 0; i < end - begin; ++i)
      running.instances.push_back(forward ? begin + i : end - 1 - i);
    std::vector<KeptBuffers>& kept = kept_of(action);
    kept.resize(end - begin);
    if (!border) return running;
    const SlotKind slot = forward ? SlotKind::input : SlotKind::output_gradient;
    (forward ? kept.front() : kept.back())[slot] = border->payload;
    running.waits = std::move(border->waits);
    return running;
  }

  void begin_backward(const Action& action, bool after_forward) {
    if (action.kind != ActionKind::weight_gradient)
      transfers_.before_backward(action, after_forward);
    gradients_.before_backward(action.micro_batch);
  }

  /// A chunk without layers sends what it receives.
  void pass_on(const Action& action, StageBorders::Border border) {
    if (!borders_.incoming(action)) border.waits.push_back({build_.last_compute(), {}});
    borders_.pass_on(action, std::move(border), transfers_);
  }

  /// Ends an action: its border is left for the other chunk of this stage, where that reads it. A
  /// chunk without layers hands on what it got. In a pair it does so behind the backward, whose
  /// border the neighbour expects first.
  void finish(RunningAction& running) {
    const Action& action = running.action;
    if (running.passed_on) pass_on(action, *std::move(running.passed_on));
    if (running.instances.empty()) return;
    const bool forward = action.kind == ActionKind::forward;
    const SlotKind border = forward ? SlotKind::output : SlotKind::input_gradient;
    std::vector<KeptBuffers>& kept = kept_of(action);
    const std::optional<BufferId> payload = (forward ? kept.back() : kept.front())[border];
    if (action.kind != ActionKind::weight_gradient && payload)
      borders_.leave(action, *payload, running.waits);
    // An embedding has no input gradient to compute, and a head with loss_chunks no forward: what
    // reads the border comes later.
    if (!routines_.has(action.kind, running.instances.back())) append(end_waits_, running.waits);
    if (!forward) finish_backward(action);
  }

  void finish_backward(const Action& action) {
    gradients_.after_backward(action.micro_batch, action.micro_batch == last_backward_);
    if (action.kind != ActionKind::input_gradient) kept_.erase({action.chunk, action.micro_batch});
  }

  /// Returns the events for which the next call, which reads this border, waits. There are none
  /// where computation wrote it.
  std::vector<Wait> border_waits(std::size_t call, SlotKind border) const {
    const Routine& routine = build_.program.at(build_.program.calls[call].routine);
    const std::optional<std::size_t> port = build_.find_port(call, border, Bytes(0));
    if (!port || routine.ops[routine.ports[*port].op].stream == Stream::compute) return {};
    return {{call, port}};
  }

  bool is_last_part(const RunningAction& running) const {
    const std::size_t parts =
        routines_.of(running.action.kind, running.instances[running.next]).size();
    return running.calls.size() + 1 >= parts;
  }

  /// Calls the routine of an action's next instance, or the next part of it. Behind the last part
  /// of the last instance, the border is sent on.
  void issue(RunningAction& running) {
    const Action& action = running.action;
    const std::size_t index = running.instances[running.next];
    const bool forward = action.kind == ActionKind::forward;
    const bool sends = running.next + 1 == running.instances.size() &&
                       borders_.hand_over(action) == HandOver::transfer;
    KeptBuffers& kept = kept_of(action)[index - layout_.chunks[std::size_t(action.chunk)].first];
    const bool ends = is_last_part(running);
    if (routines_.has(action.kind, index)) {
      const Use use{action, index, routines_.whole(action.kind, index)};
      call_part(use, running, kept, sends);
      if (ends) end_instance(use, running, kept, sends);
    }
    if (!ends) return;
    running.calls.clear();
    ++running.next;
    if (!running.goes_on() || action.kind == ActionKind::weight_gradient) return;
    KeptBuffers& behind = kept_of(
        action)[running.instances[running.next] - layout_.chunks[std::size_t(action.chunk)].first];
    if (forward) {
      behind[SlotKind::input] = kept[SlotKind::output];
    } else {
      behind[SlotKind::output_gradient] = kept[SlotKind::input_gradient];
    }
  }

  /// Issues the next part of the routine of an instance.
  void call_part(const Use& use, RunningAction& running, KeptBuffers& kept, bool sends) {
    const std::size_t part = running.calls.size();
    const RoutineId id = routines_.of(use.action.kind, use.instance)[part];
    std::vector<Wait> waits = std::exchange(running.waits, {});
    if (part == 0) {
      append(waits, before(use));
      append(waits, offloaded_.before_call(use.action, use.instance, kept));
      append(waits, std::exchange(end_waits_, {}));
      if (sends) transfers_.take_slot(direction_of(use.action));
    } else {
      for (const RoutinePart::Awaited& awaited :
           routines_.waits(use.action.kind, use.instance, part))
        waits.push_back({running.calls[awaited.part], awaited.port});
      // The rows that this call waits for may lie elsewhere, but they were sent from this buffer.
      if (kept[SlotKind::carried]) build_.extend(*kept[SlotKind::carried], build_.next_call() + 1);
    }
    append(waits, transfers_.free_due());
    append(waits, offloaded_.free_due());
    const std::int64_t pieces = block_of(use.instance).parts;
    const std::int64_t piece = pieces > 1 ? std::int64_t(part) : 0;
    std::vector<Binding> bindings;
    // Copied, since calls that are added meanwhile may move the Program's routines.
    const std::vector<Slot> slots = build_.program.at(id).slots;
    bindings.reserve(slots.size());
    for (const Slot& slot : slots) {
      if (!crosses_calls(slot.kind)) {
        bindings.push_back(bind_slot(slot, use));
        continue;
      }
      std::optional<BufferId>& buffer = kept[slot.kind];
      const Slot whole{slot.kind, pieces * slot.bytes, slot.entry};
      if (!buffer) buffer = crossing_.add(whole, use.action, use.instance);
      build_.extend(*buffer, build_.next_call() + 1);
      bindings.push_back({*buffer, piece * slot.bytes, {}});
    }
    if (build_.begins_elsewhere(id)) waits.push_back({build_.last_compute(), {}});
    running.calls.push_back(build_.add_call(id, layout_.instances[use.instance].layer,
                                            use.action.micro_batch, std::move(bindings),
                                            std::move(waits)));
    program_.calls.back().part = piece;
  }

  /// Follows the last part of an instance's routine: sends its border on if it `sends`, and sets
  /// the events for which a call that reads the border has to wait.
  void end_instance(const Use& use, RunningAction& running, KeptBuffers& kept, bool sends) {
    const std::size_t call = running.calls.back();
    const bool forward = use.action.kind == ActionKind::forward;
    const SlotKind border = forward ? SlotKind::output : SlotKind::input_gradient;
    kept[SlotKind::carried].reset();
    if (sends) {
      transfers_.send(direction_of(use.action), use.action, borders_.sent_to(use.action),
                      *kept[border], {{call, build_.port_of(call, border)}});
    }
    if (forward) offloaded_.after_forward(use.action, use.instance, running.calls, kept);
    after(use, running.calls);
    running.waits = border_waits(call, border);
    const auto [begin, end] = layout_.chunks[std::size_t(use.action.chunk)];
    const bool no_layer = begin + 1 == end && block_of(use.instance).kind != BlockKind::layer;
    if (sends && no_layer) end_waits_ = running.waits;
  }

  Program& program_ = build_.program;
  StepCollectives collectives_;
  UpdateCalls updates_;
  const std::unique_ptr<GradientSink> sink_;  // if it is not collectives_
  GradientSink& gradients_;
  ParameterGathers gathers_;
  StageBorders borders_;
  StageTransfers transfers_;
  OwnedCuts cuts_;
  StageRoutines routines_;
  CrossingBuffers crossing_;
  OffloadedActivations offloaded_;
  WeightCopies weight_copies_;
  SelectionBiases selection_;
  /// By chunk and micro-batch.
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<KeptBuffers>> kept_;
  std::vector<std::size_t> gradient_calls_left_;  // by instance
  std::int64_t last_backward_ = 0;                // micro-batch of the step's last one
  std::int64_t losses_left_ = 0;                  // of micro-batches
  std::set<std::size_t> begun_;                   // instances
  /// The events for which the next call waits after a chunk without layers. No call of this rank
  /// reads the values that the chunk's last op writes on another stream, and the next call may
  /// write the same frame.
  std::vector<Wait> end_waits_;
};

}  // namespace

std::vector<Program> schedule_stage(const Graph& graph, const CutGraph& cut,
                                    const PassContext& context, const StageLayout& stages,
                                    std::int64_t stage) {
  const ArenaLayout layout = lay_out_arenas(graph, cut, context, stages, stage);
  std::vector<Program> programs;
  for (const std::optional<std::int64_t> owner : owner_classes(context.strategy)) {
    StageContext own{graph, context, layout};
    programs.push_back(StageScheduler(own, cut, stages, owner).run());
  }
  return programs;
}

}  // namespace plimsoll
