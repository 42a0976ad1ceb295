// Opens NCCL.
#include "runtime/comm/nccl/library.h"

#include <fmt/format.h>

#include "base/error.h"
#include "runtime/cuda/open_library.h"

namespace plimsoll {

namespace {

Nccl open_nccl() {
  const OpenLibrary library("libnccl.so.2");
  Nccl functions;
  library.find("ncclGetErrorString", functions.error_string);
  library.find("ncclGetLastError", functions.last_error);
  library.find("ncclGetUniqueId", functions.unique_id);
  library.find("ncclCommInitRankConfig", functions.init);
  library.find("ncclCommSplit", functions.split);
  library.find("ncclCommFinalize", functions.finalize);
  library.find("ncclCommDestroy", functions.destroy);
  library.find("ncclCommAbort", functions.abort);
  library.find("ncclCommGetAsyncError", functions.async_error);
  library.find("ncclGroupStart", functions.group_start);
  library.find("ncclGroupEnd", functions.group_end);
  library.find("ncclAllReduce", functions.all_reduce);
  library.find("ncclReduceScatter", functions.reduce_scatter);
  library.find("ncclAllGather", functions.all_gather);
  library.find("ncclReduce", functions.reduce);
  library.find("ncclBroadcast", functions.broadcast);
  library.find("ncclSend", functions.send);
  library.find("ncclRecv", functions.recv);
  return functions;
}

}  // namespace

const Nccl& nccl() {
  static const Nccl functions = open_nccl();
  return functions;
}

void check_nccl(ncclResult_t result, std::string_view what) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const char* const last = nccl().last_error(nullptr);
  throw EnvironmentError(fmt::format("NCCL cannot {}: {}{}{}", what, nccl().error_string(result),
                                     last != nullptr && *last != '\0' ? "; " : "",
                                     last != nullptr ? last : ""));
}

}  // namespace plimsoll
