// Programs for tests of the simulator are made by hand.
#include "hand_programs.h"

#include <algorithm>

namespace plimsoll {
namespace {

Tensor f32(std::string name, std::int64_t elements) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.shape = {elements};
  return tensor;
}

Op make(OpKind kind, Stream stream, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
        OpParams params = {}, std::vector<std::uint32_t> waits = {}) {
  Op op;
  op.kind = kind;
  op.stream = stream;
  op.inputs = std::move(inputs);
  op.outputs = std::move(outputs);
  op.params = params;
  op.waits = std::move(waits);
  return op;
}

Op reduce(Stream stream, AxisSet axes, std::vector<std::uint32_t> waits) {
  return make(OpKind::all_reduce, stream, {TensorId(0)}, {TensorId(0)},
              CollectiveParams{{axes, false}, Reduction::sum}, std::move(waits));
}

/// Routines by their place in Program::routines.
enum : std::size_t {
  kForward,
  kBackward,
  kSendNext,
  kRecvPrevious,
  kSendPrevious,
  kRecvNext,
  kBucket,
  kNorm,
};

Routine routine(std::string name, Phase phase, std::int64_t elements, std::vector<Op> ops) {
  Routine result;
  result.name = std::move(name);
  result.phase = phase;
  result.tensors = {f32("x", elements), f32("y", elements)};
  result.places.resize(2);
  for (Op& op : ops) op.phase = phase;
  result.ops = std::move(ops);
  result.ports = {{TensorId(1), std::uint32_t(result.ops.size() - 1)}};
  return result;
}

std::vector<Routine> routines(const HandJob& job) {
  const TensorId x(0), y(1);
  const auto gelu = [&] { return make(OpKind::gelu, Stream::compute, {x}, {y}); };
  const AxisSet mp{Axis::mp};
  std::vector<Routine> result;
  result.push_back(
      routine("forward", Phase::forward, job.elements, {gelu(), reduce(Stream::mp, mp, {0})}));
  result.push_back(routine("backward", Phase::backward, job.elements,
                           {gelu(), reduce(Stream::mp, mp, {0}), gelu()}));
  if (job.short_backward) {
    result.back().ops.pop_back();
    result.back().ports[0].op = 1;
  }
  const auto transfer = [&](std::string name, Phase phase, OpKind kind, Stream stream,
                            std::int64_t offset) {
    const bool sends = kind == OpKind::send;
    result.push_back(
        routine(std::move(name), phase, job.elements,
                {make(kind, stream, sends ? std::vector{x} : std::vector<TensorId>{},
                      sends ? std::vector<TensorId>{} : std::vector{x}, TransferParams{offset})}));
  };
  transfer("send_next", Phase::forward, OpKind::send, Stream::send_next, 1);
  transfer("recv_previous", Phase::forward, OpKind::recv, Stream::recv_previous, -1);
  transfer("send_previous", Phase::backward, OpKind::send, Stream::send_previous, -1);
  transfer("recv_next", Phase::backward, OpKind::recv, Stream::recv_next, 1);
  result.push_back(
      routine("bucket", Phase::backward, 4 * job.elements, {reduce(Stream::data, {Axis::dp}, {})}));
  result.push_back(routine("norm", Phase::optimizer, job.elements,
                           {reduce(Stream::world, {Axis::mp, Axis::dp, Axis::pp}, {}), gelu()}));
  result.back().ops[1].waits = {0};
  return result;
}

/// Appends calls in issue order; each of the chain waits for the one before it.
class Schedule {
 public:
  Schedule(Program& program, const HandJob& job, std::int64_t stage)
      : program_(program), job_(job), stage_(stage), stages_(std::int64_t(job.layers.size())) {}

