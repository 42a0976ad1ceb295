// The data movement of collectives between buffers that one thread can reach.
#include "runtime/comm/transfer.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "graph/op_table.h"
#include "runtime/half.h"

namespace plimsoll {
namespace {

// Elements reduced at a time: the accumulator (4 KiB) stays in the first-level cache while every
// member's chunk streams past it once.
constexpr std::int64_t kChunk = 1024;
// g++ vectorises at -O2 only loops with a known number of rounds.
constexpr std::int64_t kLanes = 16;

template <class Combine>
void combine(float* sum, const float* part, std::int64_t count, Combine&& one) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane)
      sum[i + lane] = one(sum[i + lane], part[i + lane]);
  }
  for (; i < count; ++i) sum[i] = one(sum[i], part[i]);
}

// A poisoned or diverged value must not hide behind a maximum: NaN wins.
float larger(float a, float b) { return b > a || b != b ? b : a; }

/// The collective's members and what their memory holds.
struct Operands {
  DType dtype;
  std::span<const MemberData> members;
  std::byte* at(std::byte* base, std::int64_t element) const {
    return base + element * element_bytes(dtype);
  }
};

/// Reduces elements [first, first + count) of all members into `sum`, in f32 whatever their type.
void reduce_chunk(Reduction reduction, const Operands& operands, std::int64_t first,
                  std::int64_t count, float* sum) {
  alignas(64) float converted[kChunk];
  const auto& members = operands.members;
  to_f32(operands.dtype, operands.at(members[0].whole, first), sum, count);
  for (std::size_t member = 1; member < members.size(); ++member) {
    const std::byte* stored = operands.at(members[member].whole, first);
    const float* part = converted;
    if (operands.dtype == DType::f32) {
      part = reinterpret_cast<const float*>(stored);
    } else {
      to_f32(operands.dtype, stored, converted, count);
    }
    if (reduction == Reduction::sum) {
      combine(sum, part, count, [](float a, float b) { return a + b; });
    } else {
      combine(sum, part, count, larger);
    }
  }
}

/// Reduces [first, first + count) and stores it, rounded once, at the addresses that `targets`
/// gives for the elements from `first`.
template <class Targets>
void reduce_into(Reduction reduction, const Operands& operands, std::int64_t first,
                 std::int64_t count, Targets&& targets) {
  alignas(64) float sum[kChunk];
  for (std::int64_t done = 0; done < count; done += kChunk) {
    const std::int64_t chunk = std::min(kChunk, count - done);
    reduce_chunk(reduction, operands, first + done, chunk, sum);
    targets(
        [&](std::byte* base) { from_f32(operands.dtype, sum, operands.at(base, done), chunk); });
  }
}

void all_reduce(Reduction reduction, std::int64_t elements, const Operands& operands) {
  reduce_into(reduction, operands, 0, elements, [&](auto&& store) {
    for (const MemberData& member : operands.members) store(member.whole);
  });
}

void reduce_scatter(Reduction reduction, std::int64_t part, const Operands& operands) {
  for (std::size_t i = 0; i < operands.members.size(); ++i) {
    reduce_into(reduction, operands, std::int64_t(i) * part, part,
                [&](auto&& store) { store(operands.members[i].part); });
  }
}

void all_gather(std::size_t part_bytes, std::span<const MemberData> members) {
  for (std::size_t from = 0; from < members.size(); ++from) {
    for (const MemberData& member : members) {
      std::byte* to = member.whole + from * part_bytes;
      if (to != members[from].part) std::memcpy(to, members[from].part, part_bytes);
    }
  }
}

void broadcast(std::size_t bytes, std::size_t root, std::span<const MemberData> members) {
  for (std::size_t to = 0; to < members.size(); ++to) {
    if (to != root) std::memcpy(members[to].whole, members[root].whole, bytes);
  }
}

