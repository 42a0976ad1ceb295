// The table of a backend's kernels must have one for every op kind that is executed.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "graph/op_rows.h"

namespace plimsoll {

/// Returns whether a kind is a local op that is executed: not abstract, no communication, not only
/// simulated.
constexpr bool is_executed(OpKind kind) {
  const OpRow& row = kOpRows[std::size_t(kind)];
  const bool local = row.op_class == OpClass::matmul || row.op_class == OpClass::attention ||
                     row.op_class == OpClass::memory_bound || row.op_class == OpClass::to_host ||
                     row.op_class == OpClass::to_device || row.op_class == OpClass::host_memory;
  return local && !row.simulated_only;
}

/// Returns whether a backend has a kernel of the kind. `lacking` are the executed kinds for which
/// it has none.
template <std::size_t N>
constexpr bool has_kernel(OpKind kind, const std::array<OpKind, N>& lacking) {
  return is_executed(kind) && std::ranges::find(lacking, kind) == lacking.end();
}

/// Returns whether a table of prepare functions is complete. It must have a function for every
/// executed kind that is not in `lacking`, and none for other kinds.
template <class Prepare, std::size_t N>
constexpr bool covers_ops(const std::array<Prepare, kOpKinds>& table,
                          const std::array<OpKind, N>& lacking) {
  for (const OpKind kind : lacking) {
    if (!is_executed(kind) || std::ranges::count(lacking, kind) != 1) return false;
  }
  for (std::size_t i = 0; i < kOpKinds; ++i) {
    if ((table[i] != nullptr) != has_kernel(OpKind(i), lacking)) return false;
  }
  return true;
}

}  // namespace plimsoll
