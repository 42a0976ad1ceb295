#include "simulator/allocation_replay.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.h"
#include "graph/op_table.h"
#include "simulator/alike_cycles.h"

namespace plimsoll {
namespace {

using Block = BlockAllocator::Block;

/// Of what lies beside a tensor in a slot and goes with it: no tensor has such an offset.
constexpr Bytes kBeside{1};

/// Tensors of a routine that share one place.
struct Piece {
  std::optional<std::size_t> slot;  ///< absent: in the frame
  Bytes offset, bytes;
  std::uint32_t name = 0;  ///< index of names
  TensorRole role = TensorRole::activation;
  std::uint32_t stream = 0;
};

/// What happens to a piece before or after an op.
struct Event {
  enum class Kind : std::uint8_t { write, last_use } kind;
  std::uint32_t piece;
};

struct RoutineEvents {
  std::vector<Piece> pieces;
  std::vector<Event> events;  ///< in order of ops; of one op what it writes comes first
};

bool lies_in_tensors(SlotKind kind) {
  return kind == SlotKind::saved || kind == SlotKind::saved_for_weights ||
         kind == SlotKind::deferred;
}

/// Tensor names of all routines and buffers, once each.
class Names {
 public:
  std::uint32_t of(const std::string& name) {
    const auto [found, fresh] = index_.try_emplace(name, std::uint32_t(names_.size()));
    if (fresh) names_.push_back(name);
    return found->second;
  }
  const std::string& operator[](std::uint32_t index) const { return names_[index]; }

 private:
  std::map<std::string, std::uint32_t> index_;
  std::vector<std::string> names_;
};

/// By tensor: the first one that lies in the same place, by ops that work in place.
std::vector<std::size_t> storage_of(const Routine& routine, const Framework& framework) {
  std::vector<std::size_t> storage(routine.tensors.size());
  std::iota(storage.begin(), storage.end(), 0);
  for (const Op& op : routine.ops) {
    const bool loss = op.kind == OpKind::cross_entropy_backward &&
                      framework.loss_memory != LossMemory::new_gradient;
    const int reused = loss ? 0 : in_place(op, routine.tensors);
    if (reused < 0) continue;
    const std::size_t from = storage[op.inputs[std::size_t(reused)].index()];
    std::replace(storage.begin(), storage.end(), storage[op.outputs[0].index()], from);
  }
  return storage;
}

class RoutineReader {
 public:
  RoutineReader(const Routine& routine, const Framework& framework, Names& names)
      : routine_(routine),
        framework_(framework),
        names_(names),
        storage_(storage_of(routine, framework)) {}

  RoutineEvents read() {
    const std::size_t none = routine_.ops.size();
    std::vector<std::size_t> first(storage_.size(), none), last(storage_.size(), none);
    for (std::size_t i = 0; i < routine_.ops.size(); ++i) {
      for (TensorId id : routine_.ops[i].inputs) last[storage_[id.index()]] = i;
      for (TensorId id : routine_.ops[i].outputs) {
        const std::size_t place = storage_[id.index()];
        if (first[place] == none) first[place] = i;
        last[place] = i;
      }
    }
    std::vector<std::optional<std::uint32_t>> piece(storage_.size());
    for (std::size_t t = 0; t < storage_.size(); ++t) {
      if (storage_[t] != t || last[t] == none) continue;
      piece[t] = add_piece(t);
      if (first[t] != none) result_.pieces[*piece[t]].stream = stream_of(routine_.ops[first[t]]);
    }
    for (std::size_t i = 0; i < routine_.ops.size(); ++i) {
      for (std::size_t t = 0; t < storage_.size(); ++t) {
        if (piece[t] && first[t] == i) add(Event::Kind::write, *piece[t]);
      }
      add_rotary_copy(routine_.ops[i], last, piece);
      add_scratch(routine_.ops[i]);
      for (std::size_t t = 0; t < storage_.size(); ++t) {
        if (piece[t] && last[t] == i) add(Event::Kind::last_use, *piece[t]);
      }
      for (const auto& [op, made] : copies_) {
        if (op == i) add(Event::Kind::last_use, made);
      }
    }
    return std::move(result_);
  }

 private:
  void add(Event::Kind kind, std::uint32_t piece) { result_.events.push_back({kind, piece}); }

  std::uint32_t add_piece(std::size_t tensor) {
    Piece piece;
    piece.slot = routine_.places[tensor].slot;
    piece.offset = routine_.places[tensor].offset;
    for (std::size_t t = 0; t < storage_.size(); ++t) {
      if (storage_[t] == tensor) piece.bytes = std::max(piece.bytes, bytes_of(routine_.tensors[t]));
    }
    piece.name = names_.of(routine_.tensors[tensor].name);
    piece.role = routine_.tensors[tensor].role;
    return push(piece);
  }

  std::uint32_t push(const Piece& piece) {
    result_.pieces.push_back(piece);
    return std::uint32_t(result_.pieces.size() - 1);
  }

