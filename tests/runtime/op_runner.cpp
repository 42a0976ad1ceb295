// Memory, context and conversions for one op case.
#include "tests/runtime/op_runner.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "graph/op_table.h"
#include "runtime/half.h"
#include "runtime/rank_device.h"
#include "tests/runtime/patience.h"

namespace plimsoll {

namespace {

/// One block where the backend's tensors lie.
class Memory {
 public:
  Memory(RankDevice* device, Bytes size, bool on_host = false)
      : device_(device),
        on_host_(on_host),
        bytes_(std::size_t(round_up(size, kBlockAlignment).count())) {
    const Bytes rounded{std::int64_t(bytes_)};
    data_ = device == nullptr ? new (std::align_val_t(64)) std::byte[bytes_]
            : on_host         ? device->allocate_on_host(rounded)
                              : device->allocate(rounded);
  }
  ~Memory() {
    if (data_ == nullptr) return;
    if (device_ != nullptr) {
      on_host_ ? device_->free_on_host(data_) : device_->free(data_);
    } else {
      ::operator delete[](data_, std::align_val_t(64));
    }
  }
  Memory(Memory&& other) noexcept
      : device_(other.device_),
        on_host_(other.on_host_),
        bytes_(other.bytes_),
        data_(std::exchange(other.data_, nullptr)) {}
  Memory& operator=(Memory&&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  RankDevice* device_;
  bool on_host_;
  std::size_t bytes_;
  std::byte* data_ = nullptr;
};

std::size_t stored_bytes(const Tensor& tensor) { return std::size_t(bytes_of(tensor).count()); }

void store(const std::vector<double>& values, DType dtype, std::byte* to) {
  if (dtype == DType::i32) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto id = std::int32_t(values[i]);
      std::memcpy(to + i * 4, &id, 4);
    }
    return;
  }
  if (dtype == DType::u8) {
    std::ranges::transform(values, to, [](double value) { return std::byte(int(value)); });
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
  if (tensor.dtype == DType::u8) {
    std::vector<double> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = std::to_integer<int>(from[i]);
    return values;
  }
  std::vector<float> floats(count);
  to_f32(tensor.dtype, from, floats.data(), std::int64_t(count));
  return {floats.begin(), floats.end()};
}

}  // namespace

struct PreparedCase::State {
  const OpCase& c;
  RankDevice* device;
  RankContext context;
  Memory workspace;
  std::vector<Memory> blocks;         ///< by tensor
  std::vector<std::byte*> addresses;  ///< by tensor
  std::vector<std::byte*> inputs, outputs;
  std::unique_ptr<Kernel> kernel;
};

PreparedCase::PreparedCase(Backend& backend, const OpCase& c, Bytes workspace)
    : state_(new State{
          c, backend.device(), {}, Memory(backend.device(), workspace), {}, {}, {}, {}, {}}) {
  State& s = *state_;
  backend.enter_thread();
  for (const Tensor& tensor : c.tensors) {
    s.blocks.emplace_back(s.device, bytes_of(tensor), tensor.on_host);
    s.addresses.push_back(s.blocks.back().data());
  }
  if (const auto in_place = row(c.op.kind).in_place) {
    s.addresses[c.op.outputs[0].index()] = s.addresses[c.op.inputs[*in_place].index()];
  }
  for (TensorId id : c.op.inputs) s.inputs.push_back(s.addresses[id.index()]);
  for (TensorId id : c.op.outputs) s.outputs.push_back(s.addresses[id.index()]);
  s.context.program = &c.program;
  s.context.at = c.at;
  s.context.text = {c.text, c.global_batch, {}, c.examples.get()};
  s.context.workspace = {s.workspace.data(), std::size_t(workspace.count())};
  s.kernel = backend.prepare(c.op, c.tensors, s.context);
  reset();
}

PreparedCase::~PreparedCase() = default;

void PreparedCase::reset() {
  State& s = *state_;
  const std::vector<float> nothing(s.workspace.bytes() / sizeof(float),
                                   std::numeric_limits<float>::quiet_NaN());
  const auto write = [&](std::byte* to, std::span<const std::byte> values) {
    if (s.device != nullptr) {
      s.device->write(to, values);
    } else {
      std::copy(values.begin(), values.end(), to);
    }
  };
  write(s.workspace.data(), std::as_bytes(std::span(nothing)));
  // Backwards, so that where an output shares an input's memory the input's contents stay.
  for (std::size_t i = s.c.tensors.size(); i-- > 0;) {
    std::vector<std::byte> stored(stored_bytes(s.c.tensors[i]));
    store(s.c.before[i], s.c.tensors[i].dtype, stored.data());
    write(s.addresses[i], stored);
  }
}

void PreparedCase::run() {
  State& s = *state_;
  if (s.device != nullptr) s.device->begin(0, s.c.position, false);
  s.kernel->run(s.inputs, s.outputs, s.c.position);
  if (s.device != nullptr) s.device->end();
}

Seconds PreparedCase::time_on_device(std::int64_t runs) {
  State& s = *state_;
  RankDevice& device = *s.device;
  const auto enqueue = [&] {
    for (std::int64_t i = 0; i < runs; ++i) s.kernel->run(s.inputs, s.outputs, s.c.position);
  };
  device.begin(0, s.c.position, false);
  enqueue();
  device.forget_marks();
  device.mark();
  enqueue();
  const std::uint32_t end = device.mark();
  device.end();
  device.finish(kPatient, s.c.name);
  return device.time_of(end).seconds() / double(runs);
}

Values PreparedCase::values() const {
  const State& s = *state_;
  if (s.device != nullptr) s.device->finish(kPatient, s.c.name);
  Values result;
  for (std::size_t i = 0; i < s.c.tensors.size(); ++i) {
    std::vector<std::byte> stored(stored_bytes(s.c.tensors[i]));
    if (s.device != nullptr) {
      s.device->read(s.addresses[i], stored);
    } else {
      std::copy_n(s.addresses[i], stored.size(), stored.begin());
    }
    result.push_back(load(s.c.tensors[i], stored.data()));
  }
  return result;
}

Values run_case(Backend& backend, const OpCase& c) {
  PreparedCase prepared(backend, c);
  prepared.run();
  return prepared.values();
}

}  // namespace plimsoll
