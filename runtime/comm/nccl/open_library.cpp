// The NCCL library is opened by the loader.
#include "runtime/cuda/open_library.h"

#include "runtime/comm/nccl/library.h"

namespace plimsoll {

namespace {

Nccl open_nccl() {
  const OpenLibrary library("libnccl.so.2");
  Nccl functions;
  library.find("ncclGetErrorString", functions.error_string);
  library.find("ncclGetLastError", functions.last_error);
  library.find("ncclGetVersion", functions.version);
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

}  // namespace plimsoll
