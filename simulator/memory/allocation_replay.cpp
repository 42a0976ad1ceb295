// Replays steps call by call: takes a block for a tensor when it is written, gives it back when it
// is dead.
#include "simulator/memory/allocation_replay.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "simulator/memory/alike_cycles.h"
#include "simulator/memory/checkpoints.h"
#include "simulator/memory/routine_events.h"
#include "simulator/memory/shard_copies.h"
#include "simulator/memory/stage_buffers.h"

namespace plimsoll {
namespace {

using Block = TensorBlocks::Block;

constexpr Bytes kNoLimit{std::int64_t{1} << 60};

bool lies_in_tensors(SlotKind kind) {
  return kind == SlotKind::saved || kind == SlotKind::saved_for_weights ||
         kind == SlotKind::offloaded || kind == SlotKind::deferred;
}

/// Cycles that are replayed where all are alike. The other cycles find the same tensors alive.
/// Their free blocks may lie elsewhere, which changes the reserved bytes by 0.5 % at most
/// (tests/simulator/allocation_replay_test.cpp).
constexpr std::size_t kCyclesReplayed = 8;

/// Whether each micro-batch leaves something to the end of the step.
bool keeps_each_micro_batch(const Program& program, const Framework& framework) {
  return framework.memory.borders == BorderMemory::for_each && program.grid[Axis::pp] > 1;
}

class Replay {
 public:
  Replay(const Program& program, const Framework& framework, Bytes limit, AlikeMicroBatches alike)
      : program_(program),
        framework_(framework),
        cycles_(alike == AlikeMicroBatches::leave_out && !keeps_each_micro_batch(program, framework)
                    ? alike_cycles(program)
                    : std::nullopt),
        blocks_(framework.memory.allocator, limit),
        held_(program.buffers.size()),
        released_(program.calls.size() + 1),
        routines_(events_of(program, framework, names_)),
        shards_(program, framework, routines_, names_, blocks_),
        stage_(program, framework, names_, blocks_),
        checkpoints_(program, framework) {
    leave_out_persistent();
    for (const Segment& segment : program.segments) elements_ += segment.elements;
    scatters_gradients_ = scatters_gradients();
    adds_up_in_f32_ = adds_up_in_f32();
    for (std::size_t b = 0; b < program.buffers.size(); ++b) {
      const Buffer& buffer = program.buffers[b];
      if (!buffer.persistent) released_[buffer.end].push_back(b);
      buffer_names_.push_back(names_.of(buffer.name));
    }
  }

  /// Replays steps; stops where `most` bytes are handed out, if that is given.
  void run(std::optional<Bytes> most = {}) {
    blocks_.stop_at(most);
    constexpr int kMostSteps = 4;
    try {
      begin();
      for (int step = 0; step < kMostSteps; ++step) {
        const auto before = std::pair(blocks_.most_allocated(), blocks_.most_reserved());
        run_calls();
        end_step();
        const auto now = std::pair(blocks_.most_allocated(), blocks_.most_reserved());
        if (step > 0 && now == before) break;
      }
    } catch (const TensorBlocks::Stop&) {
    }
  }

  AllocatorUse use() const { return blocks_.use(); }
  std::vector<AliveTensors> alive() const { return blocks_.alive(names_); }

 private:
  /// A Part is what of a buffer a block holds. A checkpoint is parked between forward and backward.
  enum class PartKind : std::uint8_t { whole, parked, tensor, copy };
  using Part = std::pair<PartKind, Bytes>;  // with the tensor's offset

  /// Drops the events of slots that every call binds to a buffer which lives between steps.
  void leave_out_persistent() {
    std::vector<std::vector<bool>> comes_and_goes(routines_.size());
    for (std::size_t r = 0; r < routines_.size(); ++r)
      comes_and_goes[r].resize(program_.routines[r].slots.size());
    for (const Call& call : program_.calls) {
      std::vector<bool>& slots = comes_and_goes[call.routine.index()];
      for (std::size_t slot = 0; slot < slots.size(); ++slot) {
        const BufferId buffer = call.bindings[slot].buffer;
        if (!program_.at(buffer).persistent || shards_.has(buffer.index())) slots[slot] = true;
      }
    }
    for (std::size_t r = 0; r < routines_.size(); ++r) {
      std::erase_if(routines_[r].events, [&](const StorageEvent& event) {
        const auto& slot = routines_[r].storages[event.storage].slot;
        return slot && !comes_and_goes[r][*slot];
      });
    }
  }

