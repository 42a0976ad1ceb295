// The output of nccl-tests, as text or JSON, is read into the collectives of a calibration.
//
// The layouts are those of github.com/NVIDIA/nccl-tests: src/util.cu (writeBenchmarkLineBody,
// writeResultHeader, writeDeviceReport; JSON file version 3). Earlier releases have them in
// src/common.cu. Old releases have them in the print_header of each collective, with columns
// without redop or root, and with `error` for `#wrong`. Sizes and bus bandwidths follow
// doc/PERFORMANCE.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "models/calibration/calibration.h"

namespace plimsoll {

/// An NcclTiming is one measurement of a row, out of place or in place.
struct NcclTiming {
  Seconds time;  ///< time of one collective: the mean over iterations, and over ranks as `-a` says
  double bus_bandwidth = 0;           ///< GB/s, as printed
  std::optional<std::int64_t> wrong;  ///< elements; absent: not verified
  std::optional<Seconds> spread;      ///< interquartile range, where iterations were reported
  bool operator==(const NcclTiming&) const = default;
};

struct NcclRow {
  std::string where;  ///< line, or JSON pointer
  Bytes size;         ///< size over all ranks for all-gather and reduce-scatter, else of one rank
  std::int64_t count = 0;  ///< elements; for all-gather and reduce-scatter the elements of one rank
  std::string dtype;       ///< "float"
  std::optional<NcclTiming> out_of_place, in_place;
  bool operator==(const NcclRow&) const = default;
};

/// An NcclRun is one program's run, which is one table.
struct NcclRun {
  std::string file, where;  ///< `where` its table begins
  std::string collective;   ///< "all_reduce"
  bool host_time = false;   ///< `-C 1`: the times are the host's to enqueue, not the collective's
  std::int64_t ranks = 0;   ///< ranks of one communicator
  std::int64_t nodes = 1;   ///< nodes that a communicator spans, with equally many ranks on each
  std::int64_t groups = 1;  ///< communicators at work on its first node (NCCL_TESTS_SPLIT)
  std::int64_t iterations = 0;     ///< iterations of which each row is the mean
  std::string device;              ///< "NVIDIA H100 80GB HBM3"; empty: not in the file
  std::string date;                ///< ISO; empty: not in the file
  std::vector<std::string> notes;  ///< what was left out, and why
  std::vector<std::string> versions;
  std::vector<NcclRow> rows;
};

/// NcclGiven has facts that the files may not state.
struct NcclGiven {
  std::string collective;           ///< old releases do not name it
  std::int64_t ranks = 0;           ///< 0: taken from the list of devices, which must then be there
  std::int64_t ranks_per_node = 0;  ///< with `ranks`; 0: all
  std::string date;                 ///< instead of the file's
};

/// Reads text or JSON. Lines of NCCL, MPI and shells between those of the table are skipped. A file
/// may hold several runs, one after the other. A JSON file that ends early (a killed run) is read
/// up to its last whole row. The environment in JSON files is not read.
///
/// Throws InputError with line and column or JSON pointer. The faults are: no table, or a table
/// without names of columns; text where a number should be; numbers that do not agree (count, type
/// and ranks with size, or time with bus bandwidth). A run of programs that did not know of each
/// other is a fault, too.
std::vector<NcclRun> read_nccl_tests(const std::filesystem::path& path, const NcclGiven& given);
std::vector<NcclRun> parse_nccl_tests(std::string_view text, const std::string& file,
                                      const NcclGiven& given);

/// Returns points of the collectives and transfers that Programs have, in order of kind, shape and
/// size. A point has the in-place time where there is one, since gradients and parameters are
/// reduced and gathered in place. Else, or where only the out-of-place result was verified, it has
/// the out-of-place time. Rows of one size are one sample, with their median. Rows that give no
/// point are added to the run's notes: wrong elements, host times, and collectives that no Program
/// has.
std::vector<CollectivePoint> nccl_points(std::vector<NcclRun>& runs);

}  // namespace plimsoll
