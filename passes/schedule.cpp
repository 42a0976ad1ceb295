#include "passes/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "passes/program_builder.h"
#include "passes/step_collectives.h"

namespace plimsoll {

namespace {

/// Sends in flight in one direction: a slot is free again once the host has waited for its send.
struct SendQueue {
  std::vector<std::size_t> sends;  ///< call of each send
  std::vector<BufferId> payloads;
};

class StageScheduler {
 public:
  StageScheduler(const Graph& graph, const CutGraph& cut, const PassContext& context,
                 std::int64_t stage, std::int64_t alignment)
      : graph_(graph),
        cut_(cut),
        context_(context),
        stage_(stage),
        stages_(context.strategy.pp),
        layout_(lay_out_arenas(graph, cut, context, stage, alignment)),
        collectives_(graph, context, layout_, arenas_, build_) {
    program_.name = fmt::format("{}.stage{}", graph.name, stage);
    program_.grid = grid_of(context.strategy);
    program_.stage = stage;
    program_.sharding_degree =
        context.strategy.sharding_stage > 0 ? context.strategy.sharding_degree : 1;
    program_.micro_batch = context.strategy.micro_batch;
    program_.micro_batches = micro_batches(context.job, context.strategy);
    program_.segments = layout_.segments;
    program_.buckets = layout_.buckets;
  }

  Program run() {
    add_persistent_buffers();
    for (const Instance& instance : layout_.instances) {
      const auto [found, fresh] = routines_.try_emplace(instance.block);
      if (!fresh) continue;
      found->second.forward = build_.add_routine(cut_.blocks[instance.block.index()].forward);
      found->second.backward = build_.add_routine(cut_.blocks[instance.block.index()].backward);
    }
    last_compute_ = arena_call(cut_.begin_step);
    collectives_.begin_step(last_compute_);
    one_f_one_b();
    const std::vector<std::size_t> reductions = collectives_.finish_gradients(last_compute_);
    const std::size_t update = arena_call(cut_.optimizer);
    for (std::size_t call : reductions) program_.calls[update].waits.push_back({call, {}});
    collectives_.end_step(update);
    return build_.finish();
  }

 private:
  void add_persistent_buffers() {
    const Bytes element = bytes_of(kGradientType);
    const Bytes state = owned_elements(program_) * element;
    arenas_.parameters = build_.add_persistent("parameters", TensorRole::parameter,
                                               layout_.elements * bytes_of(layout_.parameter_type));
    if (layout_.parameter_type != kGradientType) {
      arenas_.masters =
          build_.add_persistent("master_parameters", TensorRole::master_parameter, state);
    }
    arenas_.gradients =
        build_.add_persistent("gradients", TensorRole::gradient, layout_.elements * element);
    arenas_.first_moment =
        build_.add_persistent("first_moment", TensorRole::optimizer_state, state);
    arenas_.second_moment =
        build_.add_persistent("second_moment", TensorRole::optimizer_state, state);
    arenas_.scalars = build_.add_persistent("scalars", TensorRole::scalar, kScalars * element);
    if (context_.framework.workspace > Bytes(0)) {
      build_.add_persistent("workspace", TensorRole::workspace, context_.framework.workspace);
    }
  }

  // ---- block instances ----

  /// What one micro-batch keeps between the calls of a stage, by instance.
  struct InFlight {
    std::vector<BufferId> input, saved;
    std::vector<Wait> waits_for_input, waits_for_gradient;
    BufferId output_gradient;
  };

  static bool has_slot(const Routine& routine, SlotKind kind) {
    return std::any_of(routine.slots.begin(), routine.slots.end(),
                       [&](const Slot& slot) { return slot.kind == kind; });
  }

  Binding bind_slot(SlotKind kind, const Instance& instance) const {
    const Bytes parameter = bytes_of(layout_.parameter_type), gradient = bytes_of(kGradientType);
    switch (kind) {
      case SlotKind::parameters:
        return {arenas_.parameters, instance.base * parameter, {}};
      case SlotKind::gradients:
        return {arenas_.gradients, instance.base * gradient, {}};
      case SlotKind::tied_parameters:
        return {arenas_.parameters, *layout_.tied_base * parameter, {}};
      case SlotKind::tied_gradients:
        return {arenas_.gradients, *layout_.tied_base * gradient, {}};
      case SlotKind::scalars:
        return {arenas_.scalars, {}, {}};
      default:
        INVARIANT(false, "slot " + std::string(to_text(kind)) + " is bound by the schedule");
    }
  }

  /// The role of a border buffer: what the next instance's backward still reads is saved for it.
  TensorRole border_role(std::size_t instance) const {
    if (instance + 1 == layout_.instances.size()) return TensorRole::communication;  // a send slot
    const CutBlock& next = cut_.blocks[layout_.instances[instance + 1].block.index()];
    return has_slot(next.backward, SlotKind::input) ? TensorRole::saved : TensorRole::activation;
  }

