// No races: every access to an address is ordered after the accesses it must not overtake, on a
// device whose streams run by themselves.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "graph/op_table.h"
#include "graph/verify/verify.h"

namespace plimsoll {

namespace {

/// How many ops of each stream are known to have finished. Entries behind the streams stay 0: the
/// compiler then handles four entries at once.
using Clock = std::array<std::uint32_t, (kStreams + 3) / 4 * 4>;

void merge(Clock& into, const Clock& other) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], other[i]);
}

/// Whether all that `before` names has finished by `known`.
bool covers(const Clock& known, const Clock& before) {
  std::uint32_t later = 0;
  for (std::size_t i = 0; i < known.size(); ++i) later |= before[i] > known[i] ? 1 : 0;
  return later == 0;
}

/// The latest accesses to a range of addresses, by stream.
struct Uses {
  Clock written = {}, touched = {};
};

/// Disjoint ranges of the arena with their uses.
class Addresses {
 public:
  /// Calls visit(uses) for every part of [begin, end), which ranges are cut at. Where `written`,
  /// one range with those uses then replaces the parts.
  template <class Visit>
  void for_each(std::int64_t begin, std::int64_t end, const Uses* written, Visit&& visit) {
    const auto first = cut(begin);
    auto at = first;
    for (; at != ranges_.end() && at->first < end; ++at) {
      if (at->second.end > end) cut(at, end);
      visit(at->second.uses);
    }
    if (written == nullptr || at == first) return;
    first->second = {end, *written};
    for (auto part = std::next(first); part != at; part = ranges_.erase(part)) {
      if (Found& found = found_at(part->first); found.begin == part->first) found = {};
    }
  }

  void add(std::int64_t begin, std::int64_t end) {
    if (end > begin) ranges_[begin] = {end, {}};
  }

 private:
  struct Range {
    std::int64_t end = 0;
    Uses uses;
  };
  using Ranges = std::map<std::int64_t, Range>;  ///< by where they begin

  /// Ends the range at `at`, where another begins with the same uses. Returns the other.
  Ranges::iterator cut(Ranges::iterator range, std::int64_t at) {
    const auto rest = ranges_.emplace_hint(std::next(range), at, range->second);
    range->second.end = at;
    return rest;
  }

  /// The first range at or behind `at`, where the one around it is cut.
  Ranges::iterator cut(std::int64_t at) {
    Found& found = found_at(at);
    if (found.begin == at) return found.range;
    const auto range = look_up(at);
    if (range != ranges_.end() && range->first == at) found = {at, range};
    return range;
  }

  Ranges::iterator look_up(std::int64_t at) {
    const auto next = ranges_.upper_bound(at);
    if (next == ranges_.begin()) return next;
    const auto before = std::prev(next);
    if (before->first == at) return before;
    return before->second.end > at ? cut(before, at) : next;
  }

  /// A range that was looked up. Steps come back to the same addresses, and a walk through the tree
  /// would take most of the time.
  struct Found {
    std::optional<std::int64_t> begin;
    Ranges::iterator range;
  };
  /// Returns the only place for a range that begins at `at`.
  Found& found_at(std::int64_t at) {
    constexpr std::uint64_t kSpread = 0x9e3779b97f4a7c15;  // 2^64 over the golden ratio
    return found_[(std::uint64_t(at) * kSpread) >> (64 - kFoundBits)];
  }

  static constexpr int kFoundBits = 12;
  Ranges ranges_;
  std::vector<Found> found_{std::size_t{1} << kFoundBits};
};

/// Walks the ops in issue order with a vector clock per stream.
class MemoryOrder {
 public:
  explicit MemoryOrder(const Program& program)
      : program_(program), after_(program.calls.size()), sizes_(program.routines.size()) {
    addresses_.add(0, (program.arena_bytes + host_bytes(program)).count());
  }

  Verdict run() {
    for (std::size_t i = 0; i < program_.calls.size(); ++i) {
      if (Verdict verdict = visit_call(i); !verdict) return verdict;
    }
    return Verdict::yes();
  }

 private:
  /// Clocks that later calls may wait for.
  struct After {
    Clock all = {};
    std::vector<Clock> ports;
  };

  Verdict visit_call(std::size_t index) {
    const Call& call = program_.calls[index];
    const Routine& routine = program_.at(call.routine);
    Clock known = {};
    for (const Wait& wait : call.waits) {
      merge(known, wait.port ? after_[wait.call].ports[*wait.port] : after_[wait.call].all);
    }
    done_.clear();
    for (const Op& op : routine.ops) {
      Clock& stream = streams_[std::size_t(op.stream)];
      merge(stream, known);
      for (std::uint32_t wait : op.waits) merge(stream, done_[wait]);
      const std::uint32_t sequence = ++issued_[std::size_t(op.stream)];
      if (Verdict verdict = visit_operands(index, op, stream, sequence); !verdict) return verdict;
      stream[std::size_t(op.stream)] = sequence;
      done_.push_back(stream);
      merge(after_[index].all, stream);
    }
    for (const Port& port : routine.ports) after_[index].ports.push_back(done_[port.op]);
    return Verdict::yes();
  }

