// The data movement of collectives between buffers that one thread can reach.
#include "runtime/comm/transfer.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
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

/// Reduces elements [first, first + count) of all members into `sum`, in f32 whatever their type.
void reduce_chunk(Reduction reduction, DType dtype, std::span<std::byte* const> members,
                  std::int64_t first, std::int64_t count, float* sum) {
  alignas(64) float converted[kChunk];
  const auto begin = [&](std::size_t member) {
    return members[member] + first * element_bytes(dtype);
  };
  to_f32(dtype, begin(0), sum, count);
  for (std::size_t member = 1; member < members.size(); ++member) {
    const float* part = converted;
    if (dtype == DType::f32) {
      part = reinterpret_cast<const float*>(begin(member));
    } else {
      to_f32(dtype, begin(member), converted, count);
    }
    if (reduction == Reduction::sum) {
      combine(sum, part, count, [](float a, float b) { return a + b; });
    } else {
      combine(sum, part, count, larger);
    }
  }
}

/// Reduces [first, first + count) and stores it in the members [from, to), rounded once.
void reduce_into(Reduction reduction, DType dtype, std::span<std::byte* const> members,
                 std::int64_t first, std::int64_t count, std::size_t from, std::size_t to) {
  alignas(64) float sum[kChunk];
  for (std::int64_t done = 0; done < count; done += kChunk) {
    const std::int64_t chunk = std::min(kChunk, count - done);
    reduce_chunk(reduction, dtype, members, first + done, chunk, sum);
    for (std::size_t member = from; member < to; ++member) {
      from_f32(dtype, sum, members[member] + (first + done) * element_bytes(dtype), chunk);
    }
  }
}

void gather(std::size_t part_bytes, std::span<std::byte* const> members) {
  for (std::size_t from = 0; from < members.size(); ++from) {
    for (std::size_t to = 0; to < members.size(); ++to) {
      if (to == from) continue;
      std::memcpy(members[to] + from * part_bytes, members[from] + from * part_bytes, part_bytes);
    }
  }
}

}  // namespace

void move_collective(OpKind kind, Reduction reduction, DType dtype, std::int64_t elements,
                     std::span<std::byte* const> members) {
  const auto size = std::int64_t(members.size());
  if (size == 1 || elements == 0) return;
  switch (kind) {
    case OpKind::all_reduce:
      reduce_into(reduction, dtype, members, 0, elements, 0, members.size());
      return;
    case OpKind::reduce_scatter:
      for (std::int64_t part = 0; part < size; ++part) {
        reduce_into(reduction, dtype, members, part * (elements / size), elements / size,
                    std::size_t(part), std::size_t(part) + 1);
      }
      return;
    case OpKind::all_gather:
      gather(std::size_t((bytes_of(dtype) * (elements / size)).count()), members);
      return;
    default:
      INVARIANT(false, "not a collective");
  }
}

}  // namespace plimsoll