  /// Before a send slot is written again, the host waits for the send that used it.
  std::vector<Wait> reuse_slot(SendQueue& queue) {
    const auto slots = std::size_t(context_.strategy.send_slots);
    if (queue.sends.size() < slots) return {};
    const std::size_t oldest = queue.sends.size() - slots;
    build_.buffer(queue.payloads[oldest]).end = build_.next_call();
    return {{queue.sends[oldest], {}}};
  }

  void transfer_out(SendQueue& queue, OpKind kind, Stream stream, std::int64_t offset,
                    BufferId payload, std::size_t producer, SlotKind port,
                    std::int64_t micro_batch) {
    const RoutineId routine = transfer_routine(kind, stream, offset, build_.buffer(payload).bytes);
    const std::size_t call = build_.add_call(routine, {}, micro_batch, {{payload, {}, {}}},
                                             {{producer, build_.port_of(producer, port)}});
    queue.sends.push_back(call);
    queue.payloads.push_back(payload);
  }

  /// Posts a receive; returns the buffer and adds the wait for it. Its memory may have been that of
  /// computation issued before, which must be over before data arrives.
  BufferId transfer_in(Stream stream, std::int64_t offset, Bytes bytes, const std::string& name,
                       std::int64_t micro_batch, std::vector<Wait>& waits) {
    const BufferId payload =
        build_.add_buffer(name, TensorRole::communication, bytes, build_.next_call());
    const RoutineId routine = transfer_routine(OpKind::recv, stream, offset, bytes);
    const std::size_t call =
        build_.add_call(routine, {}, micro_batch, {{payload, {}, {}}}, {{last_compute_, {}}});
    waits.push_back({call, {}});
    return payload;
  }

  void forward(std::int64_t micro_batch) {
    InFlight& flight = in_flight_[std::size_t(micro_batch)];
    const std::size_t count = layout_.instances.size();
    flight.input.resize(count);
    flight.saved.resize(count);
    BufferId border;
    std::vector<Wait> waits;
    if (stage_ > 0) {
      border = transfer_in(Stream::recv_previous, -1, border_bytes(0), "received_activation",
                           micro_batch, waits);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const Instance& instance = layout_.instances[i];
      const Routine& routine = cut_.blocks[instance.block.index()].forward;
      const bool sends = i + 1 == count && stage_ + 1 < stages_;
      if (sends) {
        const std::vector<Wait> reuse = reuse_slot(sent_activations_);
        waits.insert(waits.end(), reuse.begin(), reuse.end());
      }
      if (micro_batch == 0) {
        const std::vector<Wait> gathered =
            collectives_.parameter_waits(i, has_slot(routine, SlotKind::tied_parameters));
        waits.insert(waits.end(), gathered.begin(), gathered.end());
      }
      flight.input[i] = border;
      std::vector<Binding> bindings;
      for (const Slot& slot : routine.slots) {
        if (slot.kind == SlotKind::input) {
          bindings.push_back({border, {}, {}});
        } else if (slot.kind == SlotKind::output) {
          border = build_.add_buffer(sends ? "sent_activation" : "border", border_role(i),
                                     slot.bytes, build_.next_call());
          bindings.push_back({border, {}, {}});
        } else if (slot.kind == SlotKind::saved) {
          flight.saved[i] =
              build_.add_buffer("saved", TensorRole::saved, slot.bytes, build_.next_call());
          bindings.push_back({flight.saved[i], {}, {}});
        } else {
          bindings.push_back(bind_slot(slot.kind, instance));
        }
      }
      const std::size_t call = build_.add_call(routines_.at(instance.block).forward, instance.layer,
                                               micro_batch, std::move(bindings), std::move(waits));
      last_compute_ = call;
      waits.clear();
      if (has_slot(routine, SlotKind::input)) build_.buffer(flight.input[i]).end = call + 1;
      if (sends) {
        transfer_out(sent_activations_, OpKind::send, Stream::send_next, 1, border, call,
                     SlotKind::output, micro_batch);
      }
      if (graph_.at(instance.block).kind == BlockKind::head) last_head_ = call;
    }
    if (last_head_ && micro_batch + 1 == program_.micro_batches)
      collectives_.reduce_loss(*last_head_);
  }

  Bytes border_bytes(std::size_t instance) const {
    return bytes_of(graph_.at(*graph_.at(layout_.instances[instance].block).input));
  }

