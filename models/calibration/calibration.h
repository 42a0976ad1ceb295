// A Calibration is a set of measurements of one machine, each with its spread and provenance.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "graph/op.h"
#include "graph/op_table.h"

namespace plimsoll {

/// A Provenance says where a number comes from; every estimate carries one. They are ordered from
/// best to worst.
enum class Provenance : std::uint8_t {
  measured,      ///< measured at this shape or size
  interpolated,  ///< computed between measured points
  fitted,        ///< from numbers that published runs of the device and the framework determined
  extrapolated,  ///< computed beyond the sizes that were measured or fitted
  typical,       ///< from rates that fits of other devices and frameworks have in common
  datasheet,     ///< from rates as a document states them
};
inline constexpr std::size_t kProvenances = 6;
std::string_view to_text(Provenance provenance);

/// A Sample has the median and the interquartile range of `samples` (>= 7) timings.
struct Sample {
  Seconds median;
  Seconds spread;  ///< interquartile range
  std::int64_t samples = 0;
  bool unsteady = false;  ///< spread above 10 % of the median even after repeating
  bool operator==(const Sample&) const = default;
};

struct MatmulPoint {
  MatmulShape shape;
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false, bias = false;
  DType dtype = DType::f32;
  Sample time;
  bool operator==(const MatmulPoint&) const = default;
};

/// An OpPoint is one memory-bound op at one size.
struct OpPoint {
  OpKind kind = OpKind::add;
  DType dtype = DType::f32;
  Bytes moved;           ///< bytes_moved() of the measured op
  std::int64_t row = 0;  ///< length of its innermost dimension where the time depends on it; else 0
  Sample time;
  bool operator==(const OpPoint&) const = default;
};

/// Returns whether a kind's time depends on the length of its rows as well as on its bytes.
bool has_rows(OpKind kind);
/// Returns the `row` by which points of an op are found: the innermost extent of its largest
/// operand, and 0 for kinds without rows.
std::int64_t row_length(const Op& op, std::span<const Tensor> tensors);

/// A CommunicatorKind is the library that moves the bytes of a collective or a transfer.
enum class CommunicatorKind : std::uint8_t {
  local,  ///< threads of one process, through its memory
  mpi,    ///< one process per rank; a thread of each process progresses its communications
  nccl,   ///< streams of the GPUs
};
std::string_view to_text(CommunicatorKind kind);

/// The file from which a point was imported, instead of being measured with the rest.
struct ImportedFrom {
  std::string file;
  std::string date;  ///< ISO date of that measurement
  bool operator==(const ImportedFrom&) const = default;
};

/// A CollectivePoint is one collective at one payload size over one shape of group: `ranks` on
/// `nodes` nodes, equally many on each. A send is a point, too, with a group of 2.
struct CollectivePoint {
  OpKind kind = OpKind::all_reduce;
  std::int64_t ranks = 0;  ///< in the group
  Bytes payload;           ///< bytes_moved() of the op: the full buffer on one rank
  Sample time;             ///< from the last arrival to completion
  std::int64_t nodes = 1;  ///< nodes that the group spans; divides `ranks`
  /// The number of such groups that communicated at once on each node, this one included. The time
  /// includes the sharing of cores and links between them.
  std::int64_t groups_per_node = 1;
  CommunicatorKind communicator = CommunicatorKind::local;
  std::optional<ImportedFrom> imported = std::nullopt;  ///< absent: measured with the rest
  /// The type that a reduction adds up. A collective that only moves bytes has f32 here, whatever
  /// its type was.
  DType dtype = DType::f32;
  bool operator==(const CollectivePoint&) const = default;
};

/// Returns whether a communication adds up its elements, so that their type matters.
bool adds_up(OpKind communication);
/// Returns the kind under which a communication is measured. A transfer is measured once, as
/// `send`. A rooted collective moves and adds as much as half of an all-reduce: n - 1 operands to
/// or from one rank, instead of as many parts to or from each rank. Collectives of rows that all
/// ranks get move as much as those of equal parts.
OpKind measured_as(OpKind communication);

/// Returns all but size and time in words: "all_reduce of 4", "send of 2 over 2 nodes, 2 groups per
/// node".
std::string describe(const CollectivePoint& point);

/// An OverlapPoint states how a local op and a communication slow each other. A slowdown is the
/// time while both run over the time alone. On CPU cores it includes the time of the thread that
/// progresses communications.
struct OverlapPoint {
  OpKind compute = OpKind::matmul;  ///< a local op
  OpKind communication = OpKind::all_reduce;
  CommunicatorKind communicator = CommunicatorKind::mpi;
  std::int64_t nodes = 1;             ///< nodes that the communication spans
  Bytes payload;                      ///< of the communication, as in CollectivePoint
  double compute_slowdown = 1;        ///< 1: not slowed
  double communication_slowdown = 1;  ///< 1: not slowed
  std::int64_t samples = 0;           ///< >= 7 pairs of timings; the slowdowns are medians
  double compute_spread = 0;          ///< interquartile range of the slowdown
  double communication_spread = 0;
  bool operator==(const OverlapPoint&) const = default;
};

/// The memory that one communicator over a group keeps outside the program's buffers. It is memory
/// of the device (nccl) or of the process (mpi).
struct CommunicatorMemory {
  CommunicatorKind communicator = CommunicatorKind::mpi;
  std::int64_t ranks = 0;  ///< in the group
  Bytes held;
  bool operator==(const CommunicatorMemory&) const = default;
};

enum class CopyDirection : std::uint8_t { to_device, to_host, on_device };
std::string_view to_text(CopyDirection direction);

/// A CopyPoint is one copy between host and device memory, or within the device's memory.
struct CopyPoint {
  CopyDirection direction = CopyDirection::to_device;
  bool pinned = true;  ///< whether the host's pages are pinned; on_device: true
  Bytes size;
  Sample time;
  bool operator==(const CopyPoint&) const = default;
};

struct Calibration {
  std::string device;                 ///< name of the machine's device
  std::string backend;                ///< "cpu", "cuda"
  std::string date;                   ///< ISO date of the measurement
  std::vector<std::string> versions;  ///< "oneDNN 2.6.3", compiler, ...
  std::int64_t busy_cores = 0;        ///< cores that ran the same op at once while measuring
  /// Host time for each op of a real Program on the null backend, and for each call on top. Without
  /// samples it was not measured, as in a calibration of imported collectives alone; then the
  /// framework's values count.
  Sample dispatch_op, dispatch_call;
  /// Time from the completion of a communication to the return of a rank that slept while it
  /// waited. Without samples it was not measured, and no rank sleeps.
  Sample wake_up;
  Seconds sleeps_after;  ///< ranks that wait for less than this do not sleep
  std::vector<MatmulPoint> matmuls;
  std::vector<OpPoint> ops;
  std::vector<CollectivePoint> collectives;
  /// The library through which ranks communicate, which also says how ranks run. Points of other
  /// communicators are kept but not used.
  CommunicatorKind communicator = CommunicatorKind::local;
  std::vector<OverlapPoint> overlaps;
  std::vector<CommunicatorMemory> communicator_memory;
  std::optional<Bytes> context_memory;  ///< memory of the device that its driver's context takes
  std::optional<Sample> launch;         ///< host time to launch one kernel
  std::vector<CopyPoint> copies;
  bool operator==(const Calibration&) const = default;
};

/// Returns whether the text is a date such as "2026-11-20", with or without a time of day behind it
/// ("T10:11:12Z").
bool is_date(std::string_view text);

Calibration parse_calibration(std::string_view text, const std::string& file);
std::string calibration_text(const Calibration& calibration);

}  // namespace plimsoll
