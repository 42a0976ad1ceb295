// These helpers read the rows of nccl-tests, in text and in JSON, and check where ranks are and
// what rows must hold.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "interop/hardware/nccl_tests.h"

namespace plimsoll {

/// An NcclDevice is a line of the list of devices. JSON has only the first device of each process.
struct NcclDevice {
  std::string where;
  std::int64_t rank = 0, group = 0;
  std::string host, name;
};

/// NcclDevices is the list of a run's devices, and how complete it is.
struct NcclDevices {
  std::vector<NcclDevice> devices;
  std::int64_t per_process = 0;  ///< 0: the file does not say
  bool partial = false;  ///< devices of a process may be missing behind its first (a cut block)
};

/// Sets ranks, nodes, groups and device of the run. Throws InputError.
void place_ranks(NcclRun& run, const NcclDevices& list, const NcclGiven& given);

/// NcclRounding says how exactly a row's numbers were printed: half a unit of their last digit.
struct NcclRounding {
  double time_us = 0, bus_bandwidth = 0;
};

/// check_size() throws InputError where count, type and ranks do not make the size.
/// check_bandwidth() does so where size and time do not make the bus bandwidth.
void check_size(const NcclRun& run, const NcclRow& row);
void check_bandwidth(const NcclRun& run, const NcclRow& row, const NcclTiming& timing,
                     const NcclRounding& rounding);

/// Returns "all_reduce" for "all_reduce_perf", "./build/all_reduce_perf" and "AllReduce".
std::optional<std::string> nccl_collective(std::string_view program);
/// Returns the names above, as `--collective` takes them.
std::span<const std::string_view> nccl_collectives();
/// Returns "2.28.9" for 22809, and "2.7.8" for 2708 (nccl.h, NCCL_VERSION).
std::string nccl_version(std::int64_t code);

inline constexpr std::int64_t kMostNcclSize = std::int64_t{1} << 53;
inline constexpr double kMostNcclMicroseconds = 3.6e9;

std::vector<NcclRun> parse_nccl_text(std::string_view text, const std::string& file,
                                     const NcclGiven& given);
std::vector<NcclRun> parse_nccl_json(std::string_view text, const std::string& file,
                                     const NcclGiven& given);

}  // namespace plimsoll
