// Finds the calls that repeat, and what stands for skipped ones.
#include "simulator/ranks/call_cycles.h"

#include <algorithm>

namespace plimsoll {
namespace {

/// The distance of a whole cycle.
struct Later {
  std::size_t calls = 0;
  std::int64_t micro_batches = 0;

  /// Whether `other` does the work of `one` for the micro-batch of the next cycle.
  bool is_of(const Call& one, const Call& other) const {
    return one.routine == other.routine && one.part == other.part && one.micro_batch &&
           other.micro_batch && *one.micro_batch + micro_batches == *other.micro_batch;
  }
  /// Whether the call one cycle later does the same, and waits for calls one cycle later.
  bool is_repeated(const Program& program, std::size_t call) const {
    const Call &one = program.calls[call], &other = program.calls[call + calls];
    return is_of(one, other) && std::equal(one.waits.begin(), one.waits.end(), other.waits.begin(),
                                           other.waits.end(), [&](const Wait& a, const Wait& b) {
                                             return a.port == b.port && a.call + calls == b.call;
                                           });
  }
};

}  // namespace

CallCycles call_cycles(const Program& program, std::int64_t micro_batches) {
  const std::vector<Call>& calls = program.calls;
  std::size_t middle = calls.size() / 2;
  // Calls without a layer may be alike in several parts of the model.
  const auto may_be_found_again = [](const Call& call) { return call.micro_batch && call.layer; };
  while (middle < calls.size() && !may_be_found_again(calls[middle])) ++middle;
  if (middle == calls.size()) return {};
  Later later{1, micro_batches};
  const auto is_next = [&](const Call& call) {
    return later.is_of(calls[middle], call) && calls[middle].layer == call.layer;
  };
  while (middle + later.calls < calls.size() && !is_next(calls[middle + later.calls])) {
    ++later.calls;
  }
  std::size_t first = middle, last = middle;
  if (middle + later.calls == calls.size()) return {};
  while (first > 0 && later.is_repeated(program, first - 1)) --first;
  while (last + later.calls < calls.size() && later.is_repeated(program, last)) ++last;
  return {first, later.calls, (last + later.calls - first) / later.calls};
}

std::size_t SkippedCalls::awaited(std::size_t call, std::size_t earlier) const {
  if (call < to) return earlier;
  if (call < cycles.end() || earlier >= to) return earlier - calls();
  return earlier < cycles.first ? earlier : kNothing;
}

}  // namespace plimsoll
