// Buffers get offsets as an allocator would give them.
#include "passes/layout/plan_memory.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <tuple>
#include <vector>

namespace plimsoll {

namespace {

struct Hole {
  Bytes offset, size;
  Bytes end() const { return offset + size; }
};

/// A free list in order of addresses, which merges neighbours and grows at the top. It is flat,
/// since there are few holes.
class FreeList {
 public:
  Bytes take(Bytes size) {
    auto best = holes_.end();
    for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
      if (hole->size >= size && (best == holes_.end() || hole->size < best->size)) best = hole;
    }
    if (best == holes_.end()) return take_at_top(size);
    const Bytes offset = best->offset;
    if (best->size == size) {
      holes_.erase(best);
    } else {
      *best = {offset + size, best->size - size};
    }
    return offset;
  }

  void give(Bytes offset, Bytes size) {
    const Hole hole{offset, size};
    const auto after =
        std::upper_bound(holes_.begin(), holes_.end(), offset,
                         [](Bytes at, const Hole& other) { return at < other.offset; });
    const bool joins_after = after != holes_.end() && hole.end() == after->offset;
    if (after != holes_.begin() && std::prev(after)->end() == offset) {
      const auto before = std::prev(after);
      before->size += size;
      if (!joins_after) return;
      before->size += after->size;
      holes_.erase(after);
    } else if (joins_after) {
      *after = {offset, size + after->size};
    } else {
      holes_.insert(after, hole);
    }
  }

  Bytes extent() const { return top_; }

 private:
  /// A hole that ends at the top is part of the new room.
  Bytes take_at_top(Bytes size) {
    Bytes offset = top_;
    if (!holes_.empty() && holes_.back().end() == top_) {
      offset = holes_.back().offset;
      holes_.pop_back();
    }
    top_ = offset + size;
    return offset;
  }

  std::vector<Hole> holes_;
  Bytes top_;
};

/// True for the buffers that are calls' frames and are over before another frame begins.
std::vector<bool> frames_of(const Program& program) {
  std::vector<bool> frames(program.buffers.size());
  std::size_t next = program.calls.size();  // the next call that has a frame
  for (std::size_t c = program.calls.size(); c-- > 0;) {
    const Call& call = program.calls[c];
    if (program.at(call.routine).frame_bytes == Bytes(0)) continue;
    frames[call.frame.index()] = program.at(call.frame).end <= next;
    next = c;
  }
  return frames;
}

/// Indices of buffers by one of their ends, ascending.
class BuffersByCall {
 public:
  BuffersByCall(const Program& program, const std::vector<bool>& left_out, std::size_t Buffer::*end)
      : first_(program.calls.size() + 2) {
    for (std::size_t i = 0; i < program.buffers.size(); ++i) {
      if (!left_out[i]) ++first_[program.buffers[i].*end + 1];
    }
    std::partial_sum(first_.begin(), first_.end(), first_.begin());
    buffers_.resize(first_.back());
    std::vector<std::size_t> next = first_;
    for (std::size_t i = 0; i < program.buffers.size(); ++i) {
      if (!left_out[i]) buffers_[next[program.buffers[i].*end]++] = i;
    }
  }
  std::span<std::size_t> at_call(std::size_t call) {
    return std::span(buffers_).subspan(first_[call], first_[call + 1] - first_[call]);
  }

 private:
  std::vector<std::size_t> first_, buffers_;
};

/// Gives buffers that are not placed yet offsets from `base`, in a walk over the calls.
template <class Room>
void place_alive(Program& program, const std::vector<bool>& placed, const Room& room, Bytes base,
                 FreeList& free) {
  BuffersByCall acquired(program, placed, &Buffer::begin), released(program, placed, &Buffer::end);
  for (std::size_t call = 0; call < program.calls.size(); ++call) {
    for (std::size_t i : released.at_call(call))
      free.give(program.buffers[i].offset - base, room(i));
    const std::span<std::size_t> taken = acquired.at_call(call);
    std::sort(taken.begin(), taken.end(), [&](std::size_t a, std::size_t b) {
      const Buffer &first = program.buffers[a], &second = program.buffers[b];
      return std::tuple(!first.persistent, second.bytes, a) <
             std::tuple(!second.persistent, first.bytes, b);
    });
    for (std::size_t i : taken) program.buffers[i].offset = base + free.take(room(i));
  }
}

}  // namespace

void plan_memory(Program& program, Bytes guard) {
  const std::vector<bool> frames = frames_of(program);
  const auto room = [&](std::size_t i) {
    return round_up(program.buffers[i].bytes, kBlockAlignment) + guard;
  };
  Bytes largest_frame;
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    if (frames[i]) largest_frame = std::max(largest_frame, room(i));
  }
  FreeList free, host;
  const Bytes frame = free.take(largest_frame);
  std::vector<bool> placed = frames, of_device(frames.size());
  for (std::size_t i = 0; i < frames.size(); ++i) {
    if (frames[i]) program.buffers[i].offset = frame;
    of_device[i] = !program.buffers[i].on_host;
    placed[i] = placed[i] || program.buffers[i].on_host;
  }
  place_alive(program, placed, room, Bytes(), free);
  program.arena_bytes = free.extent();
  place_alive(program, of_device, room, program.arena_bytes, host);
}

}  // namespace plimsoll
