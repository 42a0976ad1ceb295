// Follows gathers, backward and scatters of each group of parameters.
#include "simulator/memory/shard_copies.h"

#include <algorithm>
#include <utility>

namespace plimsoll {
namespace {

constexpr std::uint32_t kCompute = 0, kGather = 2, kScatter = 3;  // streams

bool reads_parameters(SlotKind kind) {
  return kind == SlotKind::parameters || kind == SlotKind::tied_parameters ||
         kind == SlotKind::frozen_parameters;
}

bool holds_gradients(SlotKind kind) {
  return kind == SlotKind::gradients || kind == SlotKind::tied_gradients;
}

bool is_backward(Phase phase) { return phase != Phase::forward && phase != Phase::optimizer; }

bool has_op(const Routine& routine, OpKind kind) {
  return std::any_of(routine.ops.begin(), routine.ops.end(),
                     [&](const Op& op) { return op.kind == kind; });
}

bool has_loss(const Routine& routine) {
  return has_op(routine, OpKind::logits_sum_exp) || has_op(routine, OpKind::cross_entropy_backward);
}

/// Whether a block belongs to no layer: the block with the token table, or the block with the loss.
bool is_root(const Routine& routine) {
  return has_loss(routine) || has_op(routine, OpKind::embedding) ||
         has_op(routine, OpKind::embedding_backward);
}

}  // namespace

ShardCopies::ShardCopies(const Program& program, const Framework& framework,
                         const std::vector<RoutineEvents>& routines, TensorNames& names,
                         TensorBlocks& blocks)
    : program_(program),
      routines_(routines),
      blocks_(blocks),
      active_(framework.memory.shards == ShardMemory::flat_copies && program.sharding_degree > 1) {
  if (!active_) return;
  for (const Buffer& buffer : program.buffers) {
    names_.push_back(names.of(buffer.name));
    casts_ = casts_ || buffer.role == TensorRole::master_parameter;
    gradients_on_host_ |= buffer.role == TensorRole::gradient && buffer.on_host;
  }
  for (const Routine& routine : program.routines) root_.push_back(is_root(routine));
  flat_name_ = names.of("flat_parameters");
  others_name_ = names.of("other_parameters");
  cast_name_ = names.of("cast_shard");
  flat_gradients_name_ = names.of("flat_gradients");
  shard_name_ = names.of("gradient_shards");
  find_buffers();
  find_root();
}

void ShardCopies::find_buffers() {
  buffers_.resize(program_.buffers.size());
  root_buffers_.resize(program_.buffers.size());
  at_end_ = true;
  for (std::size_t i = 0; i < program_.calls.size(); ++i) {
    const Call& call = program_.calls[i];
    const Routine& routine = program_.at(call.routine);
    for (std::size_t s = 0; s < call.bindings.size(); ++s) {
      const SlotKind kind = routine.slots[s].kind;
      const std::size_t b = call.bindings[s].buffer.index();
      const bool arena = kind == SlotKind::parameter_arena || kind == SlotKind::gradient_arena;
      if (!reads_parameters(kind) && !holds_gradients(kind) && !arena) continue;
      const TensorRole role = program_.buffers[b].role;
      if (role == TensorRole::master_parameter) continue;
      buffers_[b] = true;
      if (reads_parameters(kind) && root_[call.routine.index()]) root_buffers_[b] = true;
      if (!holds_gradients(kind) || !is_backward(routine.phase)) continue;
      at_end_ = at_end_ && program_.buffers[b].persistent;
      last_backward_[{call.routine.index(), call.layer.value_or(-1)}] = i;
    }
  }
}

/// Finds the first call that reads each parameter outside layers. A tied table is read twice.
void ShardCopies::find_root() {
  std::vector<bool> seen(program_.routines.size());
  bool table = false;
  for (std::size_t i = 0; i < program_.calls.size(); ++i) {
    const Call& call = program_.calls[i];
    const Routine& routine = program_.at(call.routine);
    if (!root_[call.routine.index()] || routine.phase != Phase::forward) continue;
    if (seen[call.routine.index()]) continue;
    seen[call.routine.index()] = true;
    for (std::size_t s = 0; s < routine.slots.size(); ++s) {
      const SlotKind kind = routine.slots[s].kind;
      if (kind == SlotKind::parameters || kind == SlotKind::frozen_parameters ||
          (kind == SlotKind::tied_parameters && !table))
        root_reads_.emplace_back(i, s);
    }
    table = table || has_op(routine, OpKind::embedding);
  }
}

/// A Program with frozen parameters in ranges keeps its part of them.
Bytes ShardCopies::frozen_part(Bytes kept) const {
  return program_.frozen_ranges.empty() ? Bytes(kept.count() / program_.sharding_degree) : kept;
}

/// Takes the shards of parameters. Where the optimizer has copies, these are the shards.
void ShardCopies::begin() {
  if (!active_) return;
  for (std::size_t b = 0; b < buffers_.size(); ++b) {
    const Buffer& buffer = program_.buffers[b];
    const bool frozen = buffer.role == TensorRole::frozen_parameter;
    if (!buffers_[b] || !buffer.persistent || buffer.on_host || !is_of_parameters(buffer.role) ||
        (casts_ && !frozen))
      continue;
    const DType type = program_.segments.front().dtype;
    const Bytes part =
        frozen ? frozen_part(buffer.bytes) : owned_elements(program_) * bytes_of(type);
    const Bytes shard = std::min(buffer.bytes, part);
    blocks_.take(shard, names_[b], buffer.role, kCompute);
  }
}

/// Frozen parameters are copied apart from the others that are gathered with them.
ShardCopies::Key ShardCopies::key_of(const Binding& binding, SlotKind kind) const {
  const bool apart = program_.at(binding.buffer).persistent || kind == SlotKind::frozen_parameters;
  return {binding.buffer.index(), apart ? binding.offset.count() : 0};
}

// ---- parameters ----

ShardCopies::Block ShardCopies::take_flat(Bytes bytes) {
  std::optional<Block> cast;
  if (casts_) {
    const Bytes shard(bytes.count() / program_.sharding_degree);
    cast = blocks_.take(shard, cast_name_, TensorRole::communication, kGather);
  }
  const Block flat = blocks_.take(bytes, flat_name_, TensorRole::communication, kGather);
  if (cast) blocks_.give(*cast);
  return flat;
}

void ShardCopies::keep_flat(std::optional<Block> flat) {
  if (kept_flat_) blocks_.give(*kept_flat_);
  kept_flat_ = flat;
}

/// Takes a tensor for each parameter that the routine uses, and one for the slot's other
/// parameters.
ShardCopies::Blocks ShardCopies::copy_out(const RoutineEvents& routine, std::size_t slot,
                                          Bytes bytes) {
  Blocks whole;
  const auto take = [&](Bytes of, std::uint32_t name) {
    whole.push_back(blocks_.take(of, name, TensorRole::communication, kCompute));
  };
  for (const TensorStorage& storage : routine.storages) {
    if (storage.slot != slot || storage.bytes > bytes) continue;
    take(storage.bytes, storage.name);
    bytes = bytes - storage.bytes;
  }
  if (bytes > kBlockAlignment) take(bytes, others_name_);
  return whole;
}

void ShardCopies::gather_root(Phase phase) {
  if (!root_whole_.empty()) return;
  Bytes bytes;
  for (const auto& [call, slot] : root_reads_) {
    bytes += program_.at(program_.calls[call].routine).slots[slot].bytes;
  }
  if (bytes == Bytes()) return;
  const Block flat = take_flat(bytes);
  keep_flat({});
  for (const auto& [call, slot] : root_reads_) {
    const std::size_t routine = program_.calls[call].routine.index();
    const Bytes of_slot = program_.routines[routine].slots[slot].bytes;
    const Blocks more = copy_out(routines_[routine], slot, of_slot);
    root_whole_.insert(root_whole_.end(), more.begin(), more.end());
  }
  if (phase == Phase::forward) {
    keep_flat(flat);
  } else {
    blocks_.give(flat);
  }
}

void ShardCopies::gather(const Call& call, std::size_t slot) {
  const Routine& routine = program_.at(call.routine);
  const Binding& binding = call.bindings[slot];
  const std::size_t b = binding.buffer.index();
  if (!buffers_[b]) return;
  if (root_[call.routine.index()]) {
    gather_root(routine.phase);
    return;
  }
  const Key key = key_of(binding, routine.slots[slot].kind);
  if (whole_.contains(key)) return;
  const Bytes bytes = routine.slots[slot].bytes;
  const auto gathered = flat_.find(b);
  const Block flat = gathered != flat_.end() ? gathered->second : take_flat(bytes);
  if (gathered != flat_.end()) flat_.erase(gathered);
  keep_flat({});
  whole_[key] = copy_out(routines_[call.routine.index()], slot, bytes);
  if (routine.phase == Phase::forward) {
    keep_flat(flat);
  } else {
    blocks_.give(flat);
  }
}

void ShardCopies::before_call(std::size_t index) {
  if (!active_) return;
  const Call& call = program_.calls[index];
  const Routine& routine = program_.at(call.routine);
  const bool of_block = call.layer.has_value();
  const bool another = micro_batch_ && call.micro_batch != micro_batch_;
  const bool updates = routine.phase == Phase::optimizer;
  if (updates && call.micro_batch) return free_shards(*call.layer);  // within backward
  const bool over = updates || (of_block && (routine.phase == Phase::forward || another));
  if (over) finish_backward();
  if (of_block) micro_batch_ = call.micro_batch;
  for (std::size_t s = 0; s < routine.slots.size(); ++s) {
    if (!of_block || !reads_parameters(routine.slots[s].kind)) continue;
    gather(call, s);
  }
  // The last flat tensor of forward is freed before the loss is computed.
  if (of_block && (has_loss(routine) || is_backward(routine.phase))) keep_flat({});
  // In backward the Program posts gathers ahead. The root group is whole already.
  const bool gathers = !of_block && routine.ops.size() == 1 && is_backward(routine.phase) &&
                       routine.ops[0].kind == OpKind::all_gather && routine.slots.size() == 2 &&
                       routine.tensors[0].role == TensorRole::parameter;
  if (!gathers) return;
  const std::size_t b = call.bindings[1].buffer.index();
  if (root_buffers_[b] && !root_whole_.empty()) return;
  if (buffers_[b] && !flat_.contains(b) &&
      !whole_.contains(key_of(call.bindings[1], SlotKind::payload)))
    flat_[b] = take_flat(program_.buffers[b].bytes);
}

void ShardCopies::release(std::size_t buffer) {
  if (const auto found = flat_.find(buffer); found != flat_.end()) {
    blocks_.give(found->second);
    flat_.erase(found);
  }
  if (program_.buffers[buffer].persistent) return;
  for (auto found = whole_.lower_bound({std::int64_t(buffer), 0});
       found != whole_.end() && found->first.first == std::int64_t(buffer);) {
    blocks_.give(found->second);
    found = whole_.erase(found);
  }
}

void ShardCopies::move_on(std::size_t buffers) {
  if (!active_) return;
  const auto stays = [&](std::int64_t b) { return program_.buffers[std::size_t(b)].persistent; };
  std::map<Key, Blocks> whole;
  for (auto& [key, blocks] : whole_) {
    const std::int64_t by = stays(key.first) ? 0 : std::int64_t(buffers);
    whole[{key.first + by, key.second}] = std::move(blocks);
  }
  whole_ = std::move(whole);
  std::map<std::size_t, Block> flat;
  for (const auto& [b, block] : flat_) flat[b + buffers] = block;
  flat_ = std::move(flat);
  micro_batch_.reset();
}

// ---- gradients ----

void ShardCopies::write_gradient(std::size_t call, const TensorStorage& storage) {
  if (!program_.calls[call].layer || storage.computed == Bytes())
    return;  // zeroed, added or scaled
  written_.push_back(blocks_.take(storage.computed, storage.name, TensorRole::gradient, kCompute));
  written_sizes_.push_back(storage.bytes);
  written_f32_ += storage.bytes;
}

void ShardCopies::after_call(std::size_t index) {
  if (!active_ || written_.empty()) return;
  const Call& call = program_.calls[index];
  Gradients gradients;
  gradients.group = {call.routine.index(), call.layer.value_or(-1)};
  gradients.root = root_[call.routine.index()];
  gradients.f32 = std::exchange(written_f32_, Bytes());
  const Routine& routine = program_.at(call.routine);
  for (std::size_t s = 0; s < routine.slots.size(); ++s) {
    if (routine.slots[s].kind == SlotKind::parameters)
      gradients.parameters = key_of(call.bindings[s], routine.slots[s].kind);
  }
  const std::vector<Bytes> sizes = std::exchange(written_sizes_, {});
  if (!at_end_) {
    gradients.tensors = std::exchange(written_, {});
    // A head that is called for parts of the tokens adds to what it has written.
    if (std::ranges::find(due_, gradients.group, &Gradients::group) != due_.end())
      return blocks_.give(gradients.tensors);
    gradients.root ? due_.push_back(std::move(gradients)) : scatter(gradients);
    return;
  }
  Blocks& sums = sums_[gradients.group];
  const bool first = sums.empty();
  for (std::size_t i = 0; i < written_.size(); ++i) {
    if (first)
      sums.push_back(blocks_.take(sizes[i], flat_gradients_name_, TensorRole::gradient, kCompute));
    blocks_.give(written_[i]);
  }
  written_.clear();
  if (last_backward_.at(gradients.group) != index) return;
  gradients.tensors = std::move(sums);
  sums_.erase(gradients.group);
  due_.push_back(std::move(gradients));
}

void ShardCopies::scatter(Gradients& gradients) {
  if (gradients.parameters) {
    if (const auto found = whole_.find(*gradients.parameters); found != whole_.end()) {
      blocks_.give(found->second);
      whole_.erase(found);
    }
  }
  if (scattered_) blocks_.give(*scattered_);
  scattered_ = blocks_.take(gradients.f32, flat_gradients_name_, TensorRole::gradient, kCompute);
  blocks_.give(gradients.tensors);
  const Bytes shard(gradients.f32.count() / program_.sharding_degree);
  const Block part = blocks_.take(shard, shard_name_, TensorRole::gradient, kScatter);
  if (gradients_on_host_ || !shards_.try_emplace(gradients.group, part).second)
    blocks_.give(part);  // it was copied, or added
}

/// Frees the gradients of a layer that is updated within backward.
void ShardCopies::free_shards(std::int64_t layer) {
  for (auto found = shards_.begin(); found != shards_.end();) {
    const bool updated = found->first.second == layer;
    if (updated) blocks_.give(found->second);
    found = updated ? shards_.erase(found) : std::next(found);
  }
}

/// Scatters what waits for the end of backward: the root group, and all groups where gradients are
/// reduced at the end of the step (PipelineStage: _post_backward in schedules of several
/// micro-batches).
void ShardCopies::finish_backward() {
  if (due_.empty()) return;
  Gradients root;
  for (Gradients& gradients : due_) {
    if (!gradients.root) continue;
    root.group = gradients.group;
    root.f32 += gradients.f32;
    root.tensors.insert(root.tensors.end(), gradients.tensors.begin(), gradients.tensors.end());
  }
  if (!root.tensors.empty()) {
    blocks_.give(root_whole_);
    scatter(root);
  }
  for (Gradients& gradients : due_) {
    if (!gradients.root) scatter(gradients);
  }
  due_.clear();
  if (scattered_) blocks_.give(*scattered_);
  scattered_.reset();
}

void ShardCopies::end_step() {
  if (!active_) return;
  finish_backward();
  keep_flat({});
  for (const auto& [group, block] : shards_) blocks_.give(block);
  shards_.clear();
  for (auto& [key, blocks] : whole_) blocks_.give(blocks);
  whole_.clear();
  blocks_.give(root_whole_);
}

}  // namespace plimsoll