  void run_calls() {
    std::size_t cycle = cycles_ ? cycles_->first + kCyclesReplayed : 0;
    for (std::size_t call = 0; call < program_.calls.size(); ++call) {
      if (cycles_ && cycle <= cycles_->last && call == cycles_->begins[cycle]) {
        const std::size_t left = cycles_->last + 1 - cycle++;
        if (all_move_on(left)) {
          move_on(std::int64_t(left) * cycles_->buffers);
          call = cycles_->begins[cycles_->last + 1];
          cycle = cycles_->last + 1;
        }
      }
      run_call(call);
    }
  }

  /// Whether everything that is held belongs to alike cycles: `cycles` later, the same is held for
  /// the buffers of that time. It is not so where a buffer from before these cycles is still held.
  bool all_move_on(std::size_t cycles) const {
    const std::size_t later = cycles_->begins[cycles_->last + 1] - cycles_->begins[cycles_->last];
    for (std::size_t b = 0; b < held_.size(); ++b) {
      const Buffer& one = program_.buffers[b];
      if (one.persistent || held_[b].empty()) continue;
      const std::size_t other = b + cycles * std::size_t(cycles_->buffers);
      if (other >= program_.buffers.size()) return false;
      const Buffer& same = program_.buffers[other];
      if (same.bytes != one.bytes || same.role != one.role || same.end != one.end + cycles * later)
        return false;
    }
    return true;
  }

  /// Makes blocks that are held for a buffer be held for the buffer that many numbers further on.
  void move_on(std::int64_t buffers) {
    for (std::size_t b = held_.size(); b-- > 0;) {
      if (program_.buffers[b].persistent || held_[b].empty()) continue;
      std::swap(held_[b + std::size_t(buffers)], held_[b]);
    }
    shards_.move_on(std::size_t(buffers));
  }

  /// Whether the buffer has gradients as computed, which live until the update has read them.
  bool computed_gradients(const Buffer& buffer) const {
    return copies_gradients() && !scatters_gradients_ && buffer.role == TensorRole::gradient &&
           buffer.persistent;
  }

  bool copies_gradients() const {
    return framework_.memory.gradients >= GradientMemory::as_computed;
  }

  /// Whether the buffer has gradients that exist from a layer's backward to the update.
  bool lies_by_layer(const Buffer& buffer) const {
    const bool alone = program_.grid.world_size() == program_.grid[Axis::mp];
    return framework_.memory.gradients == GradientMemory::by_layer && alone &&
           buffer.role == TensorRole::gradient && buffer.persistent && !buffer.on_host;
  }

  /// Whether sharding scatters gradients in backward (stages 2 and 3), so that only shards stay.
  bool scatters_gradients() const {
    Bytes lasting;
    for (const Buffer& buffer : program_.buffers) {
      if (buffer.persistent && buffer.role == TensorRole::gradient) lasting += buffer.bytes;
    }
    return lasting > Bytes() && lasting < elements_ * bytes_of(gradient_type());
  }

  /// Returns the type in which the Program sums and reduces gradients.
  DType gradient_type() const {
    DType type = DType::f32;
    for (const Routine& routine : program_.routines) {
      for (std::size_t i = 0; i < routine.tensors.size(); ++i) {
        const auto& slot = routine.places[i].slot;
        if (slot && routine.slots[*slot].kind == SlotKind::gradient_arena)
          type = routine.tensors[i].dtype;
      }
    }
    return type;
  }

  /// Whether gradients are tensors as computed, and are also summed in an f32 buffer. With bf16
  /// parameters this is DeepSpeed's BF16_Optimizer. Gradients of f16 are never summed in f32.
  bool adds_up_in_f32() const {
    if (framework_.memory.gradients != GradientMemory::bf16_also_in_f32 || scatters_gradients_ ||
        program_.segments.empty() || program_.segments.front().dtype != DType::bf16)
      return false;
    return gradient_type() == DType::f32;
  }

  /// Returns a buffer's size. Some frameworks hold scattered gradients in the parameters' type.
  Bytes size_of(const Buffer& buffer) const {
    const bool narrow =
        copies_gradients() && scatters_gradients_ && buffer.role == TensorRole::gradient;
    if (!narrow) return buffer.bytes;
    const Bytes narrow_type = bytes_of(program_.segments.front().dtype);
    return Bytes(buffer.bytes.count() / bytes_of(DType::f32).count() * narrow_type.count());
  }