  /// Collectives over ranks that read different sequences have memory of their own stream; those
  /// within a layer, and transfers, that of computation.
  static std::uint32_t stream_of(const Op& op) {
    return communicates(op.kind) && op.stream == Stream::data ? 1 : 0;
  }

  /// What rotary turns is a new tensor that lives as long as the one it was turned from.
  void add_rotary_copy(const Op& op, const std::vector<std::size_t>& last,
                       const std::vector<std::optional<std::uint32_t>>& pieces) {
    if (op.kind != OpKind::rotary || !framework_.copies_rotary) return;
    const std::size_t place = storage_[op.inputs[0].index()];
    const Tensor& product = routine_.tensors[place];
    Piece copy = result_.pieces[*pieces[place]];
    copy.bytes = Bytes(bytes_of(product).count() / product.shape[1] *
                       std::get<RotaryParams>(op.params).rotated);
    copy.offset += kBeside;
    copy.name = names_.of(product.name + ".turned");
    const std::uint32_t made = push(copy);
    add(Event::Kind::write, made);
    copies_.emplace_back(last[place], made);
  }

  /// Memory that an op has while it runs.
  void add_scratch(const Op& op) {
    if (op.kind == OpKind::logits_sum_exp && framework_.loss_memory == LossMemory::fused) {
      Piece piece;
      const Tensor& logits = routine_.tensors[op.inputs[0].index()];
      piece.bytes = bytes_of(logits);
      piece.name = names_.of(logits.name + ".copy");
      const std::uint32_t copy = push(piece);
      add(Event::Kind::write, copy);
      add(Event::Kind::last_use, copy);
    }
    if (framework_.adds_gradients_in_matmul) return;
    for (TensorId id : op.outputs) {
      const Tensor& gradient = routine_.tensors[id.index()];
      if (gradient.role != TensorRole::gradient || op.phase == Phase::optimizer ||
          communicates(op.kind))
        continue;
      Piece piece;
      piece.bytes = elements(gradient.shape) * bytes_of(compute_dtype(op, routine_.tensors));
      piece.name = names_.of(gradient.name + ".new");
      const std::uint32_t scratch = push(piece);
      add(Event::Kind::write, scratch);
      add(Event::Kind::last_use, scratch);
    }
  }

  const Routine& routine_;
  const Framework& framework_;
  Names& names_;
  const std::vector<std::size_t> storage_;
  std::vector<std::pair<std::size_t, std::uint32_t>> copies_;  // last op, piece
  RoutineEvents result_;
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
      routines_.push_back(RoutineReader(routine, framework, names_).read());
    }
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
        run_calls();
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

  /// Cycles that find the allocator as the one before did are left out.
  void run_calls() {
    std::vector<std::int64_t> before, now;
    std::size_t cycle = cycles_ ? cycles_->first : 0;
    for (std::size_t call = 0; call < program_.calls.size(); ++call) {
      if (cycles_ && cycle <= cycles_->last && call == cycles_->begins[cycle]) {
        now.clear();
        describe(std::int64_t(cycle), now);
        if (now == before) {
          move_on(std::int64_t(cycles_->last + 1 - cycle) * cycles_->buffers);
          call = cycles_->begins[cycles_->last + 1];
          cycle = cycles_->last + 1;
        } else {
          std::swap(now, before);
          ++cycle;
        }
      }
      run_call(call);
    }
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
    held_[buffer].emplace_back(offset, block);
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
    const bool in_tensors = lies_in_tensors(program_.at(call.routine).slots[*piece.slot].kind);
    const Bytes place = in_tensors ? piece.offset : kWhole;
    const auto found = find(b, place);
    if (kind == Event::Kind::write) {
      if (found != held_[b].end()) return;
      const Bytes bytes = in_tensors ? piece.bytes : buffer.bytes;
      const std::uint32_t name = in_tensors ? piece.name : buffer_names_[b];
      hold(b, place, take(bytes, name, buffer.role, piece.stream, b));
    } else if (found != held_[b].end() && buffer.end == index + 1) {
      give(found->second);
      held_[b].erase(found);
      if (const auto beside = find(b, place + kBeside); in_tensors && beside != held_[b].end()) {
        give(beside->second);
        held_[b].erase(beside);
      }
    }
  }

  const Program& program_;
  const Framework& framework_;
  const std::optional<AlikeCycles> cycles_;
  BlockAllocator allocator_;
  Names names_;
  std::vector<RoutineEvents> routines_;
  std::vector<std::uint32_t> buffer_names_;
  std::vector<std::vector<std::pair<Bytes, Block>>> held_;  // by buffer: offset, block
  std::vector<std::vector<std::size_t>> released_;          // buffers, by call
  std::vector<std::optional<Block>> frame_;                 // by piece
  std::vector<Owner> owners_;                               // by block
  std::vector<Block> flat_;                                 // copies of gradients
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
