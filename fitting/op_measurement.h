// An op measurement is one kernel or collective that somebody timed on GPUs, as a row of a cases
// file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "graph/op.h"
#include "graph/op_table.h"

namespace plimsoll {

struct OpMeasurement {
  OpKind kind = OpKind::matmul;      ///< or flash_attention, flash_attention_backward
  std::string gpu, source;           ///< source: "repository or document, place in it"
  std::vector<std::string> devices;  ///< the names that cluster files have for this GPU
  DType dtype = DType::bf16;         ///< type of the operands
  Seconds time;
  // The next fields are the shape of a matmul.
  MatmulShape shape;
  bool transpose_a = false, transpose_b = false;
  /// bytes moved per element of the result; an f32 sum is read, too
  std::int64_t output_bytes = 2;
  // The next fields are the sizes of causal attention.
  std::int64_t batch = 1, sequence = 1, heads = 1, head_size = 1;
  bool operator==(const OpMeasurement&) const = default;
};

/// Returns whether a cases file holds ops, i.e. its rows have an "op".
bool is_op_measurements(std::string_view text, const std::string& file);

struct OpMeasurements {
  std::vector<OpMeasurement> ops;
  std::int64_t skipped = 0;  ///< rows of other ops, dtypes or head sizes, or without a time
};
/// Parses rows as docs/reference/calibration.md describes them; `file` is named in errors. Throws
/// InputError.
OpMeasurements parse_op_measurements(std::string_view text, const std::string& file);

struct CollectiveMeasurement {
  OpKind kind = OpKind::all_reduce;
  std::string gpu, source;           ///< source: "repository or document, place in it"
  std::vector<std::string> devices;  ///< the names that cluster files have for this GPU
  std::int64_t ranks = 2;            ///< ranks of the group, on consecutive devices
  Bytes payload;                     ///< the full buffer on one rank
  Seconds time;
  bool operator==(const CollectiveMeasurement&) const = default;
};

/// Returns whether a cases file holds collectives, i.e. its rows have a "collective".
bool is_collective_measurements(std::string_view text, const std::string& file);

struct CollectiveMeasurements {
  std::vector<CollectiveMeasurement> points;
  std::int64_t skipped = 0;  ///< rows of other collectives, without ranks or without points
};
/// Parses rows as docs/reference/calibration.md describes them; `file` is named in errors. Throws
/// InputError.
CollectiveMeasurements parse_collective_measurements(std::string_view text,
                                                     const std::string& file);

}  // namespace plimsoll
