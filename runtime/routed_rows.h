// RoutedRows: what experts got in the traced step, as the ops of routers leave it in memory.
#pragma once

#include <cstdint>
#include <string>

#include "graph/op.h"
#include "graph/program.h"
#include "runtime/backend.h"

namespace plimsoll {

class RankDevice;
struct PreparedCall;
struct PreparedOp;

/// A RoutedRows holds what one call's experts got. Ranks that are equal in mp and cp choose for the
/// same tokens.
struct RoutedRows {
  std::uint64_t call = 0;    ///< index in Program::calls
  std::int64_t dropped = 0;  ///< choices of the rank's whole sequences that found no room
  std::int64_t rows = -1;    ///< rows that came for this rank's experts, where ranks share them out
  /// Rows that came and for which the rank has no memory. Where the ranks that share each expert
  /// got the same rows, the first of these ranks counts them.
  std::int64_t overflowed = 0;
};

/// Returns a message that names the layer of the model.
std::string to_text(const RowOverflow& overflow);

/// Returns whether ops of this kind say what experts get.
bool routes_rows(const Op& op);
/// Adds what an op has just read and written. `device` is null where the host can read it.
void add_routed(RoutedRows& routed, const PreparedCall& call, const PreparedOp& op,
                const Coordinates& at, RankDevice* device);

}  // namespace plimsoll
