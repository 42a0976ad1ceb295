// Copies of an update are cut where what a rank updates does not lie together.
#include "passes/cut/copies_in_pieces.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "graph/op_table.h"

namespace plimsoll {

namespace {

/// A Piece is elements of a rank's state that also lie together in an arena.
struct Piece {
  std::int64_t elements = 0;
  std::int64_t begin = 0;   ///< of shard 0, in the arena
  std::int64_t stride = 0;  ///< from one shard's to the next
  Axis axis = Axis::sharding;
};

/// Returns the pieces of a range of the state, in an arena that is whole or has what the rank
/// updates.
std::vector<Piece> pieces_of(const Program& program, std::int64_t arena, std::int64_t begin,
                             std::int64_t end) {
  if (arena == owned_elements(program)) return {{end - begin, begin}};
  std::vector<Piece> pieces;
  std::int64_t before = 0;
  for (const Bucket& bucket : program.buckets) {
    const std::int64_t part = bucket.elements / shards(program, bucket);
    const std::int64_t from = std::max(begin, before), to = std::min(end, before + part);
    if (from < to)
      pieces.push_back({to - from, bucket.begin + from - before, part,
                        bucket.experts ? Axis::edp : Axis::sharding});
    before += part;
  }
  return pieces;
}

class CopiesInPieces {
 public:
  CopiesInPieces(const Program& program, std::int64_t begin, Routine& routine,
                 std::vector<Binding>& bindings)
      : program_(program), begin_(begin), routine_(routine), bindings_(bindings) {}

  void run() {
    std::vector<std::uint32_t> last;  // by op: its last piece
    for (Op op : std::exchange(routine_.ops, {})) {
      for (std::uint32_t& wait : op.waits) wait = last[wait];
      const OpClass kind = row(op.kind).op_class;
      if (kind == OpClass::to_host || kind == OpClass::to_device) {
        add_pieces(op, kind == OpClass::to_host);
      } else {
        routine_.ops.push_back(std::move(op));
      }
      last.push_back(std::uint32_t(routine_.ops.size() - 1));
    }
  }

 private:
  void add_pieces(const Op& op, bool outwards) {
    const TensorId device = (outwards ? op.inputs : op.outputs)[0],
                   host = (outwards ? op.outputs : op.inputs)[0];
    const auto size = [&](TensorId id) { return elements(routine_.tensors[id.index()].shape); };
    const Bytes width = bytes_of(routine_.tensors[device.index()].dtype);
    const BufferId arena = bindings_[*routine_.places[device.index()].slot].buffer;
    Bytes done;
    for (const Piece& piece : pieces_of(program_, size(device), begin_, begin_ + size(host))) {
      const TensorId there = add(device, piece.elements), here = add(host, piece.elements);
      std::optional<std::size_t>& slot = routine_.places[there.index()].slot;
      routine_.slots.push_back({routine_.slots[*slot].kind, piece.elements * width});
      bindings_.push_back({arena, piece.begin * width, piece.stride * width, piece.axis});
      slot = routine_.slots.size() - 1;
      routine_.places[here.index()].offset += done;
      done += bytes_of(routine_.tensors[here.index()]);
      Op& copy = routine_.ops.emplace_back(op);
      copy.inputs = {outwards ? there : here};
      copy.outputs = {outwards ? here : there};
    }
  }

  TensorId add(TensorId like, std::int64_t count) {
    routine_.tensors.push_back(routine_.tensors[like.index()]);
    routine_.tensors.back().shape = {count};
    routine_.places.push_back(routine_.places[like.index()]);
    return TensorId(routine_.tensors.size() - 1);
  }

  const Program& program_;
  const std::int64_t begin_;
  Routine& routine_;
  std::vector<Binding>& bindings_;
};

}  // namespace

void cut_copies(const Program& program, std::int64_t begin, Routine& routine,
                std::vector<Binding>& bindings) {
  CopiesInPieces(program, begin, routine, bindings).run();
}

}  // namespace plimsoll
