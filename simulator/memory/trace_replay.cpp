// Replays a trace event by event, and compares addresses and segments.
#include "simulator/memory/trace_replay.h"

#include <optional>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "simulator/memory/block_allocator.h"

namespace plimsoll {
namespace {

class Replayer {
 public:
  explicit Replayer(const AllocatorTrace& trace) : trace_(trace), allocator_(pytorch_allocator()) {
    result_.most_reserved = trace.most_reserved;
    auto block = trace.blocks.begin();
    for (const TracedSegment& segment : trace.segments) {
      std::vector<BlockAllocator::AddressRange> taken;
      const auto first = block;
      for (;
           block != trace.blocks.end() && block->address < segment.address + segment.bytes.count();
           ++block) {
        taken.push_back({block->address, block->bytes});
      }
      const std::vector<Block> blocks = allocator_.adopt({segment.address, segment.bytes}, taken);
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        blocks_[(first + std::ptrdiff_t(i))->id] = blocks[i];
      }
    }
  }

  TraceReplay run() {
    for (std::size_t i = 0; i < trace_.events.size(); ++i) {
      const TraceEvent& event = trace_.events[i];
      switch (event.kind) {
        case TraceEvent::Kind::take_segment:
          segment_ = &event;
          break;
        case TraceEvent::Kind::allocate:
          allocate(event, i);
          break;
        case TraceEvent::Kind::free:
          allocator_.give(blocks_.at(event.id));
          blocks_.erase(event.id);
          break;
        case TraceEvent::Kind::give_segment_back:
          give_back(i);
          break;
      }
    }
    result_.simulated_most_reserved = allocator_.most_reserved();
    return result_;
  }

 private:
  using Block = BlockAllocator::Block;

  void differs(std::size_t event) {
    if (result_.first_difference < 0) result_.first_difference = std::int64_t(event);
  }

  void allocate(const TraceEvent& event, std::size_t place) {
    const Bytes before = allocator_.reserved();
    const bool known = segment_ && follows_;
    allocator_.place_next_segment(known ? std::optional(segment_->address) : std::nullopt);
    const std::optional<Block> block = allocator_.take(event.bytes);
    INVARIANT(block.has_value(), "a replay has no limit");
    blocks_[event.id] = *block;
    const Bytes taken = allocator_.reserved() - before;
    const Bytes real = segment_ ? segment_->bytes : Bytes();
    result_.segments += segment_ ? 1 : 0;
    if (taken == real) {
      result_.equal_segments += segment_ ? 1 : 0;
    } else {
      result_.other_segments += taken > Bytes() ? 1 : 0;
    }
    segment_ = nullptr;
    const bool same_place = allocator_.address(*block) == event.address;
    ++result_.allocations;
    result_.equal_addresses += same_place ? 1 : 0;
    follows_ &= taken == real;
    if (taken != real || !same_place) differs(place);
  }

  /// The first of consecutive events of this kind is one call of empty_cache().
  void give_back(std::size_t place) {
    const auto gives_back = [&](std::size_t i) {
      return trace_.events[i].kind == TraceEvent::Kind::give_segment_back;
    };
    if (place > 0 && gives_back(place - 1)) return;
    std::int64_t count = 0;
    Bytes real;
    for (std::size_t i = place; i < trace_.events.size() && gives_back(i); ++i, ++count) {
      real += trace_.events[i].bytes;
    }
    const Bytes before = allocator_.reserved();
    const std::int64_t segments = allocator_.empty_cache();
    result_.given_back += count;
    result_.simulated_given_back += segments;
    if (segments != count || before - allocator_.reserved() != real) {
      follows_ = false;
      differs(place);
    }
  }

  const AllocatorTrace& trace_;
  BlockAllocator allocator_;
  std::unordered_map<std::int64_t, Block> blocks_;  ///< by id
  const TraceEvent* segment_ = nullptr;             ///< that the next allocation came with
  bool follows_ = true;  ///< the segments so far are the real ones, and so are their addresses
  TraceReplay result_;
};

}  // namespace

TraceReplay replay(const AllocatorTrace& trace) { return Replayer(trace).run(); }

}  // namespace plimsoll
