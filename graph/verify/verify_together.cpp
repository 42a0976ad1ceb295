// Happens-before over all rank classes of a job: communications pair up and nothing can deadlock.
#include <fmt/format.h>

#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <boost/graph/topological_sort.hpp>
#include <map>

#include "graph/op_table.h"
#include "graph/verify/verify.h"

namespace plimsoll {

namespace {

/// The members of a group that meet in a kind of communication.
struct ChannelKey {
  std::int64_t from = 0, to = 0;  ///< a transfer's stages; a collective's first and last stage
  bool transfer = false;
  std::int64_t owner = 0;  ///< of all that take part, in owner mode, unless they differ in it
  bool backward = false;   ///< a transfer to an earlier stage, which may be the same pair of ranks
  Group group;
  auto operator<=>(const ChannelKey&) const = default;
};

/// One communication of all members.
struct Rendezvous {
  std::size_t node = 0;
  OpKind kind = OpKind::add;
  std::int64_t root = 0;
  Bytes payload;
  std::int64_t first_stage = 0;  ///< the lowest that takes part
  std::int64_t sides = 0;        ///< how many take part
};

struct Channel {
  std::int64_t expected = 0;  ///< sides of every rendezvous
  std::vector<Rendezvous> rendezvous;
};
using Channels = std::map<ChannelKey, Channel>;

/// A communication op of a routine, as every call of the routine issues it.
struct Communication {
  OpKind kind = OpKind::add;
  Stream stream = Stream::compute;
  std::int64_t root = 0;
  Bytes payload;
  const ChannelKey* key = nullptr;
  Channel* channel = nullptr;
  std::size_t* rendezvous = nullptr;  ///< of this side of the channel that the class has met so far
};

/// A routine's communications, in the order of its ops.
struct Communications {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::vector<Communication> all;
  std::vector<std::uint32_t> number;  ///< by op: its place in `all`, kNone of local ops
};

/// Builds the happens-before graph of one representative rank per class. The host is the strictest
/// executor: it runs local ops itself in issue order and blocks where it waits. A node is a
/// rendezvous or a point where a host has waited.
class HappensBefore {
 public:
  explicit HappensBefore(std::span<const Program> programs)
      : programs_(programs), owners_(programs[0].owner ? programs[0].grid[Axis::sharding] : 1) {}

  Verdict build() {
    for (std::size_t i = 0; i < programs_.size(); ++i) {
      const Program& program = programs_[i];
      const auto index = std::int64_t(i);
      const bool in_order = program.owner.has_value() == programs_[0].owner.has_value() &&
                            program.stage == index / owners_ &&
                            program.owner.value_or(0) == index % owners_;
      if (!in_order) return Verdict::no("programs are not in order of stage and owner");
      if (Verdict verdict = add_class(program); !verdict) return verdict;
    }
    return all_sides_meet();
  }

  bool has_cycle() const {
    using Csr = boost::compressed_sparse_row_graph<boost::directedS>;
    const Csr graph(boost::edges_are_unsorted_multi_pass, edges_.begin(), edges_.end(), nodes_);
    std::vector<Csr::vertex_descriptor> order;
    order.reserve(nodes_);
    try {
      boost::topological_sort(graph, std::back_inserter(order));
    } catch (const boost::not_a_dag&) {
      return true;
    }
    return false;
  }

 private:
  /// One representative rank while its calls are added.
  struct Class {
    const Program& program;
    std::vector<Communications> routines;
    /// Rendezvous that it has met, by channel and by whether it receives. A class that sends to
    /// itself, to other ranks of it, takes part on both sides.
    std::map<std::pair<const Channel*, bool>, std::size_t> rendezvous;
    std::vector<std::size_t> first_end;  ///< by call: where in `ends` its own begin
    std::vector<std::size_t> ends;       ///< by communication of each call: node that ends it
    std::array<std::optional<std::size_t>, kStreams> last_on_stream = {};
    std::size_t host = 0;  ///< the node that the host has come to
  };