  /// Allocates the buffers that exist before the first step.
  void begin() {
    for (std::size_t b = 0; b < program_.buffers.size(); ++b) {
      const Buffer& buffer = program_.buffers[b];
      const bool later =
          framework_.memory.lazy_optimizer_state && buffer.role == TensorRole::optimizer_state;
      const bool computed =
          (computed_gradients(buffer) && !adds_up_in_f32_) || lies_by_layer(buffer);
      if (buffer.persistent && !later && !computed && !shards_.has(b) && !buffer.on_host)
        take_persistent(b);
    }
    shards_.begin();
    stage_.begin();
  }

  void end_step() {
    release(program_.calls.size());
    shards_.end_step();
    stage_.end_step();
    blocks_.give(flat_);
    blocks_.give(added_);
    for (std::size_t b = 0; b < program_.buffers.size(); ++b) {
      const Buffer& buffer = program_.buffers[b];
      if ((computed_gradients(buffer) && !adds_up_in_f32_) || lies_by_layer(buffer)) give_all(b);
    }
  }

  Bytes owned(DType type) const { return owned_elements(program_) * bytes_of(type); }

  /// Allocates what a call needs of a buffer that lives between steps.
  void use_persistent(std::size_t b, bool updates) {
    const Buffer& buffer = program_.buffers[b];
    if (shards_.has(b) || buffer.on_host) return;
    // The update reads an f32 copy.
    if (updates && flat_.empty() && size_of(buffer) < buffer.bytes)
      flat_.push_back(blocks_.take(owned(DType::f32), flat_name_, TensorRole::gradient, 0));
    if (!computed_gradients(buffer)) {
      if (held_[b].empty()) take_persistent(b);
    } else if (adds_up_in_f32_) {
      // The update reads the f32 sums, which the optimizer owns in place.
      if (updates || !added_.empty()) return;
      for (const Segment& segment : program_.segments) {
        added_.push_back(blocks_.take(segment.elements * bytes_of(segment.dtype), buffer_names_[b],
                                      buffer.role, 0));
      }
    } else if (updates) {
      if (held_[b].empty() || !flat_.empty() || program_.segments.empty()) return;
      // Gradients in f32 are copied once, for their reduction (DeepSpeed runtime/engine.py,
      // allreduce_bucket), and not cast.
      std::vector<DType> copies = {program_.segments.front().dtype};
      if (copies.front() != DType::f32) copies.push_back(DType::f32);
      for (const DType type : copies)
        flat_.push_back(blocks_.take(owned(type), flat_name_, TensorRole::gradient, 0));
    } else if (held_[b].empty()) {
      for (const Segment& segment : program_.segments) {
        hold(b, {PartKind::tensor, Bytes(segment.offset)},
             blocks_.take(segment.elements * bytes_of(segment.dtype), buffer_names_[b], buffer.role,
                          0));
      }
    }
  }

  void use_gradients(const Binding& binding, Bytes bytes) {
    const std::size_t b = binding.buffer.index();
    const Part layer{PartKind::tensor, binding.offset};
    if (bytes > Bytes() && find(b, layer) == held_[b].end())
      hold(b, layer, blocks_.take(bytes, buffer_names_[b], TensorRole::gradient, 0));
  }

  /// Takes a buffer tensor by tensor, or whole, as the framework does.
  void take_persistent(std::size_t b) {
    const Buffer& buffer = program_.buffers[b];
    const bool by_tensor =
        (buffer.role == TensorRole::parameter || buffer.role == TensorRole::master_parameter ||
         buffer.role == TensorRole::optimizer_state) &&
        !copies_gradients();
    if (by_tensor && elements_ > 0) return take_by_tensor(b);
    take_whole(b);
  }

  void take_whole(std::size_t b) {
    const Buffer& buffer = program_.buffers[b];
    hold(b, {}, blocks_.take(size_of(buffer), buffer_names_[b], buffer.role, 0));
  }

  /// Takes one block for each parameter's share of the buffer.
  void take_by_tensor(std::size_t b) {
    const Buffer& buffer = program_.buffers[b];
    std::int64_t before = 0;
    Bytes done;
    for (const Segment& segment : program_.segments) {
      before += segment.elements;
      const Bytes end(
          std::int64_t(double(buffer.bytes.count()) * double(before) / double(elements_)));
      if (end == done) continue;
      hold(b, {PartKind::tensor, done}, blocks_.take(end - done, buffer_names_[b], buffer.role, 0));
      done = end;
    }
  }

