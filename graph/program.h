// A Program is what one class of ranks does in one training step. The simulator gives its ops
// durations, and the runtime runs them with kernels.
//
// A routine is one block in one role. It has local ops on local tensors. Each tensor is placed in
// the routine's frame (temporaries) or in one of its slots (memory that outlives the call). The
// schedule is the list of calls in host issue order, and a call binds slots to buffers. Gradient
// buckets, sends and receives cross calls, so they are calls of their own that wait on ports; no
// routine names another. Buffers are acquired and released at points of the issue order, never at
// points of time.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/op.h"
#include "graph/tensor.h"

namespace plimsoll {

using RoutineId = Id<struct RoutineTag>;
using BufferId = Id<struct BufferTag>;

/// Every block of memory starts at a multiple of this, and sizes count rounded up to it.
inline constexpr Bytes kBlockAlignment{64};

/// A Place says where a routine's tensor lives.
struct Place {
  std::optional<std::size_t> slot;  ///< absent: in the frame
  Bytes offset;                     ///< from the start of the slot or frame
  bool operator==(const Place&) const = default;
};

/// A SlotKind is the use of a slot; the schedule binds buffers by it.
enum class SlotKind : std::uint8_t {
  parameters,
  resident_parameters,  ///< stage 3: parameters of the block that are not gathered, but kept whole
  frozen_parameters,    ///< this block instance's range of the arena of frozen parameters
  gradients,            ///< this block instance's range of the arenas
  tied_parameters,      ///< the block instance that owns the tied parameters
  tied_gradients,
  input,
  output,
  input_gradient,
  output_gradient,  ///< borders of the block
  saved,            ///< saved-for-backward bundle
  /// the part of `saved` that the weight-gradient routine reads, where it exists
  saved_for_weights,
  offloaded,  ///< what backward reads and the host's memory may hold between forward and backward
  deferred,   ///< values of the input-gradient routine that the weight-gradient routine reads
  carried,    ///< values that one part of a routine leaves for a later part
  weight_copies,  ///< copies of this block instance's weights in 8 bits, for one step
  scalars,
  parameter_arena,
  master_parameter_arena,  ///< mixed precision: the f32 parameters this rank updates
  gradient_arena,
  first_moment_arena,
  second_moment_arena,
  moment_scale_arena,    ///< of moments in 8 bits: the first ones', then the second ones'
  host_parameter_arena,  ///< in the host's memory: the f32 parameters that the host updates
  host_gradient_arena,   ///< and their gradients
  host_first_moment_arena,
  host_second_moment_arena,
  main_gradients,    ///< gradients of the step in f32, where the gradient arena has another type
  squared_norms,     ///< one number for every tensor that this rank counts in the norm
  tensor_norms,      ///< two numbers for every tensor (LAMB)
  squares,           ///< as large as the gradient arena
  scaled_gradients,  ///< as large as the gradient arena
  payload,           ///< the operand of a send, receive or bucket collective
  selection_bias,    ///< of this block instance's router
  expert_load,       ///< how often the step's tokens chose each of its experts
  layer_choices,     ///< how often a micro-batch's tokens chose each expert, in all layers
};

struct Slot {
  SlotKind kind = SlotKind::saved;
  Bytes bytes;
  /// Parameters and gradients of a block whose tensors do not lie together have one slot for each
  /// tensor. This is the tensor's index in the block's bundle.
  std::optional<std::size_t> entry{};
  bool operator==(const Slot&) const = default;
};

/// A Port is an event: op `op` has finished, so `tensor` may be read from outside.
struct Port {
  TensorId tensor;
  std::uint32_t op = 0;
  bool operator==(const Port&) const = default;
};

struct Routine {
  std::string name;
  Phase phase = Phase::forward;
  std::vector<Tensor> tensors;
  std::vector<Place> places;  ///< parallel to tensors
  std::vector<Slot> slots;
  std::vector<Op> ops;  ///< operands index `tensors`
  std::vector<Port> ports;
  Bytes frame_bytes;  ///< counted whole while a call runs
  bool operator==(const Routine&) const = default;
};

/// A Buffer is memory as the program plans it. It is alive in calls [begin, end). It is acquired
/// when call `begin` is issued, after that call's waits. It is released after call `end - 1`,
/// before call `end` acquires. A buffer with begin == 0, end == calls.size() and `persistent` also
/// lives between steps.
struct Buffer {
  std::string name;
  TensorRole role = TensorRole::activation;
  Bytes bytes;  ///< exact; memory counts it rounded up to kBlockAlignment
  bool persistent = false;
  /// It lies in the host's memory, outside the arena, and counts in no memory of the device.
  bool on_host = false;
  std::size_t begin = 0, end = 0;
  Bytes offset;  ///< in the arena, set by plan_memory; of the host's buffers behind the arena
  bool operator==(const Buffer&) const = default;
};

/// A Binding gives one slot of a call a range of a buffer. Where ranks share a range, the rank's
/// own part starts at offset + shard_stride * (its coordinate on stride_axis, or shard_index() for
/// the axis of shards).
struct Binding {
  BufferId buffer;
  Bytes offset;
  Bytes shard_stride;
  Axis stride_axis = Axis::sharding;
  bool operator==(const Binding&) const = default;
};

/// A call waits for this before it is issued: for a port of an earlier call, or for the whole call.
struct Wait {
  std::size_t call = 0;
  std::optional<std::size_t> port;  ///< absent: every op of that call
  bool operator==(const Wait&) const = default;
};

struct Call {
  RoutineId routine;
  std::optional<std::int64_t> layer;  ///< as Segment::layer
  /// Absent for once-per-step calls. From Program::micro_batches on, those of the partner follow
  /// (partner_of in graph/grid.h).
  std::optional<std::int64_t> micro_batch;
  std::vector<Binding> bindings;  ///< parallel to the routine's slots
  std::vector<Wait> waits;
  BufferId frame;         ///< meaningful when the routine's frame_bytes > 0
  std::int64_t part = 0;  ///< of the micro-batch's tokens (Strategy::loss_chunks)
  bool operator==(const Call&) const = default;
};

/// A Segment is one parameter tensor of one block instance within the flat arenas of this class of
/// ranks.
struct Segment {
  std::string parameter;     ///< name in the Graph
  std::int64_t layer = 0;    ///< index among all layers of the model; 0 for other blocks
  Shape shape;               ///< local shape
  DType dtype = DType::f32;  ///< of the parameter; in a stage they may differ
  std::optional<Split> split;
  Init init = Init::none;
  double init_stddev = 0;
  bool decay = false;
  bool clip = true;
  double rate = 1;
  std::optional<double> weight_decay;
  std::int64_t group = 0;     ///< attribute group: equal decay, rate and clip
  std::int64_t offset = 0;    ///< elements from the start of the parameter and gradient arenas
  std::int64_t elements = 0;  ///< without padding
  /// The factor of this rank's g^2 in the global norm. It is 1, or 1/mp where mp ranks hold equal
  /// copies, or 0 for a tied copy that another stage counts.
  double norm_weight = 1;
  /// In owner mode, the sharding coordinate of the ranks that update this tensor.
  std::optional<std::int64_t> owner;
  Shape packed = {};  ///< as Tensor::packed
  bool operator==(const Segment&) const = default;
};

/// A Bucket is a contiguous range of the arenas that is reduced and gathered in one call. With
/// sharding, rank i owns [begin + i*part, begin + (i+1)*part), where part = elements / degree. In
/// owner mode one rank of the sharding group owns all of it. Buckets of experts that have a grid of
/// their own are sharded over edp.
struct Bucket {
  std::int64_t begin = 0, elements = 0;  ///< in elements; elements is a multiple of the degree
  std::optional<std::int64_t> owner{};   ///< owner mode: the sharding coordinate
  bool experts = false;                  ///< of experts with a grid that is not the stage's
  bool operator==(const Bucket&) const = default;
};

struct Program {
  std::string name;
  Grid grid;
  std::int64_t stage = 0;  ///< pp coordinate of the ranks of this class
  /// In owner mode, the sharding coordinate of the class as well, since owners update different
  /// tensors.
  std::optional<std::int64_t> owner;
  std::int64_t sharding_degree = 1;  ///< parts each bucket is owned in (1: every rank owns all)
  std::int64_t micro_batch = 1;      ///< sequences per micro-batch
  std::int64_t micro_batches = 1;    ///< per step
  std::vector<Routine> routines;
  std::vector<Buffer> buffers;
  std::vector<Call> calls;
  std::vector<Segment> segments;  ///< ascending offsets
  /// The frozen parameters, in an arena of bytes: their offsets count bytes.
  std::vector<Segment> frozen;
  /// In sharding stage 3, the ranges of bytes of that arena of which each rank has its part. Else
  /// it has all of it, and there are none.
  std::vector<Bucket> frozen_ranges;
  std::vector<Bucket> buckets;  ///< ascending, covering the arenas
  Bytes arena_bytes;            ///< extent of all buffers with their offsets
  bool operator==(const Program&) const = default;

