// nccl-tests: what its programs print, as text or JSON, read into collectives of a calibration.
//
// The layouts are those of github.com/NVIDIA/nccl-tests: src/util.cu (writeBenchmarkLineBody,
// writeResultHeader, writeDeviceReport; JSON file version 3), before it src/common.cu and, in old
// releases, the print_header of each collective (columns without redop or root, `error` for
// `#wrong`). Sizes and bus bandwidths: doc/PERFORMANCE.md.
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

/// One measurement of a row, out of place or in place.
struct NcclTiming {
  Seconds time;  ///< of one collective: mean over iterations, and over ranks as `-a` says
  double bus_bandwidth = 0;           ///< GB/s, as printed
  std::optional<std::int64_t> wrong;  ///< elements; absent: not verified
  std::optional<Seconds> spread;      ///< interquartile range, where iterations were reported
  bool operator==(const NcclTiming&) const = default;
};

struct NcclRow {
  std::string where;       ///< line, or JSON pointer
  Bytes size;              ///< of all-gather and reduce-scatter over all ranks, else of one rank
  std::int64_t count = 0;  ///< elements; of all-gather and reduce-scatter those of one rank
  std::string dtype;       ///< "float"
  std::optional<NcclTiming> out_of_place, in_place;
  bool operator==(const NcclRow&) const = default;
};

/// One program's run: a table.
struct NcclRun {
  std::string file, where;         ///< `where` its table begins
  std::string collective;          ///< "all_reduce"
  bool host_time = false;          ///< `-C 1`: what the host took to enqueue, not the collective
  std::int64_t ranks = 0;          ///< of one communicator
  std::int64_t nodes = 1;          ///< that it spans, with equally many ranks on each
  std::int64_t groups = 1;         ///< communicators at work on its first node (NCCL_TESTS_SPLIT)
  std::int64_t iterations = 0;     ///< that each row is the mean of
  std::string device;              ///< "NVIDIA H100 80GB HBM3"; empty: not in the file
  std::string date;                ///< ISO; empty: not in the file
  std::vector<std::string> notes;  ///< what was left out, and why
  std::vector<std::string> versions;
  std::vector<NcclRow> rows;
};

/// Facts that the files may not state.
struct NcclGiven {
  std::string collective;           ///< old releases do not name it
  std::int64_t ranks = 0;           ///< 0: by the list of devices, which must then be there
  std::int64_t ranks_per_node = 0;  ///< with `ranks`; 0: all
  std::string date;                 ///< instead of the file's
};

/// Text or JSON. Lines of NCCL, MPI and shells between those of the table are passed over. A file
/// may hold several runs, one after the other; a JSON file that ends early (a killed run) is read
/// up to its last whole row. The environment in JSON files is not read.
///
/// Throws InputError, with line and column or JSON pointer: no table, a table without names of
/// columns, numbers that are none or do not agree (count, type and ranks with size; time with
/// bus bandwidth), a run of programs that did not know of each other.
std::vector<NcclRun> read_nccl_tests(const std::filesystem::path& path, const NcclGiven& given);
std::vector<NcclRun> parse_nccl_tests(std::string_view text, const std::string& file,
                                      const NcclGiven& given);

/// Points of the collectives and transfers that Programs have, in order of kind, shape and size:
/// the in-place time where there is one, as gradients and parameters are reduced and gathered in
/// place, else (or where only that was verified) the out-of-place time. Rows of one size are one
/// sample: their median. What yields no point (wrong elements, host times, collectives that no
/// Program has) is added to the run's notes.
std::vector<CollectivePoint> nccl_points(std::vector<NcclRun>& runs);

}  // namespace plimsoll
