// The NCCL library is opened when it is first used.
#pragma once

#include <nccl.h>

#include <string>
#include <string_view>

namespace plimsoll {

/// The functions of NCCL that are used, by the names in its manual.
struct Nccl {
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclGetLastError) last_error = nullptr;
  decltype(&ncclGetVersion) version = nullptr;
  decltype(&ncclGetUniqueId) unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) init = nullptr;
  decltype(&ncclCommSplit) split = nullptr;
  decltype(&ncclCommFinalize) finalize = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclReduce) reduce = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) recv = nullptr;
};

/// Opens the library. Throws EnvironmentError naming the files that were tried.
const Nccl& nccl();

/// Returns the version, such as "NCCL 2.28.9".
std::string nccl_version();

/// Throws EnvironmentError: "NCCL cannot WHAT: its reason", with NCCL's last message.
/// ncclInProgress is no failure.
void check_nccl(ncclResult_t result, std::string_view what);

}  // namespace plimsoll