  Verdict visit_operands(std::size_t call, const Op& op, const Clock& known,
                         std::uint32_t sequence) {
    const auto own = std::size_t(op.stream);
    Clock finished = known;
    finished[own] = sequence;  // a stream runs its ops in order
    for (TensorId id : op.inputs) {
      if (Verdict verdict = visit(call, op, id, finished, nullptr); !verdict) return verdict;
    }
    if (is_root(op)) return Verdict::yes();
    Uses written;
    written.written[own] = written.touched[own] = sequence;
    for (TensorId id : op.outputs) {
      if (Verdict verdict = visit(call, op, id, finished, &written); !verdict) return verdict;
    }
    return Verdict::yes();
  }

  /// The root of a broadcast leaves its memory as it is.
  bool is_root(const Op& op) const {
    if (op.kind != OpKind::broadcast || !program_.owner) return false;
    const auto& params = std::get<CollectiveParams>(op.params);
    const Group sharding{{Axis::sharding}, false};  // where a rank's index is its coordinate
    return params.group == sharding && params.root == *program_.owner && op.inputs == op.outputs;
  }

  /// Visits an operand that the op reads, or writes with the uses that the memory then has.
  Verdict visit(std::size_t call_index, const Op& op, TensorId id, const Clock& finished,
                const Uses* written) {
    const auto [begin, end] = range(program_.calls[call_index], op, id);
    const auto own = std::size_t(op.stream);
    std::optional<std::size_t> racing;
    addresses_.for_each(begin, end, written, [&](Uses& uses) {
      const Clock& before = written != nullptr ? uses.touched : uses.written;
      if (!covers(finished, before)) racing = last_racing(finished, before);
      uses.touched[own] = finished[own];
    });
    if (racing) {
      const Routine& routine = program_.at(program_.calls[call_index].routine);
      return Verdict::no(fmt::format(
          "call {} ({}): {} {} {} before stream {} is done with that memory", call_index,
          routine.name, to_text(op.kind), written != nullptr ? "writes" : "reads",
          routine.tensors[id.index()].name, to_text(Stream(*racing))));
    }
    return Verdict::yes();
  }

  /// The last stream that has not finished what `before` names.
  static std::size_t last_racing(const Clock& finished, const Clock& before) {
    std::size_t stream = kStreams - 1;
    while (before[stream] <= finished[stream]) --stream;
    return stream;
  }

  /// Bytes of each tensor of a routine.
  const std::vector<Bytes>& sizes_of(RoutineId id) {
    std::vector<Bytes>& sizes = sizes_[id.index()];
    const std::vector<Tensor>& tensors = program_.at(id).tensors;
    if (sizes.size() < tensors.size()) {
      for (const Tensor& tensor : tensors) sizes.push_back(bytes_of(tensor));
    }
    return sizes;
  }

  /// Returns the elements that an update of a range reaches of parameters: of all, or of this
  /// rank's.
  std::pair<std::int64_t, std::int64_t> updated(const AdamParams& update,
                                                const Tensor& parameters) const {
    if (elements(parameters.shape) != owned_elements(program_)) return {update.begin, update.end};
    std::int64_t begin = 0, end = 0;
    for (const Bucket& bucket : program_.buckets) {
      const std::int64_t part = bucket.elements / shards(program_, bucket);
      if (bucket.begin < update.begin) begin += part;
      if (bucket.begin < update.end) end += part;
    }
    return {begin, end};
  }

  /// Addresses of an operand; of a sharded binding, those of all ranks.
  std::pair<std::int64_t, std::int64_t> range(const Call& call, const Op& op, TensorId id) {
    const Tensor& tensor = program_.at(call.routine).tensors[id.index()];
    const auto* update = std::get_if<AdamParams>(&op.params);
    const auto of_arenas = [&] {  // all of the rank's moments are there
      return program_.at(call.routine).tensors[op.inputs[2].index()].arena;
    };
    if (update != nullptr && update->end > 0 && is_of_parameters(tensor.role) &&
        !is_of_host(op.kind) && of_arenas()) {
      const Binding& arena = call.bindings[*program_.at(call.routine).places[id.index()].slot];
      const Bytes start = program_.at(arena.buffer).offset;
      const auto [begin, end] = updated(*update, tensor);
      return {(start + begin * bytes_of(tensor.dtype)).count(),
              (start + end * bytes_of(tensor.dtype)).count()};
    }
    const Place& place = program_.at(call.routine).places[id.index()];
    const Bytes size = sizes_of(call.routine)[id.index()];
    if (!place.slot) {
      const Bytes begin = program_.at(call.frame).offset + place.offset;
      return {begin.count(), (begin + size).count()};
    }
    const Binding& binding = call.bindings[*place.slot];
    const Bytes start = program_.at(binding.buffer).offset;
    return {(start + binding.offset + place.offset).count(),
            (start + reach(program_, binding, place.offset + size)).count()};
  }

  const Program& program_;
  std::vector<After> after_;               // by call
  std::vector<Clock> done_;                // by op of the call that is visited
  std::vector<std::vector<Bytes>> sizes_;  // by routine and tensor; empty until it is called
  std::array<Clock, kStreams> streams_ = {};
  Clock issued_ = {};
  Addresses addresses_;
};

}  // namespace

Verdict verify_memory_order(const Program& program) { return MemoryOrder(program).run(); }

}  // namespace plimsoll