  Verdict all_sides_meet() const {
    for (const auto& [key, channel] : channels_) {
      for (std::size_t number = 0; number < channel.rendezvous.size(); ++number) {
        const std::int64_t sides = channel.rendezvous[number].sides;
        if (sides == channel.expected) continue;
        return Verdict::no(
            fmt::format("{} number {} between stages {} and {} is issued by {} of {} sides",
                        key.transfer ? "transfer" : "collective over " + to_text(key.group), number,
                        key.from, key.to, sides, channel.expected));
      }
    }
    return Verdict::yes();
  }

  Verdict add_class(const Program& program) {
    Class rank{program, {}, {}, {}, {}, {}, nodes_++};
    for (const Routine& routine : program.routines) {
      rank.routines.emplace_back();
      if (Verdict verdict = read(routine, rank, rank.routines.back()); !verdict) return verdict;
    }
    for (const Call& call : program.calls) {
      rank.first_end.push_back(rank.ends.size());
      wait_for(call, rank);
      if (Verdict verdict = add_ops(call, rank); !verdict) return verdict;
    }
    return Verdict::yes();
  }

  /// Communications of the routine, with the channels in which this class meets others.
  Verdict read(const Routine& routine, Class& rank, Communications& found) {
    for (const Op& op : routine.ops) {
      found.number.push_back(Communications::kNone);
      if (!communicates(op.kind)) continue;
      found.number.back() = std::uint32_t(found.all.size());
      const auto* collective = std::get_if<CollectiveParams>(&op.params);
      Communication one;
      one.kind = collective != nullptr ? op.kind : OpKind::send;
      one.stream = op.stream;
      one.root = collective != nullptr ? collective->root : 0;
      one.payload = bytes_moved(op, routine.tensors);
      const ChannelKey key = key_of(rank.program, op);
      if (key.transfer && key.from == key.to && !is_for_partner(rank.program, op))
        return Verdict::no("a transfer ends where it begins");
      const auto channel = channels_.try_emplace(key).first;
      channel->second.expected = sides_of(key);
      one.key = &channel->first;
      one.channel = &channel->second;
      one.rendezvous = &rank.rendezvous[{one.channel, op.kind == OpKind::recv}];
      found.all.push_back(one);
    }
    return Verdict::yes();
  }

  /// Whether a transfer goes to another rank of the same class.
  static bool is_for_partner(const Program& program, const Op& op) {
    const bool owners = program.owner.has_value() && program.grid[Axis::dp] % 2 != 0;
    return std::get<TransferParams>(op.params).stage_offset == 0 && has_halves(program.grid) &&
           !owners;
  }

  std::int64_t stages() const { return std::int64_t(programs_.size()) / owners_; }

  ChannelKey key_of(const Program& program, const Op& op) const {
    ChannelKey key;
    key.owner = program.owner.value_or(0);
    if (const auto* transfer = std::get_if<TransferParams>(&op.params)) {
      const std::int64_t offset = transfer->stage_offset;
      const std::int64_t peer = ((program.stage + offset) % stages() + stages()) % stages();
      key.transfer = true;
      key.backward = op.kind == OpKind::send ? offset < 0 : offset > 0;
      key.from = op.kind == OpKind::send ? program.stage : peer;
      key.to = op.kind == OpKind::send ? peer : program.stage;
      return key;
    }
    key.group = std::get<CollectiveParams>(op.params).group;
    const bool across = key.group.axes.has(Axis::pp);
    const std::int64_t last = stages() - std::max<std::int64_t>(1, key.group.pipeline_ends);
    key.from = across ? 0 : program.stage;
    key.to = across ? last : program.stage;
    if (key.group.axes.has(Axis::sharding)) key.owner = 0;
    return key;
  }

  std::int64_t sides_of(const ChannelKey& key) const {
    if (key.transfer) return 2;
    std::int64_t sides = 1;
    if (key.group.axes.has(Axis::pp))
      sides = key.group.pipeline_ends > 0 ? std::min<std::int64_t>(2, stages()) : stages();
    return key.group.axes.has(Axis::sharding) ? sides * owners_ : sides;
  }

