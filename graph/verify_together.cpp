// Happens-before over all rank classes of a job: communications pair up and nothing can deadlock.
#include <fmt/format.h>

#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <boost/graph/topological_sort.hpp>
#include <map>
#include <tuple>

#include "graph/op_table.h"
#include "graph/verify.h"

namespace plimsoll {

namespace {

/// Who meets: stages of a group's members, and the how-manieth meeting of them it is.
struct MeetingKey {
  std::int64_t from = 0, to = 0;  ///< a transfer's stages; a collective's first and last stage
  bool transfer = false;
  std::int64_t owner = 0;  ///< of all that take part, in owner mode, unless they differ in it
  bool backward = false;   ///< a transfer to an earlier stage, which may be the same pair of ranks
  Group group;
  std::size_t count = 0;
  auto operator<=>(const MeetingKey&) const = default;
};

struct Meeting {
  std::size_t node = 0;
  OpKind kind = OpKind::add;
  std::int64_t root = 0;
  Bytes payload;
  std::vector<std::int64_t> stages;  ///< that take part
  std::int64_t expected = 0;
};

/// Builds the happens-before graph of one representative rank per class. The host is the strictest
/// executor: it runs local ops itself in issue order and blocks where it waits.
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
    for (const auto& [key, meeting] : meetings_) {
      if (std::int64_t(meeting.stages.size()) != meeting.expected) {
        return Verdict::no(
            fmt::format("{} number {} between stages {} and {} is issued by {} of {} sides",
                        key.transfer ? "transfer" : "collective over " + to_text(key.group),
                        key.count, key.from, key.to, meeting.stages.size(), meeting.expected));
      }
    }
    return Verdict::yes();
  }

  bool has_cycle() const {
    using Csr = boost::compressed_sparse_row_graph<boost::directedS>;
    const Csr graph(boost::edges_are_unsorted, edges_.begin(), edges_.end(), nodes_);
    std::vector<Csr::vertex_descriptor> order;
    try {
      boost::topological_sort(graph, std::back_inserter(order));
    } catch (const boost::not_a_dag&) {
      return true;
    }
    return false;
  }

 private:
  Verdict add_class(const Program& program) {
    std::map<MeetingKey, std::size_t> counts;
    std::vector<std::vector<std::size_t>> done(
        program.calls.size());  // [call][op]: node that ends it
    std::array<std::optional<std::size_t>, kStreams> last_on_stream;
    std::size_t host = nodes_++;
    for (std::size_t c = 0; c < program.calls.size(); ++c) {
      const Call& call = program.calls[c];
      const Routine& routine = program.at(call.routine);
      host = wait_for(program, call, done, host);
      for (const Op& op : routine.ops) {
        host = wait_for(routine, op.waits, done[c], host);
        if (!communicates(op.kind)) {
          done[c].push_back(host);
          continue;
        }
        const std::size_t posted = nodes_++;
        edges_.emplace_back(host, posted);
        host = posted;
        std::size_t node = 0;
        if (Verdict verdict = meet(program, op, routine.tensors, posted, counts, node); !verdict)
          return verdict;
        auto& last = last_on_stream[std::size_t(op.stream)];
        if (last) edges_.emplace_back(*last, node);
        last = node;
        done[c].push_back(node);
      }
    }
    return Verdict::yes();
  }

  std::size_t wait_for(const Program& program, const Call& call,
                       const std::vector<std::vector<std::size_t>>& done, std::size_t host) {
    for (const Wait& wait : call.waits) {
      const Routine& routine = program.at(program.calls[wait.call].routine);
      if (wait.port) {
        host = wait_for(routine, {&routine.ports[*wait.port].op, 1}, done[wait.call], host);
      } else {
        host = wait_for(routine, communications(routine), done[wait.call], host);
      }
    }
    return host;
  }

  /// The host has run local ops before it gets here; only communications hold it up.
  std::size_t wait_for(const Routine& routine, std::span<const std::uint32_t> ops,
                       const std::vector<std::size_t>& done, std::size_t host) {
    std::size_t next = host;
    for (std::uint32_t op : ops) {
      if (!communicates(routine.ops[op].kind)) continue;
      if (next == host) {
        next = nodes_++;
        edges_.emplace_back(host, next);
      }
      edges_.emplace_back(done[op], next);
    }
    return next;
  }

  const std::vector<std::uint32_t>& communications(const Routine& routine) {
    const auto [found, fresh] = communications_.try_emplace(&routine);
    if (fresh) {
      for (std::uint32_t op = 0; op < routine.ops.size(); ++op) {
        if (communicates(routine.ops[op].kind)) found->second.push_back(op);
      }
    }
    return found->second;
  }

  Verdict meet(const Program& program, const Op& op, std::span<const Tensor> tensors,
               std::size_t posted, std::map<MeetingKey, std::size_t>& counts, std::size_t& node) {
    const std::int64_t stages = std::int64_t(programs_.size()) / owners_;
    MeetingKey key;
    key.owner = program.owner.value_or(0);
    std::int64_t expected = 1;
    OpKind kind = op.kind;
    if (const auto* transfer = std::get_if<TransferParams>(&op.params)) {
      const std::int64_t offset = transfer->stage_offset;
      const std::int64_t peer = ((program.stage + offset) % stages + stages) % stages;
      if (peer == program.stage) return Verdict::no("a transfer ends where it begins");
      key.transfer = true;
      key.backward = op.kind == OpKind::send ? offset < 0 : offset > 0;
      key.from = op.kind == OpKind::send ? program.stage : peer;
      key.to = op.kind == OpKind::send ? peer : program.stage;
      expected = 2;
      kind = OpKind::send;
    } else {
      key.group = std::get<CollectiveParams>(op.params).group;
      const bool across = key.group.axes.has(Axis::pp);
      key.from = across ? 0 : program.stage;
      key.to = across ? stages - 1 : program.stage;
      if (across) expected = key.group.pipeline_ends ? std::min<std::int64_t>(2, stages) : stages;
      if (key.group.axes.has(Axis::sharding)) {
        key.owner = 0;
        expected *= owners_;
      }
    }
    key.count = 0;
    key.count = counts[key]++;
    auto [found, fresh] = meetings_.try_emplace(key);
    Meeting& meeting = found->second;
    const Bytes payload = bytes_moved(op, tensors);
    const auto* collective = std::get_if<CollectiveParams>(&op.params);
    const std::int64_t root = collective != nullptr ? collective->root : 0;
    if (fresh) {
      meeting = {nodes_++, kind, root, payload, {}, expected};
    } else if (meeting.kind == kind && meeting.root != root) {
      return Verdict::no(
          fmt::format("stages {} and {} disagree about the root of {} number {}: {} and {}",
                      meeting.stages.front(), program.stage, to_text(key.group), key.count,
                      meeting.root, root));
    } else if (meeting.kind != kind || meeting.payload != payload) {
      return Verdict::no(fmt::format(
          "stages {} and {} disagree about {} number {}: {} of {} B and {} of {} B",
          meeting.stages.front(), program.stage, to_text(key.group), key.count,
          to_text(meeting.kind), meeting.payload.count(), to_text(kind), payload.count()));
    }
    meeting.stages.push_back(program.stage);
    edges_.emplace_back(posted, meeting.node);
    node = meeting.node;
    return Verdict::yes();
  }

  std::span<const Program> programs_;
  const std::int64_t owners_;  ///< classes per stage
  std::map<MeetingKey, Meeting> meetings_;
  std::map<const Routine*, std::vector<std::uint32_t>> communications_;  // looked up only
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
