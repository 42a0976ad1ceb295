#include "simulator/allocation_replay.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "simulator/alike_cycles.h"
#include "simulator/routine_events.h"

namespace plimsoll {
namespace {

using Block = BlockAllocator::Block;

bool lies_in_tensors(SlotKind kind) {
  return kind == SlotKind::saved || kind == SlotKind::saved_for_weights ||
         kind == SlotKind::deferred;
}

using State = std::vector<std::int64_t>;

/// How the last few cycles found the allocator.
class States {
 public:
  void push(std::size_t cycle, State state) {
    constexpr std::size_t kMost = 16;  // few enough to be kept and compared
    if (states_.size() == kMost) states_.pop_front();
    states_.push_back(std::move(state));
    end_ = cycle + 1;
  }
  const State* of(std::size_t cycle) const {
    const std::size_t from_end = end_ - cycle;  // wraps around for later ones
    return from_end - 1 < states_.size() ? &states_[states_.size() - from_end] : nullptr;
  }
  /// The latest cycle that found it so.
  std::optional<std::size_t> find(const State& state) const {
    const auto same = std::find(states_.rbegin(), states_.rend(), state);
    if (same == states_.rend()) return std::nullopt;
    return end_ - 1 - std::size_t(same - states_.rbegin());
  }

 private:
  std::deque<State> states_;  // one after the other
  std::size_t end_ = 0;
};

class Replay {
 public:
  Replay(const Program& program, const Framework& framework, Bytes limit, AlikeMicroBatches alike)
      : program_(program),
        framework_(framework),
        cycles_(alike == AlikeMicroBatches::leave_out ? alike_cycles(program) : std::nullopt),
        allocator_(framework.allocator, limit),
        held_(program.buffers.size()),
        released_(program.calls.size() + 1) {
    for (const Routine& routine : program.routines) {
      routines_.push_back(read_events(routine, framework, names_));
    }
    leave_out_persistent();
    for (std::size_t b = 0; b < program.buffers.size(); ++b) {
      const Buffer& buffer = program.buffers[b];
      if (!buffer.persistent) released_[buffer.end].push_back(b);
      buffer_names_.push_back(names_.of(buffer.name));
    }
  }

  /// Stops where `most` bytes are handed out, if that is given.
  void run(std::optional<Bytes> most = {}) {
    stop_at_ = most;
    constexpr int kMostSteps = 4;
    try {
      begin();
      for (int step = 0; step < kMostSteps; ++step) {
        const auto before = std::pair(use_.allocated, allocator_.most_reserved());
        if (!run_calls()) break;
        end_step();
        if (step > 0 && std::pair(use_.allocated, allocator_.most_reserved()) == before) break;
      }
    } catch (const Stop&) {
    }
  }

  AllocatorUse use() const {
    AllocatorUse use = use_;
    use.reserved = allocator_.most_reserved();
    use.retries = allocator_.retries();
    return use;
  }

  std::vector<AliveTensors> alive() const {
    std::map<std::pair<std::uint32_t, TensorRole>, AliveTensors> by_name;
    for (std::size_t block = 0; block < owners_.size(); ++block) {
      if (!owners_[block].alive) continue;
      AliveTensors& same = by_name[{owners_[block].name, owners_[block].role}];
      same.name = names_[owners_[block].name];
      same.role = owners_[block].role;
      same.bytes += allocator_.bytes(Block(block));
      ++same.count;
    }
    std::vector<AliveTensors> list;
    for (auto& [key, same] : by_name) list.push_back(std::move(same));
    std::stable_sort(list.begin(), list.end(), [](const AliveTensors& a, const AliveTensors& b) {
      return a.bytes > b.bytes;
    });
    return list;
  }

 private:
  struct Stop {};
  struct Owner {
    bool alive = false;
    std::uint32_t name = 0;
    TensorRole role = TensorRole::activation;
    std::size_t buffer = 0;
  };
  static constexpr Bytes kWhole{-1};

  /// Events in slots that every call binds to what lives between steps.
  void leave_out_persistent() {
    std::vector<std::vector<bool>> comes_and_goes(routines_.size());
    for (std::size_t r = 0; r < routines_.size(); ++r)
      comes_and_goes[r].resize(program_.routines[r].slots.size());
    for (const Call& call : program_.calls) {
      std::vector<bool>& slots = comes_and_goes[call.routine.index()];
      for (std::size_t slot = 0; slot < slots.size(); ++slot) {
        if (!program_.at(call.bindings[slot].buffer).persistent) slots[slot] = true;
      }
    }
    for (std::size_t r = 0; r < routines_.size(); ++r) {
      std::erase_if(routines_[r].events, [&](const Event& event) {
        const auto& slot = routines_[r].pieces[event.piece].slot;
        return slot && !comes_and_goes[r][*slot];
      });
    }
  }