  Verdict add_ops(const Call& call, Class& rank) {
    const Routine& routine = rank.program.at(call.routine);
    const Communications& communications = rank.routines[call.routine.index()];
    const std::size_t first_end = rank.ends.size();
    for (std::size_t i = 0; i < routine.ops.size(); ++i) {
      Waiting waiting{rank.host};
      for (const std::uint32_t op : routine.ops[i].waits) {
        const std::uint32_t number = communications.number[op];
        if (number != Communications::kNone) add_wait(rank.ends[first_end + number], waiting);
      }
      rank.host = waiting.next;
      if (communications.number[i] == Communications::kNone) continue;
      if (Verdict verdict = meet(communications.all[communications.number[i]], rank); !verdict)
        return verdict;
    }
    return Verdict::yes();
  }

  /// A host on its way to the node `next` where it has waited, or still at `next` if that is
  /// `host`.
  struct Waiting {
    std::size_t host, next = host;
  };

  /// The host has run local ops before it gets here; only communications hold it up.
  void add_wait(std::size_t end, Waiting& waiting) {
    if (waiting.next == waiting.host) {
      waiting.next = nodes_++;
      edges_.emplace_back(waiting.host, waiting.next);
    }
    edges_.emplace_back(end, waiting.next);
  }

  void wait_for(const Call& call, Class& rank) {
    Waiting waiting{rank.host};
    for (const Wait& wait : call.waits) {
      const RoutineId id = rank.program.calls[wait.call].routine;
      const Communications& communications = rank.routines[id.index()];
      const std::size_t first_end = rank.first_end[wait.call];
      if (wait.port) {
        const std::uint32_t op = rank.program.at(id).ports[*wait.port].op;
        const std::uint32_t number = communications.number[op];
        if (number != Communications::kNone) add_wait(rank.ends[first_end + number], waiting);
      } else {
        for (std::size_t number = 0; number < communications.all.size(); ++number)
          add_wait(rank.ends[first_end + number], waiting);
      }
    }
    rank.host = waiting.next;
  }

  Verdict meet(const Communication& one, Class& rank) {
    std::vector<Rendezvous>& rendezvous = one.channel->rendezvous;
    const std::int64_t stage = rank.program.stage;
    const std::size_t number = (*one.rendezvous)++;
    if (number == rendezvous.size())
      rendezvous.push_back({nodes_++, one.kind, one.root, one.payload, stage, 0});
    Rendezvous& met = rendezvous[number];
    if (met.kind != one.kind || met.payload != one.payload) {
      return Verdict::no(
          fmt::format("stages {} and {} disagree about {} number {}: {} of {} B and {} of {} B",
                      met.first_stage, stage, to_text(one.key->group), number, to_text(met.kind),
                      met.payload.count(), to_text(one.kind), one.payload.count()));
    }
    if (met.root != one.root) {
      return Verdict::no(
          fmt::format("stages {} and {} disagree about the root of {} number {}: {} and {}",
                      met.first_stage, stage, to_text(one.key->group), number, met.root, one.root));
    }
    ++met.sides;
    edges_.emplace_back(rank.host, met.node);
    auto& last = rank.last_on_stream[std::size_t(one.stream)];
    if (last) edges_.emplace_back(*last, met.node);
    last = met.node;
    rank.ends.push_back(met.node);
    return Verdict::yes();
  }

  std::span<const Program> programs_;
  const std::int64_t owners_;  ///< classes per stage
  Channels channels_;
  std::vector<std::pair<std::size_t, std::size_t>> edges_;
  std::size_t nodes_ = 0;
};

}  // namespace

Verdict verify_together(std::span<const Program> programs) {
  HappensBefore graph(programs);
  if (Verdict verdict = graph.build(); !verdict) return verdict;
  if (graph.has_cycle())
    return Verdict::no("waits, streams and communications form a cycle: the job would deadlock");
  return Verdict::yes();
}

}  // namespace plimsoll
