// Compares each cycle of calls with the cycle before it.
#include "simulator/memory/alike_cycles.h"

namespace plimsoll {
namespace {

class CycleReader {
 public:
  CycleReader(const Program& program, std::int64_t period) : program_(program), period_(period) {
    std::int64_t most = -1;
    for (std::size_t i = 0; i < program.calls.size(); ++i) {
      const auto& micro_batch = program.calls[i].micro_batch;
      if (!micro_batch || *micro_batch <= most) continue;
      most = *micro_batch;
      if (most % period == 0) cycles_.begins.push_back(i);
    }
  }

  std::optional<AlikeCycles> longest() {
    std::size_t best = 0;
    for (std::size_t c = 0; c + 2 < cycles_.begins.size();) {
      const std::optional<std::int64_t> buffers = step_from(c);
      std::size_t end = c;
      while (buffers && end + 2 < cycles_.begins.size() && step_from(end) == buffers) ++end;
      if (end > c + best) {
        best = end - c;
        cycles_.first = c;
        cycles_.last = end;
        cycles_.buffers = *buffers;
      }
      c = std::max(end, c + 1);
    }
    return best > 0 ? std::optional(cycles_) : std::nullopt;
  }

 private:
  /// Returns by how much buffer numbers grow to the next cycle; nothing where it is not alike.
  std::optional<std::int64_t> step_from(std::size_t cycle) const {
    const std::size_t begin = cycles_.begins[cycle], next = cycles_.begins[cycle + 1];
    const std::size_t length = next - begin;
    if (cycles_.begins[cycle + 2] - next != length) return std::nullopt;
    std::optional<std::int64_t> step;
    for (std::size_t i = begin; i < next; ++i) {
      if (!alike(program_.calls[i], program_.calls[i + length], length, step)) return std::nullopt;
    }
    return step;
  }

  bool alike(const Call& a, const Call& b, std::size_t length,
             std::optional<std::int64_t>& step) const {
    if (a.routine != b.routine || a.layer != b.layer || a.bindings.size() != b.bindings.size())
      return false;
    if (a.micro_batch.has_value() != b.micro_batch.has_value()) return false;
    if (a.micro_batch && *b.micro_batch - *a.micro_batch != period_) return false;
    for (std::size_t i = 0; i < a.bindings.size(); ++i) {
      if (a.bindings[i].offset != b.bindings[i].offset) return false;
      if (!alike(a.bindings[i].buffer, b.bindings[i].buffer, length, step)) return false;
    }
    return true;
  }

  bool alike(BufferId a, BufferId b, std::size_t length, std::optional<std::int64_t>& step) const {
    const Buffer &first = program_.at(a), &second = program_.at(b);
    if (first.persistent || second.persistent) return a == b;
    const std::int64_t between = std::int64_t(b.index()) - std::int64_t(a.index());
    if (!step) step = between;
    return between == *step && first.bytes == second.bytes && first.role == second.role &&
           second.end - first.end == length;
  }

  const Program& program_;
  const std::int64_t period_;
  AlikeCycles cycles_;
};

std::size_t calls_of(const AlikeCycles& cycles) {
  return cycles.begins[cycles.last + 1] - cycles.begins[cycles.first];
}

}  // namespace

std::optional<AlikeCycles> alike_cycles(const Program& program) {
  const std::optional<AlikeCycles> single = CycleReader(program, 1).longest();
  const std::int64_t stages = program.grid[Axis::pp];
  if (stages == 1 || (single && calls_of(*single) * 2 > program.calls.size())) return single;
  const std::optional<AlikeCycles> groups = CycleReader(program, stages).longest();
  if (!single || !groups) return single ? single : groups;
  return calls_of(*single) >= calls_of(*groups) ? single : groups;
}

}  // namespace plimsoll