  /// Cycles that find the allocator as an earlier one did are left out, with those between the two
  /// over and over. False where a cycle finds it as the same one of the step before did: nothing
  /// new comes of the rest, nor of later steps.
  bool run_calls() {
    States states;
    std::size_t cycle = cycles_ ? cycles_->first : 0;
    std::size_t watched = cycles_ ? cycles_->last : 0;
    for (std::size_t call = 0; call < program_.calls.size(); ++call) {
      if (cycles_ && cycle <= watched && call == cycles_->begins[cycle]) {
        State now;
        describe(std::int64_t(cycle), now);
        if (states_.of(cycle) && *states_.of(cycle) == now) return false;
        if (const std::optional<std::size_t> earlier = states.find(now)) {
          const std::size_t period = cycle - *earlier;
          const std::size_t skipped = (cycles_->last + 1 - cycle) / period * period;
          move_on(std::int64_t(skipped) * cycles_->buffers);
          cycle += skipped;
          call = cycles_->begins[cycle];
          watched = 0;
        } else {
          states.push(cycle++, std::move(now));
        }
      }
      run_call(call);
    }
    states_ = std::move(states);
    return true;
  }

  /// The allocator's state, with buffers counted from those of the cycle.
  void describe(std::int64_t cycle, std::vector<std::int64_t>& state) const {
    constexpr std::int64_t kNames = std::int64_t{1} << 24;
    allocator_.describe(state, [&](Block block) {
      const Owner& owner = owners_[block];
      const bool stays = program_.buffers[owner.buffer].persistent;
      const std::int64_t buffer =
          stays ? 0 : std::int64_t(owner.buffer) - cycle * cycles_->buffers + kNames;
      return buffer * kNames + std::int64_t(owner.name);
    });
  }

  /// What is held for a buffer is now held for the one so many further on.
  void move_on(std::int64_t buffers) {
    for (std::size_t b = held_.size(); b-- > 0;) {
      if (program_.buffers[b].persistent || held_[b].empty()) continue;
      for (const auto& [offset, block] : held_[b]) owners_[block].buffer += std::size_t(buffers);
      std::swap(held_[b + std::size_t(buffers)], held_[b]);
    }
  }

  Block take(Bytes bytes, std::uint32_t name, TensorRole role, std::uint32_t stream,
             std::size_t buffer = 0) {
    const std::optional<Block> block = allocator_.take(bytes, stream);
    if (!block) {
      use_.out_of_memory = true;
      throw Stop{};
    }
    if (*block >= owners_.size()) owners_.resize(*block + 1);
    owners_[*block] = {true, name, role, buffer};
    by_role_[std::size_t(role)] += allocator_.bytes(*block);
    if (allocator_.allocated() > use_.allocated) {
      use_.allocated = allocator_.allocated();
      use_.by_role = by_role_;
      if (use_.allocated == stop_at_) throw Stop{};
    }
    return *block;
  }

  void give(Block block) {
    Owner& owner = owners_[block];
    by_role_[std::size_t(owner.role)] -= allocator_.bytes(block);
    owner.alive = false;
    allocator_.give(block);
  }

  bool computed_gradients(const Buffer& buffer) const {
    return framework_.gradient_memory == GradientMemory::as_computed &&
           buffer.role == TensorRole::gradient && buffer.persistent;
  }

  /// What is there before the first step.
  void begin() {
    for (std::size_t b = 0; b < program_.buffers.size(); ++b) {
      const Buffer& buffer = program_.buffers[b];
      const bool later =
          framework_.lazy_optimizer_state && buffer.role == TensorRole::optimizer_state;
      if (buffer.persistent && !later && !computed_gradients(buffer)) take_persistent(b);
    }
  }

  void end_step() {
    release(program_.calls.size());
    for (const Block block : flat_) give(block);
    flat_.clear();
    for (std::size_t b = 0; b < program_.buffers.size(); ++b) {
      if (computed_gradients(program_.buffers[b])) give_all(b);
    }
  }

  Bytes owned(DType type) const { return owned_elements(program_) * bytes_of(type); }

  /// A call binds a buffer that lives between steps.
  void use_persistent(std::size_t b, bool updates) {
    const Buffer& buffer = program_.buffers[b];
    if (!computed_gradients(buffer)) {
      if (held_[b].empty()) take_persistent(b);
    } else if (updates) {
      if (held_[b].empty() || !flat_.empty() || program_.segments.empty()) return;
      for (const DType type : {program_.segments.front().dtype, DType::f32}) {
        flat_.push_back(take(owned(type), flat_name_, TensorRole::gradient, 0));
      }
    } else if (held_[b].empty()) {
      for (const Segment& segment : program_.segments) {
        hold(b, Bytes(segment.offset),
             take(segment.elements * bytes_of(segment.dtype), buffer_names_[b], buffer.role, 0));
      }
    }
  }

