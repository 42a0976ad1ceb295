// Rows of nccl-tests, in text and in JSON: where ranks are, and what rows must be.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "models/calibration/nccl_tests.h"

namespace plimsoll {

/// A line of the list of devices. JSON has the first of each process only.
struct NcclDevice {
  std::string where;
  std::int64_t rank = 0, group = 0;
  std::string host, name;
};

/// The list of a run and how much of it there is.
struct NcclDevices {
  std::vector<NcclDevice> devices;
  std::int64_t per_process = 0;  ///< 0: the file does not say
  bool partial = false;  ///< devices of a process may be missing behind its first (a cut block)
};

/// Fills ranks, nodes, groups and device of the run. Throws InputError.
void place_ranks(NcclRun& run, const NcclDevices& list, const NcclGiven& given);

/// How exactly a row's numbers were printed: half a unit of their last digit.
struct NcclRounding {
  double time_us = 0, bus_bandwidth = 0;
};

/// Throws InputError where count, type and ranks do not make the size, or size and time not the
/// bus bandwidth.
void check_size(const NcclRun& run, const NcclRow& row);
void check_bandwidth(const NcclRun& run, const NcclRow& row, const NcclTiming& timing,
                     const NcclRounding& rounding);

/// "all_reduce" of "all_reduce_perf", "./build/all_reduce_perf", "AllReduce".
std::optional<std::string> nccl_collective(std::string_view program);
/// The names above, as `--collective` takes them.
std::span<const std::string_view> nccl_collectives();
/// "2.28.9" of 22809; of 2708 "2.7.8" (nccl.h, NCCL_VERSION).
std::string nccl_version(std::int64_t code);

inline constexpr std::int64_t kMostNcclSize = std::int64_t{1} << 53;
inline constexpr double kMostNcclMicroseconds = 3.6e9;

std::vector<NcclRun> parse_nccl_text(std::string_view text, const std::string& file,
                                     const NcclGiven& given);
std::vector<NcclRun> parse_nccl_json(std::string_view text, const std::string& file,
                                     const NcclGiven& given);

}  // namespace plimsoll
