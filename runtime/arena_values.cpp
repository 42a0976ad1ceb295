// Values of an arena are initialised, and read in any type.
#include "runtime/arena_values.h"

#include "base/parallel.h"
#include "graph/op.h"
#include "runtime/half.h"
#include "runtime/initialize.h"
#include "runtime/prepare.h"

namespace plimsoll {

std::optional<BufferId> persistent_of(const Program& program, TensorRole role) {
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    if (program.buffers[i].persistent && program.buffers[i].role == role) return BufferId(i);
  }
  return std::nullopt;
}

std::vector<float> parameter_values(const Program& program, const Arena& arena) {
  const auto id = persistent_of(program, TensorRole::parameter);
  if (!id) return {};
  std::vector<float> values;
  std::vector<std::byte> copy;
  const std::byte* const stored = arena.on_host(*id, copy);
  for (const TypedRange& range : parameter_ranges(program, program.at(*id).bytes)) {
    values.resize(std::size_t(range.begin + range.elements));
    to_f32(range.type, stored + range.offset.count(), values.data() + range.begin, range.elements);
  }
  return values;
}

void initialize_arena(const Program& program, Arena& arena, const Coordinates& at,
                      std::int64_t seed) {
  std::vector<float> values = parameter_values(program, arena);
  if (values.empty()) return;
  const std::int64_t threads = arena.in_host_memory() ? 1 : resolve_threads(0);
  initialize_parameters(program, at, seed, values, threads);
  const BufferId parameters = *persistent_of(program, TensorRole::parameter);
  arena.change(parameters, [&](std::byte* stored) {
    for (const TypedRange& range : parameter_ranges(program, program.at(parameters).bytes)) {
      from_f32(range.type, values.data() + range.begin, stored + range.offset.count(),
               range.elements);
    }
  });
  const auto masters = persistent_of(program, TensorRole::master_parameter);
  if (!masters) return;
  const std::size_t count = std::size_t(program.at(*masters).bytes.count()) / sizeof(float);
  arena.change(*masters, [&](std::byte* stored) {
    initialize_parameters(program, at, seed, {reinterpret_cast<float*>(stored), count}, threads);
  });
}

namespace {

/// Finds the arena that a buffer is: the op that zeroes it says so.
DType type_of(const Program& program, BufferId id) {
  for (const Call& call : program.calls) {
    const Routine& routine = program.at(call.routine);
    for (std::size_t i = 0; i < routine.tensors.size(); ++i) {
      const auto& slot = routine.places[i].slot;
      const bool arena = slot && routine.slots[*slot].kind == SlotKind::gradient_arena;
      if (arena && call.bindings[*slot].buffer == id) return routine.tensors[i].dtype;
    }
  }
  return DType::f32;
}

}  // namespace

std::vector<float> gradient_values(const Program& program, const Arena& arena) {
  const auto id = persistent_of(program, TensorRole::gradient);
  if (!id) return {};
  const DType type = type_of(program, *id);
  std::vector<std::byte> copy;
  const std::byte* const stored = arena.on_host(*id, copy);
  std::vector<float> values(std::size_t(program.at(*id).bytes.count() / element_bytes(type)));
  to_f32(type, stored, values.data(), std::int64_t(values.size()));
  return values;
}

const std::byte* find_scalars(const Program& program, const Arena& arena, const Coordinates& at) {
  for (const Call& call : program.calls) {
    const auto& slots = program.at(call.routine).slots;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (slots[i].kind != SlotKind::scalars) continue;
      const Binding& binding = call.bindings[i];
      return arena.at(binding.buffer) + slot_offset(program.grid, binding, at).count();
    }
  }
  return nullptr;
}

}  // namespace plimsoll