  void forward(std::int64_t micro_batch) {
    if (stage_ > 0) call(kRecvPrevious, micro_batch, false);
    for (std::int64_t i = 0; i < layers(); ++i) call(kForward, micro_batch, i > 0 || stage_ > 0, i);
    if (stage_ + 1 < stages_) call(kSendNext, micro_batch, true);
  }
  void backward(std::int64_t micro_batch) {
    if (stage_ + 1 < stages_) call(kRecvNext, micro_batch, false);
    for (std::int64_t i = layers(); i-- > 0;) call(kBackward, micro_batch, true, i);
    if (stage_ > 0) call(kSendPrevious, micro_batch, true);
  }
  void finish() {
    const std::size_t last = program_.calls.size() - 1;
    call(kBucket, std::nullopt, false);
    program_.calls.back().waits = {{last - (stage_ > 0 ? 1 : 0), std::size_t{0}}};
    call(kNorm, std::nullopt, true);
  }

 private:
  std::int64_t layers() const { return job_.layers[std::size_t(stage_)]; }
  void call(std::size_t routine, std::optional<std::int64_t> micro_batch, bool waits,
            std::optional<std::int64_t> layer = std::nullopt) {
    Call call;
    call.routine = RoutineId(routine);
    call.layer = layer;
    call.micro_batch = micro_batch;
    if (waits) call.waits = {{program_.calls.size() - 1, std::nullopt}};
    program_.calls.push_back(std::move(call));
  }

  Program& program_;
  const HandJob& job_;
  std::int64_t stage_, stages_;
};

}  // namespace

std::vector<Program> hand_pipeline(const HandJob& job) {
  std::vector<Program> programs;
  const auto stages = std::int64_t(job.layers.size());
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    Program& program = programs.emplace_back();
    program.name = "stage" + std::to_string(stage);
    program.grid = job.grid;
    program.stage = stage;
    program.micro_batches = job.micro_batches;
    program.routines = routines(job);
    Schedule schedule(program, job, stage);
    const std::int64_t warm_up = std::min(job.micro_batches, stages - stage - 1);
    for (std::int64_t i = 0; i < warm_up; ++i) schedule.forward(i);
    for (std::int64_t i = 0; i < job.micro_batches; ++i) {
      if (i + warm_up < job.micro_batches) schedule.forward(i + warm_up);
      schedule.backward(i);
    }
    schedule.finish();
    // One saved activation per layer and warm-up micro-batch, and one buffer of the first half.
    const std::size_t calls = program.calls.size();
    const std::int64_t layers = job.layers[std::size_t(stage)];
    program.buffers.push_back({"saved", TensorRole::saved,
                               Bytes(4 * job.elements * layers * (warm_up + 1)), false, false, 0,
                               calls, Bytes(0)});
    program.buffers.push_back(
        {"early", TensorRole::activation, Bytes(100), false, false, 1, calls / 2, Bytes(0)});
    program.arena_bytes = memory_peak(program).peak;
  }
  return programs;
}

Cluster hand_cluster(DeviceKind kind, std::int64_t devices_per_node) {
  Cluster cluster;
  cluster.name = "hand";
  cluster.devices_per_node = devices_per_node;
  cluster.device.name = "device";
  cluster.device.kind = kind;
  cluster.device.memory = Bytes(1 << 30);
  cluster.device.memory_bandwidth = BytesPerSecond(1e9);
  cluster.device.peak_fp32 = FlopsPerSecond(1e9);
  cluster.levels = {{"node", devices_per_node, BytesPerSecond(1e8), Seconds(100e-9)},
                    {"network", 0, BytesPerSecond(1e7), Seconds(1e-6)}};
  cluster.source = "made up for tests";
  return cluster;
}

Calibration hand_overlaps() {
  Calibration calibration;
  calibration.communicator = CommunicatorKind::nccl;
  const auto add = [&](OpKind kind, double compute, double communication) {
    calibration.overlaps.push_back({OpKind::matmul, kind, CommunicatorKind::nccl, 1, Bytes(1'000),
                                    compute, communication, 7, 0, 0});
  };
  add(OpKind::all_reduce, 1.3, 1.7);
  add(OpKind::reduce_scatter, 1.2, 1.1);
  add(OpKind::all_gather, 1.5, 1);
  add(OpKind::send, 1.1, 1.4);
  return calibration;
}

}  // namespace plimsoll
