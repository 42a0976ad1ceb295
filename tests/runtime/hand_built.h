// Hand-built Programs for tests of executor and training, and backends that fail on purpose.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/program.h"
#include "runtime/backend.h"

namespace plimsoll {

/// Puts a Program together; every buffer gets its own place in the arena.
class HandBuilder {
 public:
  explicit HandBuilder(const Grid& grid = {});

  BufferId buffer(std::string name, TensorRole role, std::int64_t bytes, std::size_t begin,
                  std::size_t end);
  /// Lives between steps; its end is set by build().
  BufferId persistent(std::string name, TensorRole role, std::int64_t bytes);

  /// slot 0 = x f32[n] := value.
  RoutineId fill(std::int64_t n, double value);
  /// slots x, y, z f32[n]: z := x + y, with a temporary f32[frame] in the frame when frame > 0.
  RoutineId add(std::int64_t n, std::int64_t frame = 0);
  /// One collective on slot 0 = x f32[n]; port 0 is its event.
  RoutineId collective(OpKind kind, Axis axis, std::int64_t n);
  /// all_gather or reduce_scatter between slot 0 = x f32[inputs] and slot 1 = y f32[outputs].
  RoutineId collective(OpKind kind, Axis axis, std::int64_t inputs, std::int64_t outputs);
  RoutineId transfer(OpKind kind, std::int64_t stage_offset, std::int64_t n);

  /// Binds the routine's slots to whole buffers, in order. Returns the call's index.
  std::size_t call(RoutineId routine, const std::vector<BufferId>& buffers,
                   std::vector<Wait> waits = {});
  Call& last() { return program_.calls.back(); }
  Program build();

 private:
  Routine& routine(std::string name, std::int64_t slots, std::int64_t n);

  Program program_;
};

/// The CPU backend, except that before every kernel `before(op, position)` is called.
std::unique_ptr<Backend> make_watched_backend(
    std::function<void(const Op& op, const RunPosition& position)> before);

}  // namespace plimsoll
