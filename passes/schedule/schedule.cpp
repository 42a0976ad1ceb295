// Actions of the pipeline order become calls with their buffers and waits.
#include "passes/schedule/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "passes/cut/program_builder.h"
#include "passes/layout/owned_cuts.h"
#include "passes/schedule/gradient_reductions.h"
#include "passes/schedule/kept_buffers.h"
#include "passes/schedule/merged_gradients.h"
#include "passes/schedule/parameter_gathers.h"
#include "passes/schedule/persistent_buffers.h"
#include "passes/schedule/selection_biases.h"
#include "passes/schedule/stage_borders.h"
#include "passes/schedule/stage_transfers.h"
#include "passes/schedule/step_collectives.h"
#include "passes/schedule/update_calls.h"
#include "passes/strategy/pipeline_order.h"

namespace plimsoll {

namespace {

/// One routine of one instance for one micro-batch, about to be called.
struct Use {
  const Action& action;
  std::size_t instance = 0;  ///< index into ArenaLayout::instances
  const Routine& routine;
};

class StageScheduler {
 public:
  StageScheduler(const Graph& graph, const CutGraph& cut, const PassContext& context,
                 std::int64_t stage, std::int64_t alignment, std::optional<std::int64_t> owner)
      : graph_(graph),
        context_(context),
        stage_(stage),
        layout_(lay_out_arenas(graph, cut, context, stage, alignment)),
        collectives_(graph, context, layout_, arenas_, build_),
        reductions_(graph, context, layout_, arenas_, build_),
        merges_(graph, context, layout_, arenas_, build_),
        gathers_(graph, context, layout_, arenas_, build_),
        borders_(graph, context, layout_, stage),
        transfers_(context, build_),
        cuts_(graph, cut, context, layout_, alignment, owner),
        updates_(cut, context, layout_, arenas_, build_),
        selection_(graph, context, build_) {
    program_.name = fmt::format("{}.stage{}", graph.name, stage);
    program_.grid = grid_of(context.strategy);
    program_.stage = stage;
    program_.owner = owner;
    if (owner) program_.name += fmt::format(".owner{}", *owner);
    program_.sharding_degree = owner ? 1 : optimizer_shards(context.strategy);
    program_.micro_batch = context.strategy.micro_batch;
    program_.micro_batches = micro_batches(context.job, context.strategy);
    program_.segments = layout_.segments;
    program_.buckets = layout_.buckets;
  }

