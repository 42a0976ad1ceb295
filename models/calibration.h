// Calibration: what was measured on a machine, with spread and provenance.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "graph/op.h"
#include "graph/op_table.h"

namespace plimsoll {

/// Where a number comes from; every estimate carries one. Order: from best to worst.
enum class Provenance : std::uint8_t { measured, interpolated, extrapolated, datasheet };
std::string_view to_text(Provenance provenance);

/// Median and interquartile range over `samples` (>= 7) timings.
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

/// One memory-bound op at one size.
struct OpPoint {
  OpKind kind = OpKind::add;
  DType dtype = DType::f32;
  Bytes moved;           ///< bytes_moved() of the measured op
  std::int64_t row = 0;  ///< length of its innermost dimension, where that matters; else 0
  Sample time;
  bool operator==(const OpPoint&) const = default;
};

/// Kinds whose time depends on the length of their rows as well as on the bytes.
bool has_rows(OpKind kind);
/// The `row` an op is looked up by: the innermost extent of its largest operand, 0 without rows.
std::int64_t row_length(const Op& op, std::span<const Tensor> tensors);

/// One collective (or send, whose group size is 2) at one payload size.
struct CollectivePoint {
  OpKind kind = OpKind::all_reduce;
  std::int64_t ranks = 0;  ///< in the group
  Bytes payload;           ///< bytes_moved() of the op: the full buffer on one rank
  Sample time;             ///< from the last arrival to completion
  bool operator==(const CollectivePoint&) const = default;
};

struct Calibration {
  std::string device;                 ///< name of the machine's device
  std::string backend;                ///< "cpu", "cuda"
  std::string date;                   ///< ISO date of the measurement
  std::vector<std::string> versions;  ///< "oneDNN 2.6.3", compiler, ...
  std::int64_t busy_cores = 0;        ///< cores that ran the same op at once while measuring
  Sample dispatch_op;                 ///< host time per op of a real Program on the null backend
  Sample dispatch_call;               ///< host time per call on top
  /// From the completion of a communication to the return of a rank that slept while it waited.
  Sample wake_up;
  Seconds sleeps_after;  ///< ranks that wait for less than this do not sleep
  std::vector<MatmulPoint> matmuls;
  std::vector<OpPoint> ops;
  std::vector<CollectivePoint> collectives;
  bool operator==(const Calibration&) const = default;
};

Calibration read_calibration(const std::filesystem::path& path);
Calibration parse_calibration(std::string_view text, const std::string& file);
std::string calibration_text(const Calibration& calibration);

}  // namespace plimsoll