  void backward(std::int64_t micro_batch) {
    InFlight& flight = in_flight_[std::size_t(micro_batch)];
    BufferId gradient;
    std::vector<Wait> waits;
    if (stage_ + 1 < stages_) {
      const Bytes bytes = bytes_of(graph_.at(*graph_.at(layout_.instances.back().block).output));
      gradient = transfer_in(Stream::recv_next, 1, bytes, "received_gradient", micro_batch, waits);
    }
    for (std::size_t i = layout_.instances.size(); i-- > 0;) {
      const Instance& instance = layout_.instances[i];
      const Routine& routine = cut_.blocks[instance.block.index()].backward;
      const bool sends = i == 0 && stage_ > 0;
      if (sends) {
        const std::vector<Wait> reuse = reuse_slot(sent_gradients_);
        waits.insert(waits.end(), reuse.begin(), reuse.end());
      }
      std::vector<Binding> bindings;
      std::vector<BufferId> last_use;
      const BufferId output_gradient = gradient;
      for (const Slot& slot : routine.slots) {
        if (slot.kind == SlotKind::input || slot.kind == SlotKind::saved ||
            slot.kind == SlotKind::output_gradient) {
          const BufferId used = slot.kind == SlotKind::input   ? flight.input[i]
                                : slot.kind == SlotKind::saved ? flight.saved[i]
                                                               : output_gradient;
          last_use.push_back(used);
          bindings.push_back({used, {}, {}});
        } else if (slot.kind == SlotKind::input_gradient) {
          gradient = build_.add_buffer(sends ? "sent_gradient" : "border_gradient",
                                       sends ? TensorRole::communication : TensorRole::activation,
                                       slot.bytes, build_.next_call());
          bindings.push_back({gradient, {}, {}});
        } else {
          bindings.push_back(bind_slot(slot.kind, instance));
        }
      }
      const std::size_t call =
          build_.add_call(routines_.at(instance.block).backward, instance.layer, micro_batch,
                          std::move(bindings), std::move(waits));
      last_compute_ = call;
      waits.clear();
      for (BufferId id : last_use) build_.buffer(id).end = call + 1;
      if (sends) {
        transfer_out(sent_gradients_, OpKind::send, Stream::send_previous, -1, gradient, call,
                     SlotKind::input_gradient, micro_batch);
      }
      if (micro_batch + 1 == program_.micro_batches) collectives_.gradients_complete(i, call);
    }
    in_flight_[std::size_t(micro_batch)] = {};
  }

  void one_f_one_b() {
    const std::int64_t m = program_.micro_batches;
    in_flight_.resize(std::size_t(m));
    const std::int64_t warm_up = std::min(m, stages_ - stage_ - 1);
    for (std::int64_t i = 0; i < warm_up; ++i) forward(i);
    for (std::int64_t i = warm_up; i < m; ++i) {
      forward(i);
      backward(i - warm_up);
    }
    for (std::int64_t i = m - warm_up; i < m; ++i) backward(i);
  }

  // ---- transfers ----

  RoutineId transfer_routine(OpKind kind, Stream stream, std::int64_t offset, Bytes bytes) {
    const bool gradient = stream == Stream::send_previous || stream == Stream::recv_next;
    return build_.payload_routine(fmt::format("{}.{}", to_text(kind), to_text(stream)), kind,
                                  gradient ? Phase::backward : Phase::forward, stream,
                                  TensorRole::communication, context_.job.precision, bytes,
                                  TransferParams{offset});
  }

  // ---- once per step ----

  /// begin_step and optimizer: their arenas get this stage's sizes.
  std::size_t arena_call(Routine routine) {
    std::vector<Binding> bindings;
    for (Slot& slot : routine.slots) {
      bindings.push_back(arena_binding(slot.kind));
      slot.bytes = build_.buffer(bindings.back().buffer).bytes;
    }
    for (std::size_t i = 0; i < routine.tensors.size(); ++i) {
      Tensor& arena = routine.tensors[i];
      if (!arena.arena) continue;
      arena.shape = {routine.slots[*routine.places[i].slot].bytes.count() /
                     bytes_of(arena.dtype).count()};
    }
    return build_.add_call(build_.add_routine(routine), {}, {}, std::move(bindings), {});
  }

  Binding arena_binding(SlotKind kind) const {
    switch (kind) {
      case SlotKind::parameter_arena:
        return {arenas_.parameters, {}, {}};
      case SlotKind::master_parameter_arena:
        return {arenas_.masters, {}, {}};
      case SlotKind::gradient_arena:
        return {arenas_.gradients, {}, {}};
      case SlotKind::first_moment_arena:
        return {arenas_.first_moment, {}, {}};
      case SlotKind::second_moment_arena:
        return {arenas_.second_moment, {}, {}};
      case SlotKind::scalars:
        return {arenas_.scalars, {}, {}};
      default:
        INVARIANT(false, "slot " + std::string(to_text(kind)) + " is not an arena");
    }
  }

  const Graph& graph_;
  const CutGraph& cut_;
  const PassContext& context_;
  const std::int64_t stage_, stages_;
  const ArenaLayout layout_;
  ProgramBuilder build_;
  Program& program_ = build_.program;
  StageArenas arenas_;
  StepCollectives collectives_;
  struct BlockRoutines {
    RoutineId forward, backward;
  };
  std::map<BlockId, BlockRoutines> routines_;
  std::vector<InFlight> in_flight_;  // by micro-batch
  SendQueue sent_activations_, sent_gradients_;
  std::size_t last_compute_ = 0;  // call that used the compute stream last
  std::optional<std::size_t> last_head_;
};

}  // namespace

Program schedule_stage(const Graph& graph, const CutGraph& cut, const PassContext& context,
                       std::int64_t stage, std::int64_t alignment) {
  return StageScheduler(graph, cut, context, stage, alignment).run();
}

}  // namespace plimsoll
