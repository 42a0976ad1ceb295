// Memory, context and conversions for one op case.
#include "tests/runtime/op_runner.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>

#include "graph/op_table.h"
#include "runtime/half.h"

namespace plimsoll {

namespace {

struct AlignedFree {
  void operator()(std::byte* data) const { ::operator delete[](data, std::align_val_t(64)); }
};
using Memory = std::unique_ptr<std::byte[], AlignedFree>;

Memory allocate(Bytes size) {
  const auto bytes = std::size_t(round_up(size, kBlockAlignment).count());
  return Memory(new (std::align_val_t(64)) std::byte[bytes]);
}

void store(const std::vector<double>& values, DType dtype, std::byte* to) {
  if (dtype == DType::i32) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto id = std::int32_t(values[i]);
      std::memcpy(to + i * 4, &id, 4);
    }
    return;
  }
  const std::vector<float> floats(values.begin(), values.end());
  from_f32(dtype, floats.data(), to, std::int64_t(floats.size()));
}

std::vector<double> load(const Tensor& tensor, const std::byte* from) {
  const auto count = std::size_t(elements(tensor.shape));
  if (tensor.dtype == DType::i32) {
    std::vector<std::int32_t> ids(count);
    std::memcpy(ids.data(), from, count * 4);
    return {ids.begin(), ids.end()};
  }
  std::vector<float> floats(count);
  to_f32(tensor.dtype, from, floats.data(), std::int64_t(count));
  return {floats.begin(), floats.end()};
}

}  // namespace

struct PreparedCase::State {
  const OpCase& c;
  RankContext context;
  std::size_t workspace_bytes;
  Memory workspace;
  std::vector<Memory> blocks;         ///< by tensor; null where it shares another's
  std::vector<std::byte*> addresses;  ///< by tensor
  std::vector<std::byte*> inputs, outputs;
  std::unique_ptr<Kernel> kernel;
};

PreparedCase::PreparedCase(Backend& backend, const OpCase& c, Bytes workspace)
    : state_(new State{
          c, {}, std::size_t(workspace.count()), allocate(workspace), {}, {}, {}, {}, {}}) {
  State& s = *state_;
  for (const Tensor& tensor : c.tensors) {
    s.blocks.push_back(allocate(bytes_of(tensor)));
    s.addresses.push_back(s.blocks.back().get());
  }
  if (const int in_place = row(c.op.kind).in_place; in_place >= 0) {
    s.addresses[c.op.outputs[0].index()] = s.addresses[c.op.inputs[std::size_t(in_place)].index()];
  }
  for (TensorId id : c.op.inputs) s.inputs.push_back(s.addresses[id.index()]);
  for (TensorId id : c.op.outputs) s.outputs.push_back(s.addresses[id.index()]);
  s.context.program = &c.program;
  s.context.at = c.at;
  s.context.text = {c.text, c.global_batch};
  s.context.workspace = {s.workspace.get(), s.workspace_bytes};
  backend.enter_thread();
  s.kernel = backend.prepare(c.op, c.tensors, s.context);
  reset();
}

PreparedCase::~PreparedCase() = default;

void PreparedCase::reset() {
  State& s = *state_;
  std::fill_n(reinterpret_cast<float*>(s.workspace.get()), s.workspace_bytes / sizeof(float),
              std::numeric_limits<float>::quiet_NaN());
  // Backwards, so that where an output shares an input's memory the input's contents stay.
  for (std::size_t i = s.c.tensors.size(); i-- > 0;) {
    store(s.c.before[i], s.c.tensors[i].dtype, s.addresses[i]);
  }
}

void PreparedCase::run() {
  state_->kernel->run(state_->inputs, state_->outputs, state_->c.position);
}

Values PreparedCase::values() const {
  Values result;
  for (std::size_t i = 0; i < state_->c.tensors.size(); ++i) {
    result.push_back(load(state_->c.tensors[i], state_->addresses[i]));
  }
  return result;
}

Values run_case(Backend& backend, const OpCase& c) {
  PreparedCase prepared(backend, c);
  prepared.run();
  return prepared.values();
}

}  // namespace plimsoll