  Program run() {
    arenas_ =
        add_persistent_buffers(graph_, context_, layout_, gathers_.resident_elements(), build_);
    for (const Instance& instance : layout_.instances) add_routines(instance);
    add_weight_copies();
    selection_.add_buffers();
    updates_.begin_step();
    const std::vector<Action> actions =
        pipeline_order(context_.strategy.schedule, context_.strategy.pp, stage_,
                       context_.strategy.virtual_stages, program_.micro_batches);
    make_room(actions.size());
    collectives_.begin_step();
    if (gathers_.active()) gathers_.begin_step(parameter_uses(actions));
    for (const StageTransfers::Incoming& comes : borders_.expected(program_.micro_batches))
      transfers_.expect(comes);
    run_actions(actions);
    const std::size_t updated = updates_.update(
        reductions_.active() ? reductions_.finish() : collectives_.finish_gradients());
    selection_.end_step();
    collectives_.end_step(updated);
    transfers_.finish();
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

  /// The routines that an instance runs.
  const CutBlock& cut_of(const Instance& instance) const {
    return cuts_.cut_of(std::size_t(&instance - layout_.instances.data()));
  }

  /// Prepares a call, and may add calls such as gathers. Returns the calls for which it waits.
  std::vector<Wait> before(const Use& use) {
    if (gathers_.active()) {
      // Gathers come first: they wait for computation up to the call before.
      const bool tied = has_slot(use.routine, SlotKind::tied_parameters);
      std::vector<Wait> waits;
      if (parameter_use(use)) waits = gathers_.before_use();
      append(waits, gathers_.resident_waits(use.instance, tied));
      prepare_gradients(use);
      return waits;
    }
    prepare_gradients(use);
    const bool first = use.action.kind == ActionKind::forward && use.action.micro_batch == 0;
    if (!first) return {};
    const std::vector<Wait> waits = collectives_.parameter_waits(
        use.instance, has_slot(use.routine, SlotKind::tied_parameters));
    copy_weights(use, waits);
    return waits;
  }

  /// Memory for copies of the weights that the step's first forward of an instance makes.
  void add_weight_copies() {
    Bytes total;
    for (const Instance& instance : layout_.instances) {
      weight_copies_.push_back(total);
      for (const Slot& slot : cut_of(instance).weight_copies.slots) {
        if (slot.kind == SlotKind::weight_copies) total += round_up(slot.bytes, kBlockAlignment);
      }
    }
    if (total == Bytes(0)) return;
    arenas_.weight_copies = build_.add_persistent("weight_copies", TensorRole::parameter, total);
  }

  void copy_weights(const Use& use, const std::vector<Wait>& waits) {
    const Instance& instance = layout_.instances[use.instance];
    const Routine& copies = cut_of(instance).weight_copies;
    if (copies.ops.empty()) return;
    const auto [found, fresh] = weight_routines_.try_emplace(&cut_of(instance));
    if (fresh) found->second = build_.add_routine(copies);
    std::vector<Binding> bindings;
    for (const Slot& slot : copies.slots) bindings.push_back(bind_slot(slot, use));
    build_.add_call(found->second, {}, use.action.micro_batch, std::move(bindings), waits);
  }

  void prepare_gradients(const Use& use) {
    if (!reductions_.active()) return;
    reductions_.before_call(use.instance, use.routine, use.action.micro_batch);
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
        const Instance& instance = layout_.instances[index];
        if (!routine_of(action.kind, index)) continue;
        const auto use = parameter_use({action, index, routine(action.kind, instance)});
        if (use) uses.push_back(*use);
      }
    }
    return uses;
  }

  /// Returns the memory of a slot that lives longer than a micro-batch's forward and backward.
  Binding bind_slot(const Slot& slot, const Use& use) const {
    const std::int64_t base = slot.entry ? layout_.entries[use.instance][*slot.entry]
                                         : layout_.instances[use.instance].base;
    const SlotKind kind = slot.kind;
    const bool of_parameters = kind == SlotKind::parameters || kind == SlotKind::tied_parameters ||
                               kind == SlotKind::resident_parameters;
    if (of_parameters && gathers_.active()) return gathers_.binding(slot, use.instance);
    const bool of_gradients = kind == SlotKind::gradients || kind == SlotKind::tied_gradients;
    if (of_gradients && reductions_.active()) {
      return reductions_.binding(slot, use.instance, use.action.micro_batch);
    }
    const bool tied = kind == SlotKind::tied_parameters || kind == SlotKind::tied_gradients;
    const std::int64_t element = tied ? *layout_.tied_base : base;
    if (of_gradients && merges_.active()) return merges_.binding(element);
    switch (kind) {
      case SlotKind::parameters:
      case SlotKind::tied_parameters:
        return {arenas_.parameters, layout_.parameters.offset(element), {}};
      case SlotKind::gradients:
      case SlotKind::tied_gradients:
        return {arenas_.gradients, layout_.gradients.offset(element), {}};
      case SlotKind::weight_copies:
        return {arenas_.weight_copies, weight_copies_[use.instance], {}};
      case SlotKind::scalars:
        return {arenas_.scalars, {}, {}};
      case SlotKind::selection_bias:
      case SlotKind::expert_load:
        return selection_.binding(kind, use.instance);
      default:
        INVARIANT(false, "slot " + std::string(to_text(slot.kind)) + " is bound by the schedule");
    }
  }

