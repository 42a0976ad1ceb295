// Hand-built Programs and failing backends.
#include "tests/runtime/hand_built.h"

#include "runtime/cpu/backend.h"

namespace plimsoll {
namespace {

Op make_op(OpKind kind, std::vector<std::size_t> inputs, std::vector<std::size_t> outputs,
           OpParams params = {}) {
  Op op;
  op.kind = kind;
  for (const std::size_t id : inputs) op.inputs.push_back(TensorId(id));
  for (const std::size_t id : outputs) op.outputs.push_back(TensorId(id));
  op.params = std::move(params);
  return op;
}

class WatchedKernel final : public Kernel {
 public:
  using Before = std::function<void(const Op&, const RunPosition&)>;
  WatchedKernel(std::unique_ptr<Kernel> kernel, const Op& op, const Before& before)
      : kernel_(std::move(kernel)), op_(op), before_(before) {}
  void run(std::span<std::byte* const> inputs, std::span<std::byte* const> outputs,
           const RunPosition& position) override {
    before_(op_, position);
    kernel_->run(inputs, outputs, position);
  }

 private:
  std::unique_ptr<Kernel> kernel_;
  const Op op_;
  const Before& before_;
};

class WatchedBackend final : public Backend {
 public:
  explicit WatchedBackend(WatchedKernel::Before before) : before_(std::move(before)) {}
  std::string_view name() const override { return "watched cpu"; }
  Verdict supports(const Op& op, std::span<const Tensor> tensors) const override {
    return cpu_->supports(op, tensors);
  }
  std::unique_ptr<Kernel> prepare(const Op& op, std::span<const Tensor> tensors,
                                  const RankContext& context) override {
    return std::make_unique<WatchedKernel>(cpu_->prepare(op, tensors, context), op, before_);
  }
  void enter_thread() override { cpu_->enter_thread(); }

 private:
  std::unique_ptr<Backend> cpu_ = make_cpu_backend();
  const WatchedKernel::Before before_;
};

}  // namespace

HandBuilder::HandBuilder(const Grid& grid) {
  program_.name = "hand-built";
  program_.grid = grid;
}

BufferId HandBuilder::buffer(std::string name, TensorRole role, std::int64_t bytes,
                             std::size_t begin, std::size_t end) {
  Buffer made;
  made.name = std::move(name);
  made.role = role;
  made.bytes = Bytes(bytes);
  made.begin = begin;
  made.end = end;
  made.offset = program_.arena_bytes;
  program_.arena_bytes += round_up(made.bytes, kBlockAlignment);
  program_.buffers.push_back(made);
  return BufferId(program_.buffers.size() - 1);
}

BufferId HandBuilder::persistent(std::string name, TensorRole role, std::int64_t bytes) {
  const BufferId id = buffer(std::move(name), role, bytes, 0, 0);
  program_.buffers.back().persistent = true;
  return id;
}

Routine& HandBuilder::routine(std::string name, std::int64_t slots, std::int64_t n) {
  Routine& made = program_.routines.emplace_back();
  made.name = std::move(name);
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    Tensor tensor;
    tensor.name = "t" + std::to_string(slot);
    tensor.shape = {n};
    made.tensors.push_back(tensor);
    made.places.push_back({std::size_t(slot), Bytes(0)});
    made.slots.push_back({SlotKind::payload, bytes_of(tensor)});
  }
  return made;
}

RoutineId HandBuilder::fill(std::int64_t n, double value) {
  routine("fill", 1, n).ops.push_back(make_op(OpKind::fill, {}, {0}, FillParams{value}));
  return RoutineId(program_.routines.size() - 1);
}

RoutineId HandBuilder::add(std::int64_t n, std::int64_t frame) {
  Routine& made = routine("add", 3, n);
  if (frame > 0) {
    Tensor temporary;
    temporary.name = "temporary";
    temporary.shape = {frame};
    made.tensors.push_back(temporary);
    made.places.push_back({std::nullopt, Bytes(0)});
    made.frame_bytes = bytes_of(temporary);
    made.ops.push_back(make_op(OpKind::fill, {}, {3}, FillParams{-1}));
  }
  made.ops.push_back(make_op(OpKind::add, {0, 1}, {2}));
  return RoutineId(program_.routines.size() - 1);
}

RoutineId HandBuilder::collective(OpKind kind, Axis axis, std::int64_t n) {
  Routine& made = routine(std::string(to_text(kind)), 1, n);
  made.ops.push_back(make_op(kind, {0}, {0}, CollectiveParams{Group{{axis}}}));
  made.ops.back().stream = Stream::data;
  made.ports.push_back({TensorId(0), 0});
  return RoutineId(program_.routines.size() - 1);
}

RoutineId HandBuilder::collective(OpKind kind, Axis axis, std::int64_t inputs,
                                  std::int64_t outputs) {
  Routine& made = routine(std::string(to_text(kind)), 2, inputs);
  made.tensors[1].shape = {outputs};
  made.slots[1].bytes = bytes_of(made.tensors[1]);
  Op op = make_op(kind, {0}, {1}, CollectiveParams{Group{{axis}}});
  op.stream = Stream::data;
  made.ops.push_back(std::move(op));
  made.ports.push_back({TensorId(1), 0});
  return RoutineId(program_.routines.size() - 1);
}

RoutineId HandBuilder::transfer(OpKind kind, std::int64_t stage_offset, std::int64_t n) {
  Routine& made = routine(std::string(to_text(kind)), 1, n);
  const bool sends = kind == OpKind::send;
  made.ops.push_back(sends ? make_op(kind, {0}, {}, TransferParams{stage_offset})
                           : make_op(kind, {}, {0}, TransferParams{stage_offset}));
  made.ops.back().stream = sends ? Stream::send_next : Stream::recv_previous;
  made.ports.push_back({TensorId(0), 0});
  return RoutineId(program_.routines.size() - 1);
}

std::size_t HandBuilder::call(RoutineId routine, const std::vector<BufferId>& buffers,
                              std::vector<Wait> waits) {
  Call& made = program_.calls.emplace_back();
  made.routine = routine;
  for (const BufferId id : buffers) made.bindings.push_back({id, Bytes(0), Bytes(0)});
  made.waits = std::move(waits);
  return program_.calls.size() - 1;
}

Program HandBuilder::build() {
  for (Buffer& buffer : program_.buffers) {
    if (buffer.persistent) buffer.end = program_.calls.size();
  }
  return program_;
}

std::unique_ptr<Backend> make_watched_backend(
    std::function<void(const Op& op, const RunPosition& position)> before) {
  return std::make_unique<WatchedBackend>(std::move(before));
}

}  // namespace plimsoll