  void hold(std::size_t buffer, Part part, Block block) {
    if (held_[buffer].capacity() == 0 && !lists_.empty()) {
      held_[buffer] = std::move(lists_.back());
      lists_.pop_back();
    }
    held_[buffer].emplace_back(part, block);
  }
  /// Keeps the buffer's list for another buffer, if it is empty now.
  void let_go(std::size_t buffer) {
    if (held_[buffer].empty() && held_[buffer].capacity() > 0)
      lists_.push_back(std::exchange(held_[buffer], {}));
  }
  std::vector<std::pair<Part, Block>>::iterator find(std::size_t buffer, Part part) {
    return std::find_if(held_[buffer].begin(), held_[buffer].end(),
                        [&](const auto& one) { return one.first == part; });
  }

  void release(std::size_t call) {
    for (const std::size_t buffer : released_[call]) give_all(buffer);
  }

  void give_all(std::size_t buffer) {
    if (shards_.has(buffer)) shards_.release(buffer);
    for (const auto& [part, block] : held_[buffer]) {
      if (!stage_.keeps(buffer, block)) blocks_.give(block);
    }
    held_[buffer].clear();
    let_go(buffer);
  }

  /// Takes the f32 gradients that the update casts, tensor by tensor, before the update makes
  /// state. Where gradients are held as computed, use_persistent() takes flat ones.
  void take_main_gradients(const Call& call) {
    if (copies_gradients() || elements_ == 0) return;
    const std::vector<Slot>& slots = program_.at(call.routine).slots;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const std::size_t b = call.bindings[i].buffer.index();
      if (slots[i].kind == SlotKind::main_gradients && held_[b].empty()) take_by_tensor(b);
    }
  }

  void run_call(std::size_t index) {
    release(index);
    const Call& call = program_.calls[index];
    shards_.before_call(index);
    stage_.before_call(index);
    const RoutineEvents& routine = routines_[call.routine.index()];
    const bool updates = program_.at(call.routine).phase == Phase::optimizer;
    take_main_gradients(call);
    for (std::size_t i = 0; i < call.bindings.size(); ++i) {
      const Binding& binding = call.bindings[i];
      const Buffer& buffer = program_.at(binding.buffer);
      if (lies_by_layer(buffer)) {
        if (!updates) use_gradients(binding, program_.at(call.routine).slots[i].bytes);
      } else if (buffer.persistent) {
        use_persistent(binding.buffer.index(), updates);
      }
    }
    for (const Binding& binding : call.bindings) {
      if (checkpoints_.has(binding.buffer.index())) fetch(binding.buffer.index(), index);
    }
    frame_.assign(routine.storages.size(), std::nullopt);
    for (const StorageEvent& event : routine.events) {
      const TensorStorage& storage = routine.storages[event.storage];
      if (storage.slot) {
        run_in_slot(index, event.kind, storage);
      } else if (storage.stays) {
        if (kept_.insert(storage.name).second)
          blocks_.take(storage.bytes, storage.name, storage.role, storage.stream);
      } else if (event.kind == StorageEvent::Kind::write) {
        frame_[event.storage] =
            blocks_.take(storage.bytes, storage.name, storage.role, storage.stream);
      } else if (frame_[event.storage] &&
                 !(storage.output && stage_.keeps_output(*frame_[event.storage], storage.bytes))) {
        blocks_.give(*frame_[event.storage]);
      }
    }
    shards_.after_call(index);
  }

  /// Replaces a checkpoint, between forward and backward, by the part that the device keeps.
  void park(std::size_t b) {
    const auto whole = find(b, {});
    if (whole == held_[b].end()) return;
    const Block block = whole->second;
    held_[b].erase(whole);
    const Buffer& buffer = program_.buffers[b];
    if (const Bytes part = checkpoints_.part(buffer.bytes); part > Bytes())
      hold(b, {PartKind::parked, {}}, blocks_.take(part, buffer_names_[b], buffer.role, 0));
    blocks_.give(block);
    let_go(b);
  }

  /// Makes a checkpoint whole again for a call of backward.
  void fetch(std::size_t b, std::size_t index) {
    const Buffer& buffer = program_.buffers[b];
    if (program_.at(program_.calls[index].routine).phase == Phase::forward) return;
    if (find(b, {}) != held_[b].end()) return;
    hold(b, {}, blocks_.take(buffer.bytes, buffer_names_[b], buffer.role, 0));
  }