  const Routine& at(RoutineId id) const { return routines[id.index()]; }
  const Buffer& at(BufferId id) const { return buffers[id.index()]; }
};

/// MemoryPeak is the memory of one class of ranks, replayed over the issue order without any
/// timing.
struct MemoryPeak {
  Bytes peak;            ///< largest sum of live buffers, each rounded up
  std::size_t call = 0;  ///< the first that reaches it
  BytesByRole by_role;   ///< live bytes while it runs
};
MemoryPeak memory_peak(const Program& program);
/// The live bytes of buffers, each rounded up, while each call runs.
std::vector<BytesByRole> live_bytes(const Program& program);

/// Returns the bytes that a rank takes of the host's memory, once its memory is planned.
Bytes host_bytes(const Program& program);

/// Returns which one this is of the ranks that differ in cp and sharding alone. Together they own
/// what each replica updates. It is the index in their group.
std::int64_t shard_index(const Grid& grid, const Coordinates& at);
/// Returns the parts that a bucket is owned in.
std::int64_t shards(const Program& program, const Bucket& bucket);
/// Returns the elements of a bucket that the rank at `at` updates. There are none where another
/// rank owns the bucket.
Bucket owned_part(const Program& program, const Bucket& bucket, const Coordinates& at);
/// Returns the elements of the arenas that a rank owns and updates in the optimizer.
std::int64_t owned_elements(const Program& program);

/// Returns the bytes of a buffer, from its start, that a binding of `bytes` may reach on any rank.
Bytes reach(const Program& program, const Binding& binding, Bytes bytes);

/// Returns the class of the rank at these coordinates. Classes are ordered by stage; in owner mode
/// (`by_owner`) by stage and sharding coordinate. Only this function knows how ranks fall into
/// classes.
std::size_t class_of(const Grid& grid, bool by_owner, const Coordinates& at);
/// Returns the index in `programs` of the Program that the rank at these coordinates runs.
std::size_t class_of(std::span<const Program> programs, const Coordinates& at);
/// Returns how many ranks run each Program of a job. All classes have one size.
std::int64_t ranks_per_class(std::span<const Program> programs);
/// Returns "stage 1", and in owner mode "stage 1 owner 0".
std::string class_name(const Program& program);

std::string_view to_text(SlotKind kind);

}  // namespace plimsoll