  /// Follows a call, and may add calls of its own.
  void after(const Use& use, std::size_t call) {
    const Instance& instance = layout_.instances[use.instance];
    const bool forward = use.action.kind == ActionKind::forward;
    if (forward && graph_.at(instance.block).kind == BlockKind::head) last_head_ = call;
    if (gathers_.active() && parameter_use(use)) gathers_.after_use(call);
    if (!forward) {
      const bool last = --gradient_calls_left_[use.instance] == 0;
      if (reductions_.active()) {
        const bool more = use.action.kind == ActionKind::input_gradient &&
                          routine_of(ActionKind::weight_gradient, use.instance);
        reductions_.after_call(use.instance, use.action.micro_batch, call, !more, last);
      } else if (!merges_.active()) {
        collectives_.wrote_gradients(use.instance, use.action.kind, call, last);
      } else if (last) {
        for (const auto& [bucket, add] :
             merges_.after_instance(use.instance, use.action.micro_batch)) {
          collectives_.merged_gradients(bucket, add);
        }
      }
    }
  }

  // ---- actions ----

  void add_routines(const Instance& instance) {
    selection_.add_instance(cut_of(instance).forward);
    const auto [found, fresh] = block_routines_.try_emplace(&cut_of(instance));
    routines_.push_back(&found->second);
    if (!fresh) return;
    for (ActionKind kind :
         {ActionKind::forward, ActionKind::backward, ActionKind::weight_gradient}) {
      const Routine& cut = routine(kind, instance);
      if (!cut.ops.empty()) found->second[std::size_t(kind)] = build_.add_routine(cut);
    }
  }

  /// Returns the routine of an instance in an action, and nothing where the action has no work for
  /// it.
  std::optional<RoutineId> routine_of(ActionKind kind, std::size_t instance) const {
    const bool input = kind == ActionKind::input_gradient;
    return (*routines_[instance])[std::size_t(input ? ActionKind::backward : kind)];
  }

  void run_actions(const std::vector<Action>& actions) {
    gradient_calls_left_.resize(layout_.instances.size());
    for (const Action& action : actions) {
      if (action.kind == ActionKind::forward) continue;
      last_backward_ = action.micro_batch;
      const auto [begin, end] = layout_.chunks[std::size_t(action.chunk)];
      for (std::size_t i = begin; i < end; ++i) {
        if (routine_of(action.kind, i)) ++gradient_calls_left_[i];
      }
    }
    bool after_forward = false;
    const bool ahead = receives_ahead(context_.framework, context_.strategy);
    for (std::size_t i = 0; i < actions.size(); ++i) {
      for (std::size_t next = i; ahead && next < std::min(i + 2, actions.size()); ++next) {
        if (const auto comes = borders_.incoming(actions[next])) transfers_.post(*comes);
      }
      const bool is_forward = actions[i].kind == ActionKind::forward;
      is_forward ? forward(actions[i]) : backward(actions[i], after_forward);
      after_forward = is_forward;
    }
  }

  std::vector<KeptBuffers>& kept_of(const Action& action) {
    return kept_[{action.chunk, action.micro_batch}];
  }

  const Block& block_of(std::size_t instance) const {
    return graph_.at(layout_.instances[instance].block);
  }

  void forward(const Action& action) {
    const auto [begin, end] = layout_.chunks[std::size_t(action.chunk)];
    std::optional<StageBorders::Border> border = borders_.before(action, transfers_);
    if (begin == end) return pass_on(action, *std::move(border));
    std::vector<KeptBuffers>& kept = kept_of(action);
    kept.resize(end - begin);
    std::vector<Wait> waits;
    if (border) {
      kept[0][SlotKind::input] = border->payload;
      waits = std::move(border->waits);
    }
    for (std::size_t i = begin; i < end; ++i) {
      const bool sends = i + 1 == end && borders_.hand_over(action) == HandOver::transfer;
      waits = call_instance(action, i, kept[i - begin], std::exchange(waits, {}), sends);
      if (i + 1 < end) kept[i + 1 - begin][SlotKind::input] = kept[i - begin][SlotKind::output];
    }
    if (kept.back()[SlotKind::output])
      borders_.leave(action, *kept.back()[SlotKind::output], std::move(waits));
    if (last_head_ && borders_.is_last_part(action) &&
        action.micro_batch + 1 == program_.micro_batches) {
      collectives_.reduce_loss(*last_head_);
    }
  }

  /// A chunk without layers sends what it receives.
  void pass_on(const Action& action, StageBorders::Border border) {
    if (!borders_.incoming(action)) border.waits.push_back({build_.last_compute(), {}});
    borders_.pass_on(action, std::move(border), transfers_);
  }

