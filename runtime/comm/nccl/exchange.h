// Exchanges among the ranks of a communicator that NCCL has no call for: parts of one size, and
// rows of experts, whose numbers differ.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>

#include "base/units.h"
#include "graph/op.h"
#include "graph/tensor.h"
#include "runtime/comm/transfer.h"

namespace plimsoll {

/// NCCL's name of the type. Types of 8 bits are bytes to it.
ncclDataType_t nccl_type(DType type);

/// An NcclMember is this rank of a communicator.
struct NcclMember {
  ncclComm_t comm = nullptr;
  std::int64_t index = 0, size = 0;
};

/// Sends part i of `from` to rank i, and puts what rank i sends there to part i of `to`.
ncclResult_t exchange_parts(const NcclMember& member, const std::byte* from, std::byte* to,
                            Bytes part, cudaStream_t stream);

/// Rows of experts go where each_run says, straight to their places: rows that lie together at both
/// ends are one operation. So there is no memory for rows that are to be sorted, and their order
/// is that of every communicator. `data.rows.all_ends` lies in host memory.
///
/// A group of NCCL takes a limited number of operations, so that rows may need several groups. All
/// ranks of the communicator make as many.
std::int64_t row_groups(const ExpertRows& rows, std::int64_t size);
ncclResult_t move_rows(const NcclMember& member, OpKind kind, DType dtype, const MemberData& data,
                       std::int64_t group, cudaStream_t stream);

}  // namespace plimsoll
