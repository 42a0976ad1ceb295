#include "passes/plan_memory.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace plimsoll {

namespace {

/// Address-ordered free list with merging; grows at the top.
class FreeList {
 public:
  Bytes take(Bytes size) {
    auto best = holes_.end();
    for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
      if (hole->second >= size && (best == holes_.end() || hole->second < best->second))
        best = hole;
    }
    if (best == holes_.end()) return take_at_top(size);
    const auto [offset, room] = *best;
    holes_.erase(best);
    if (room > size) holes_.emplace(offset + size, room - size);
    return offset;
  }

  void give(Bytes offset, Bytes size) {
    auto after = holes_.emplace(offset, size).first;
    if (const auto next = std::next(after);
        next != holes_.end() && after->first + after->second == next->first) {
      after->second += next->second;
      holes_.erase(next);
    }
    if (after != holes_.begin()) {
      const auto before = std::prev(after);
      if (before->first + before->second == after->first) {
        before->second += after->second;
        holes_.erase(after);
      }
    }
  }

  Bytes extent() const { return top_; }

 private:
  /// A hole that ends at the top is part of the new room.
  Bytes take_at_top(Bytes size) {
    Bytes offset = top_;
    if (!holes_.empty()) {
      const auto last = std::prev(holes_.end());
      if (last->first + last->second == top_) {
        offset = last->first;
        holes_.erase(last);
      }
    }
    top_ = offset + size;
    return offset;
  }

  std::map<Bytes, Bytes> holes_;  // offset -> size
  Bytes top_;
};

/// True for the buffers that are calls' frames.
std::vector<bool> frames_of(const Program& program) {
  std::vector<bool> frames(program.buffers.size());
  for (const Call& call : program.calls) {
    if (program.at(call.routine).frame_bytes > Bytes(0)) frames[call.frame.index()] = true;
  }
  return frames;
}

}  // namespace

void plan_memory(Program& program, Bytes guard) {
  const std::size_t calls = program.calls.size();
  const std::vector<bool> frames = frames_of(program);
  const auto room = [&](std::size_t i) {
    return round_up(program.buffers[i].bytes, kBlockAlignment) + guard;
  };
  std::vector<std::vector<std::size_t>> acquired(calls + 1), released(calls + 1);
  Bytes largest_frame;
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    if (frames[i]) {
      largest_frame = std::max(largest_frame, room(i));
      continue;
    }
    acquired[program.buffers[i].begin].push_back(i);
    released[program.buffers[i].end].push_back(i);
  }
  FreeList free;
  const Bytes frame = free.take(largest_frame);
  for (std::size_t i = 0; i < frames.size(); ++i) {
    if (frames[i]) program.buffers[i].offset = frame;
  }
  for (std::size_t call = 0; call < calls; ++call) {
    for (std::size_t i : released[call]) free.give(program.buffers[i].offset, room(i));
    std::stable_sort(acquired[call].begin(), acquired[call].end(),
                     [&](std::size_t a, std::size_t b) {
                       const Buffer &first = program.buffers[a], &second = program.buffers[b];
                       if (first.persistent != second.persistent) return first.persistent;
                       return first.bytes > second.bytes;
                     });
    for (std::size_t i : acquired[call]) program.buffers[i].offset = free.take(room(i));
  }
  program.arena_bytes = free.extent();
}

}  // namespace plimsoll