  /// Backward of a chunk, or the part of it that the action says.
  void backward(const Action& action, bool after_forward) {
    const auto [begin, end] = layout_.chunks[std::size_t(action.chunk)];
    const bool passes_on = action.kind != ActionKind::weight_gradient;
    std::vector<Wait> waits;
    if (passes_on) transfers_.before_backward(action, after_forward);
    if (merges_.active()) merges_.before_backward(action.micro_batch);
    std::optional<StageBorders::Border> border = borders_.before(action, transfers_);
    if (border) transfers_.gradient_is_received(action);
    if (begin == end) {
      if (border) pass_on(action, *std::move(border));
      return;
    }
    std::vector<KeptBuffers>& kept = kept_of(action);
    if (border) {
      kept.back()[SlotKind::output_gradient] = border->payload;
      waits = std::move(border->waits);
    }
    for (std::size_t i = end; i-- > begin;) {
      const bool sends = i == begin && borders_.hand_over(action) == HandOver::transfer;
      KeptBuffers& own = kept[i - begin];
      waits = call_instance(action, i, own, std::exchange(waits, {}), sends);
      if (passes_on && i > begin) {
        kept[i - 1 - begin][SlotKind::output_gradient] = own[SlotKind::input_gradient];
      }
    }
    if (passes_on && kept[0][SlotKind::input_gradient])
      borders_.leave(action, *kept[0][SlotKind::input_gradient], waits);
    // The embedding alone has no input gradient to compute: what reads the border comes later.
    if (!routine_of(action.kind, begin)) append(end_waits_, waits);
    if (merges_.active()) {
      for (const auto& [bucket, add] : merges_.after_backward(action.micro_batch)) {
        if (action.micro_batch == last_backward_) collectives_.merged_gradients(bucket, add);
      }
    }
    if (action.kind != ActionKind::input_gradient) {
      kept_.erase({action.chunk, action.micro_batch});
    }
  }

  /// Returns the events for which the next call, which reads this border, waits. There are none
  /// where computation wrote it.
  std::vector<Wait> border_waits(std::size_t call, SlotKind border, const Routine& routine) const {
    const std::optional<std::size_t> port = build_.find_port(call, border, Bytes(0));
    if (!port || routine.ops[routine.ports[*port].op].stream == Stream::compute) return {};
    return {{call, port}};
  }

  /// Calls the instance's routine, if this action has one, and sends its border on if it `sends`.
  /// Returns the events for which a call that reads the border has to wait.
  std::vector<Wait> call_instance(const Action& action, std::size_t index, KeptBuffers& kept,
                                  std::vector<Wait> waits, bool sends) {
    const Instance& instance = layout_.instances[index];
    const std::optional<RoutineId> id = routine_of(action.kind, index);
    if (!id) return waits;
    const bool forward = action.kind == ActionKind::forward;
    const Direction direction = direction_of(action);
    const Use use{action, index, routine(action.kind, instance)};
    append(waits, before(use));
    append(waits, std::exchange(end_waits_, {}));
    if (sends) transfers_.take_slot(direction);
    append(waits, transfers_.free_due());
    std::vector<Binding> bindings;
    bindings.reserve(use.routine.slots.size());
    for (const Slot& slot : use.routine.slots) {
      if (!crosses_calls(slot.kind)) {
        bindings.push_back(bind_slot(slot, use));
        continue;
      }
      std::optional<BufferId>& buffer = kept[slot.kind];
      if (!buffer) buffer = add_crossing(slot, use);
      build_.extend(*buffer, build_.next_call() + 1);
      bindings.push_back({*buffer, {}, {}});
    }
    if (build_.begins_elsewhere(*id)) waits.push_back({build_.last_compute(), {}});
    const std::size_t call = build_.add_call(*id, instance.layer, action.micro_batch,
                                             std::move(bindings), std::move(waits));
    const SlotKind border = forward ? SlotKind::output : SlotKind::input_gradient;
    if (sends) {
      transfers_.send(direction, action, borders_.sent_to(action), *kept[border],
                      {{call, build_.port_of(call, border)}});
    }
    after(use, call);
    std::vector<Wait> of_border = border_waits(call, border, use.routine);
    const auto [begin, end] = layout_.chunks[std::size_t(action.chunk)];
    const bool no_layer = begin + 1 == end && block_of(index).kind != BlockKind::layer;
    if (sends && no_layer) end_waits_ = of_border;
    return of_border;
  }