/// Gives each rank the sums over ranks of its own rows.
void sum_rows(const Operands& operands) {
  const auto size = std::int64_t(operands.members.size());
  for (std::int64_t i = 0; i < size; ++i) {
    const MemberData& member = operands.members[std::size_t(i)];
    const std::int64_t columns = member.rows.columns;
    // Rows lie alike with all ranks.
    each_run(member.rows, size, i, 0, [&](const RowRun& run) {
      std::byte* const own = operands.at(member.part, run.given * columns);
      reduce_into(Reduction::sum, operands, run.received * columns, run.count * columns,
                  [&](auto&& store) { store(own); });
    });
  }
}

/// Rows that no rank had memory for come back as 0.
void clear_dropped(const MemberData& giver, std::int64_t size, std::int64_t from, Bytes element) {
  const std::int64_t row = (element * giver.rows.columns).count();
  each_dropped(giver.rows, size, from, [&](std::int64_t first, std::int64_t count) {
    std::memset(giver.part + first * row, 0, std::size_t(count * row));
  });
}

/// Gives each row to the ranks of its expert, or takes it back.
void move_rows(bool returns, Bytes element, std::span<const MemberData> members) {
  const auto size = std::int64_t(members.size());
  for (std::int64_t from = 0; from < size; ++from) {
    if (returns) clear_dropped(members[std::size_t(from)], size, from, element);
    for (std::int64_t to = 0; to < size; ++to) {
      const MemberData &giver = members[std::size_t(from)], &taker = members[std::size_t(to)];
      const std::int64_t row = (element * giver.rows.columns).count();
      each_run(giver.rows, size, from, to, [&](const RowRun& run) {
        const auto bytes = std::size_t(run.count * row);
        if (returns) {
          std::memcpy(giver.part + run.given * row, taker.whole + run.received * row, bytes);
        } else {
          std::memcpy(taker.part + run.received * row, giver.whole + run.given * row, bytes);
        }
      });
    }
  }
}

void ring_shift(std::size_t bytes, std::int64_t shift, std::span<const MemberData> members) {
  const auto size = std::int64_t(members.size());
  for (std::int64_t to = 0; to < size; ++to) {
    const std::int64_t from = ring_peer(to, -shift, size);
    std::memcpy(members[std::size_t(to)].part, members[std::size_t(from)].whole, bytes);
  }
}

void all_to_all(std::size_t part_bytes, std::span<const MemberData> members) {
  for (std::size_t to = 0; to < members.size(); ++to) {
    for (std::size_t from = 0; from < members.size(); ++from) {
      std::memcpy(members[to].part + from * part_bytes, members[from].whole + to * part_bytes,
                  part_bytes);
    }
  }
}

}  // namespace

void move_collective(OpKind kind, const CollectiveParams& params, DType dtype,
                     std::int64_t elements, std::span<const MemberData> members) {
  const auto size = std::int64_t(members.size());
  if (elements == 0) return;
  if (kind == OpKind::reduce_scatter_rows) return sum_rows({dtype, members});
  if (moves_rows(kind)) return move_rows(kind == OpKind::return_rows, bytes_of(dtype), members);
  const auto bytes = [&](std::int64_t count) {
    return std::size_t((bytes_of(dtype) * count).count());
  };
  if (size == 1) {
    if (members[0].part != members[0].whole) {  // out of place: a part that is the whole
      const bool gathers = kind == OpKind::all_gather;
      std::memcpy(gathers ? members[0].whole : members[0].part,
                  gathers ? members[0].part : members[0].whole, bytes(elements));
    }
    return;
  }
  const Operands operands{dtype, members};
  switch (kind) {
    case OpKind::all_reduce:
      return all_reduce(params.reduction, elements, operands);
    case OpKind::reduce_scatter:
      return reduce_scatter(params.reduction, elements / size, operands);
    case OpKind::all_gather:
      return all_gather(bytes(elements / size), members);
    case OpKind::reduce:
      return reduce_into(params.reduction, operands, 0, elements,
                         [&](auto&& store) { store(members[std::size_t(params.root)].whole); });
    case OpKind::broadcast:
      return broadcast(bytes(elements), std::size_t(params.root), members);
    case OpKind::ring_shift:
      return ring_shift(bytes(elements), params.shift, members);
    case OpKind::all_to_all:
      return all_to_all(bytes(elements / size), members);
    default:
      INVARIANT(false, "not a collective");
  }
}

}  // namespace plimsoll