  /// Tensor by tensor where the framework has each for itself.
  void take_persistent(std::size_t b) {
    const Buffer& buffer = program_.buffers[b];
    const bool by_tensor =
        (buffer.role == TensorRole::parameter || buffer.role == TensorRole::master_parameter ||
         buffer.role == TensorRole::optimizer_state) &&
        framework_.gradient_memory != GradientMemory::as_computed;
    std::int64_t all = 0, before = 0;
    for (const Segment& segment : program_.segments) all += segment.elements;
    if (!by_tensor || all == 0) {
      hold(b, kWhole, take(buffer.bytes, buffer_names_[b], buffer.role, 0));
      return;
    }
    Bytes done;
    for (const Segment& segment : program_.segments) {
      before += segment.elements;
      const Bytes end(std::int64_t(double(buffer.bytes.count()) * double(before) / double(all)));
      if (end == done) continue;
      hold(b, done, take(end - done, buffer_names_[b], buffer.role, 0));
      done = end;
    }
  }

  void hold(std::size_t buffer, Bytes offset, Block block) {
    if (held_[buffer].capacity() == 0 && !lists_.empty()) {
      held_[buffer] = std::move(lists_.back());
      lists_.pop_back();
    }
    held_[buffer].emplace_back(offset, block);
  }
  /// Its list, if that is empty now, is used again.
  void let_go(std::size_t buffer) {
    if (held_[buffer].empty() && held_[buffer].capacity() > 0)
      lists_.push_back(std::exchange(held_[buffer], {}));
  }
  std::vector<std::pair<Bytes, Block>>::iterator find(std::size_t buffer, Bytes offset) {
    return std::find_if(held_[buffer].begin(), held_[buffer].end(),
                        [&](const auto& one) { return one.first == offset; });
  }

  void release(std::size_t call) {
    for (const std::size_t buffer : released_[call]) give_all(buffer);
  }

  void give_all(std::size_t buffer) {
    for (const auto& [offset, block] : held_[buffer]) give(block);
    held_[buffer].clear();
    let_go(buffer);
  }

  void run_call(std::size_t index) {
    release(index);
    const Call& call = program_.calls[index];
    const RoutineEvents& routine = routines_[call.routine.index()];
    const bool updates = program_.at(call.routine).phase == Phase::optimizer;
    for (const Binding& binding : call.bindings) {
      if (program_.at(binding.buffer).persistent) use_persistent(binding.buffer.index(), updates);
    }
    frame_.assign(routine.pieces.size(), std::nullopt);
    for (const Event& event : routine.events) {
      const Piece& piece = routine.pieces[event.piece];
      if (piece.slot) {
        run_in_slot(index, event.kind, piece);
      } else if (event.kind == Event::Kind::write) {
        frame_[event.piece] = take(piece.bytes, piece.name, piece.role, piece.stream);
      } else if (frame_[event.piece]) {
        give(*frame_[event.piece]);
      }
    }
  }

  void run_in_slot(std::size_t index, Event::Kind kind, const Piece& piece) {
    const Call& call = program_.calls[index];
    const std::size_t b = call.bindings[*piece.slot].buffer.index();
    const Buffer& buffer = program_.buffers[b];
    if (buffer.persistent) return;
    const bool writes = kind == Event::Kind::write;
    if (!writes && buffer.end != index + 1) return;
    const bool in_tensors = lies_in_tensors(program_.at(call.routine).slots[*piece.slot].kind);
    const Bytes place = in_tensors ? piece.offset : kWhole;
    const auto found = find(b, place);
    if (writes) {
      if (found != held_[b].end()) return;
      const Bytes bytes = in_tensors ? piece.bytes : buffer.bytes;
      const std::uint32_t name = in_tensors ? piece.name : buffer_names_[b];
      hold(b, place, take(bytes, name, buffer.role, piece.stream, b));
    } else if (found != held_[b].end()) {
      give(found->second);
      held_[b].erase(found);
      if (const auto beside = find(b, place + kBeside); in_tensors && beside != held_[b].end()) {
        give(beside->second);
        held_[b].erase(beside);
      }
      let_go(b);
    }
  }

  const Program& program_;
  const Framework& framework_;
  const std::optional<AlikeCycles> cycles_;
  BlockAllocator allocator_;
  Names names_;
  std::vector<RoutineEvents> routines_;
  std::vector<std::uint32_t> buffer_names_;
  using Held = std::vector<std::pair<Bytes, Block>>;  // offset, block
  std::vector<Held> held_;                            // by buffer
  std::vector<Held> lists_;                           // empty ones
  std::vector<std::vector<std::size_t>> released_;    // buffers, by call
  std::vector<std::optional<Block>> frame_;           // by piece
  std::vector<Owner> owners_;                         // by block
  std::vector<Block> flat_;                           // copies of gradients
  States states_;                                     // of the step before
  const std::uint32_t flat_name_ = names_.of("flat_gradients");
  BytesByRole by_role_ = {};
  std::optional<Bytes> stop_at_;
  AllocatorUse use_;
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

}  // namespace plimsoll
