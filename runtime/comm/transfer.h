// Collectives move data between buffers that one thread can reach, and add it in a fixed order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "graph/op.h"
#include "graph/tensor.h"

namespace plimsoll {

/// An ExpertRows says what collectives of rows move (moves_rows): rows of `columns` elements, of
/// which rank r of the group gives expert e those up to all_ends[r * experts + e]. Each of the
/// ranks has an equal part of the experts, or all of them (all_gather_rows, reduce_scatter_rows).
struct ExpertRows {
  const std::int32_t* all_ends = nullptr;
  std::int64_t experts = 0, columns = 0;
  bool shared = false;  ///< each rank has all of the experts
  /// Rows for which the receiving rank has memory. More are not moved, and come back as 0: they are
  /// dropped, or the run ends with the error of received_ends, which may come behind the exchange.
  std::int64_t most = 0;
};

/// MemberData is one member's memory: all elements, and the member's own part, 1/size of them. In
/// place the part lies inside the whole, at the member's index. Out of place it is elsewhere.
struct MemberData {
  std::byte* whole = nullptr;
  /// reduce_scatter writes it, all_gather reads it. ring_shift and all_to_all read the whole and
  /// write as many elements here.
  std::byte* part = nullptr;
  ExpertRows rows = {};  ///< collectives of rows, which read `whole` and write `part`
};

/// Returns the member that is `steps` further round a ring of `size`.
inline std::int64_t ring_peer(std::int64_t member, std::int64_t steps, std::int64_t size) {
  return ((member + steps) % size + size) % size;
}

/// Performs a collective of `elements` elements over `members`, which are in ascending rank order.
/// Sums and maxima are taken in this order for every element, so the result does not depend on the
/// caller. 16-bit types add in f32 and round once. reduce_scatter writes only the parts, and reduce
/// only the root's whole.
void move_collective(OpKind kind, const CollectiveParams& params, DType dtype,
                     std::int64_t elements, std::span<const MemberData> members);

/// Rows that lie one after another with a rank that gives them and with one that gets them.
struct RowRun {
  std::int64_t given = 0, received = 0, count = 0;
  std::int64_t expert = 0;  ///< among those of the rank that gets them
};
/// Calls visit(run) for the rows that member `from` gives to the experts of member `to`, expert by
/// expert. Those that `to` receives are sorted by expert and then by rank.
template <class Visit>
void each_run(const ExpertRows& rows, std::int64_t size, std::int64_t from, std::int64_t to,
              Visit visit) {
  const std::int64_t each = rows.shared ? rows.experts : rows.experts / size,
                     own = rows.shared ? 0 : to * each;
  const auto begin = [&](std::int64_t rank, std::int64_t expert) -> std::int64_t {
    return expert > 0 ? rows.all_ends[rank * rows.experts + expert - 1] : 0;
  };
  std::int64_t received = 0;
  for (std::int64_t expert = own; expert < own + each; ++expert) {
    for (std::int64_t rank = 0; rank < size; ++rank) {
      const std::int64_t first = begin(rank, expert), count = begin(rank, expert + 1) - first;
      const std::int64_t fitting = std::min(count, rows.most - received);
      if (rank == from && fitting > 0) visit(RowRun{first, received, fitting, expert - own});
      received += count;
    }
  }
}

/// Calls visit(first, count) for rows that member `from` has and that no rank has memory for.
template <class Visit>
void each_dropped(const ExpertRows& rows, std::int64_t size, std::int64_t from, Visit visit) {
  std::int64_t kept = 0;  // rows up to here were moved, or visited
  for (std::int64_t to = 0; to < size; ++to) {
    each_run(rows, size, from, to, [&](const RowRun& run) {
      if (run.given > kept) visit(kept, run.given - kept);
      kept = run.given + run.count;
    });
  }
  const std::int64_t end = rows.all_ends[(from + 1) * rows.experts - 1];
  if (end > kept) visit(kept, end - kept);
}

}  // namespace plimsoll