  const Routine& routine(ActionKind kind, const Instance& instance) const {
    const CutBlock& cut = cut_of(instance);
    if (kind == ActionKind::forward) return cut.forward;
    return kind == ActionKind::weight_gradient ? cut.weight_gradient : cut.backward;
  }

  BufferId add_crossing(const Slot& slot, const Use& use) {
    const auto [begin, end] = layout_.chunks[std::size_t(use.action.chunk)];
    const auto add = [&](const char* name, TensorRole role) {
      return build_.add_buffer(name, role, slot.bytes, build_.next_call());
    };
    switch (slot.kind) {
      case SlotKind::output:
        if (use.instance + 1 < end)
          return add("border", border_role(use.instance + 1, SlotKind::input));
        if (const auto reader = borders_.reader(use.action))
          return add("border", border_role(reader->first, SlotKind::input));
        return add("sent_activation", TensorRole::communication);
      case SlotKind::input_gradient:
        if (use.instance > begin)
          return add("border_gradient", border_role(use.instance - 1, SlotKind::output_gradient));
        if (const auto reader = borders_.reader(use.action))
          return add("border_gradient", border_role(reader->second - 1, SlotKind::output_gradient));
        return add("sent_gradient", TensorRole::communication);
      case SlotKind::saved:
        return add("saved", TensorRole::saved);
      case SlotKind::saved_for_weights:
        return add("saved_for_weights", TensorRole::saved);
      case SlotKind::deferred:
        return add("deferred", TensorRole::saved);
      default:
        INVARIANT(false, "slot " + std::string(to_text(slot.kind)) + " is written by nobody");
    }
  }

  /// Returns the role of a border. A border that the next instance reads again later is saved for
  /// it.
  TensorRole border_role(std::size_t reader, SlotKind kind) const {
    const CutBlock& cut = cut_of(layout_.instances[reader]);
    const bool late = has_slot(cut.weight_gradient, kind) ||
                      (kind == SlotKind::input && has_slot(cut.backward, kind));
    return late ? TensorRole::saved : TensorRole::activation;
  }

  const Graph& graph_;
  const PassContext& context_;
  const std::int64_t stage_;
  const ArenaLayout layout_;
  ProgramBuilder build_;
  Program& program_ = build_.program;
  StageArenas arenas_;
  StepCollectives collectives_;
  GradientReductions reductions_;
  MergedGradients merges_;
  ParameterGathers gathers_;
  StageBorders borders_;
  StageTransfers transfers_;
  OwnedCuts cuts_;
  UpdateCalls updates_;
  SelectionBiases selection_;
  using BlockRoutines = std::array<std::optional<RoutineId>, 4>;  // by ActionKind
  std::map<const CutBlock*, BlockRoutines> block_routines_;       // looked up only
  std::vector<const BlockRoutines*> routines_;                    // by instance
  /// By chunk and micro-batch.
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<KeptBuffers>> kept_;
  std::vector<Bytes> weight_copies_;                      // offsets, by instance
  std::map<const CutBlock*, RoutineId> weight_routines_;  // looked up only
  std::vector<std::size_t> gradient_calls_left_;          // by instance
  std::int64_t last_backward_ = 0;                        // micro-batch of the step's last one
  std::optional<std::size_t> last_head_;
  /// The events for which the next call waits after a chunk without layers. No call of this rank
  /// reads the values that the chunk's last op writes on another stream, and the next call may
  /// write the same frame.
  std::vector<Wait> end_waits_;
};

}  // namespace

Program schedule_stage(const Graph& graph, const CutGraph& cut, const PassContext& context,
                       std::int64_t stage, std::int64_t alignment,
                       std::optional<std::int64_t> owner) {
  return StageScheduler(graph, cut, context, stage, alignment, owner).run();
}

}  // namespace plimsoll