  void run_in_slot(std::size_t index, StorageEvent::Kind kind, const TensorStorage& storage) {
    const Call& call = program_.calls[index];
    const std::size_t b = call.bindings[*storage.slot].buffer.index();
    const Buffer& buffer = program_.buffers[b];
    const bool writes = kind == StorageEvent::Kind::write;
    if (shards_.has(b)) {
      if (writes) shards_.write_gradient(index, storage);
      return;
    }
    if (buffer.persistent || buffer.on_host || stage_.has(b)) return;
    const SlotKind slot = program_.at(call.routine).slots[*storage.slot].kind;
    const bool copied = copies_gradients();
    if (slot == SlotKind::main_gradients && (copied || elements_ > 0)) return;  // there already
    if (!writes && buffer.end != index + 1) {
      if (checkpoints_.has(b) && checkpoints_.ends_forward(index, *storage.slot)) park(b);
      return;
    }
    const bool in_tensors = lies_in_tensors(slot);
    Part place;
    if (in_tensors) place = {storage.is_copy ? PartKind::copy : PartKind::tensor, storage.offset};
    const auto found = find(b, place);
    if (writes) {
      if (found != held_[b].end()) return;
      const Bytes bytes = in_tensors ? storage.bytes : size_of(buffer);
      const std::uint32_t name = in_tensors ? storage.name : buffer_names_[b];
      hold(b, place, blocks_.take(bytes, name, buffer.role, storage.stream));
    } else if (found != held_[b].end()) {
      if (!stage_.keeps(b, found->second)) blocks_.give(found->second);
      held_[b].erase(found);
      if (const auto beside = find(b, {PartKind::copy, storage.offset});
          in_tensors && beside != held_[b].end()) {
        blocks_.give(beside->second);
        held_[b].erase(beside);
      }
      let_go(b);
    }
  }

  const Program& program_;
  const Framework& framework_;
  const std::optional<AlikeCycles> cycles_;
  TensorBlocks blocks_;
  TensorNames names_;
  std::vector<std::uint32_t> buffer_names_;
  using Held = std::vector<std::pair<Part, Block>>;
  std::vector<Held> held_;                          // by buffer
  std::vector<Held> lists_;                         // empty ones
  std::vector<std::vector<std::size_t>> released_;  // buffers, by call
  std::vector<RoutineEvents> routines_;
  ShardCopies shards_;
  StageBuffers stage_;
  const Checkpoints checkpoints_;
  std::set<std::uint32_t> kept_;             // names of what stays
  std::vector<std::optional<Block>> frame_;  // by storage
  std::vector<Block> flat_;                  // copies of gradients
  std::vector<Block> added_;                 // gradients as computed, added to f32 sums
  const std::uint32_t flat_name_ = names_.of("flat_gradients");
  std::int64_t elements_ = 0;  // of all parameters
  bool scatters_gradients_ = false, adds_up_in_f32_ = false;
};

}  // namespace

AllocatorUse replay_allocations(const Program& program, const Framework& framework, Bytes limit,
                                AliveAtPeak alive, AlikeMicroBatches alike) {
  Replay replay(program, framework, limit, alike);
  replay.run();
  AllocatorUse use = replay.use();
  if (alive == AliveAtPeak::leave_out) return use;
  Replay again(program, framework, limit, alike);
  again.run(use.allocated);
  use.alive = again.alive();
  return use;
}

std::optional<AllocatorUse> replay_within(const Program& program, const Framework& framework,
                                          Bytes room, AliveAtPeak alive) {
  if (room < Bytes()) return std::nullopt;
  AllocatorUse use = replay_allocations(program, framework, room, alive);
  if (use.out_of_memory) return std::nullopt;
  // Without a retry, memory was never short, and the limit changed nothing.
  if (use.retries > 0 && replay_allocations(program, framework, kNoLimit).allocated > room)
    return std::nullopt;
  return use;
}

AllocatorUse replay_on_device(const Program& program, const Framework& framework, Bytes room,
                              AliveAtPeak alive) {
  std::optional<AllocatorUse> use = replay_within(program, framework, room, alive);
  return use ? std::move(*use) : replay_allocations(program, framework, kNoLimit, alive);
}

}  // namespace plimsoll
