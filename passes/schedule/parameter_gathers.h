// Sharding stage 3: parameters are kept as equal parts of elements and gathered before they are
// used (ZeRO, Rajbhandari et al. 2019, arXiv 1910.02054, P_os+g+p; one coalesced gather per layer
// and prefetch as PyTorch FSDP and DeepSpeed PRs 1188 and 1453), or whole by their owner, who
// broadcasts them (Paddle fleet's ShardingOptimizer).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "passes/cut/program_builder.h"
#include "passes/layout/arena_layout.h"
#include "passes/schedule/step_collectives.h"
#include "passes/strategy/pass_context.h"

namespace plimsoll {

/// One call that reads parameters which have to be gathered.
struct ParameterUse {
  std::size_t instance = 0;
  bool own = false, tied = false;    ///< the instance's bundle; the tied parameter of another
  std::vector<std::size_t> entries;  ///< owner mode: of the bundle, those that it reads
  Phase phase = Phase::forward;
  std::int64_t micro_batch = 0;
};

/// Adds the gathers of one stage to its Program while the schedule issues the calls that use them.
///
/// Before a use, what it reads is gathered unless it is there already, and so is what the next
/// prefetch_depth uses read, as far as max_live_bytes allows. After a use its memory is freed,
/// unless it is used again within the prefetch, or within reuse_distance_bytes of gathered
/// parameters, or, with keep_gathered, some micro-batch is between its first use here and its last.
/// So a micro-batch gathers anew exactly where none of these holds.
///
/// In owner mode a gather is a broadcast for each owner of what is gathered. The owner reads its
/// own memory; only others have a copy. With gather = segment a use is a run of calls of one
/// micro-batch, whose parameters come before the first and go after the last.
class ParameterGathers {
 public:
  ParameterGathers(const Graph& graph, const PassContext& context, const ArenaLayout& layout,
                   const StageArenas& arenas, ProgramBuilder& build);

  bool active() const { return op_ != nullptr; }
  /// Elements that stay whole here beside what this rank keeps of the parameters.
  std::int64_t resident_elements() const;
  /// The tied parameter stays whole.
  bool tied_stays() const { return tied_ && groups_[*tied_].resident; }
  /// Whether a call that reads this slot of an instance has it gathered.
  bool is_gathered(const Slot& slot, std::size_t instance) const;

  /// Parameters that stay whole are gathered once per step, when it begins. `uses` are the uses of
  /// the step that read gathered parameters, in issue order.
  void begin_step(const std::vector<ParameterUse>& uses);
  /// Before the call of the next use: what it waits for.
  std::vector<Wait> before_use();
  /// A call of this instance that reads parameters which stay whole waits for these.
  std::vector<Wait> resident_waits(std::size_t instance, bool tied) const;
  Binding binding(const Slot& slot, std::size_t instance) const;
  /// The call of that use is issued.
  void after_use(std::size_t call);

 private:
  /// The parameters that travel at once: one of ArenaLayout::gathers.
  struct Group {
    std::size_t instance = 0;  ///< whose bundle it is of
    bool copy = false;         ///< a tied parameter's, of no bundle here
    bool resident = false;     ///< stays whole
  };
  /// Parameters that come and go together: an instance's bundle, the tied parameter by itself, or
  /// what a segment reads.
  struct Item {
    std::vector<std::size_t> groups;   ///< ascending
    Bytes bytes;                       ///< of all of them, on every rank
    std::vector<std::size_t> uses;     ///< ascending
    std::size_t next = 0;              ///< the first of them that is not over
    bool live = false, used = false;   ///< since it was gathered
    std::optional<BufferId> buffer;    ///< none where this rank owns everything
    std::vector<std::size_t> gathers;  ///< the calls that fill it
    std::size_t last_use = 0;
    /// By micro-batch: its first and its last use.
    std::map<std::int64_t, std::pair<std::size_t, std::size_t>> spans;
    std::int64_t between = 0;  ///< micro-batches that have used it and will again
  };
  /// Calls between which nothing comes or goes.
  struct Use {
    std::vector<std::size_t> items;
    Phase phase = Phase::forward;
    std::int64_t micro_batch = 0;
    std::size_t calls = 1;
  };

  bool is_own(std::size_t group) const;
  Bytes bytes_of_group(std::size_t group) const;
  void add_item(std::vector<std::size_t> groups);
  std::vector<std::size_t> groups_of(const ParameterUse& use) const;
  void add_uses(const std::vector<ParameterUse>& calls);
  void add_segments(const std::vector<ParameterUse>& calls);
  std::optional<std::int64_t> place_in(const std::vector<std::size_t>& groups,
                                       std::size_t group) const;
  Binding owned_binding(std::int64_t element, std::size_t item) const;
  std::size_t gather(std::size_t group, const Use& use, Binding into,
                     std::optional<std::int64_t> micro_batch);
  std::size_t gather_parts(std::size_t group, const Use& use, Binding into,
                           std::optional<std::int64_t> micro_batch);
  std::size_t broadcast(std::size_t group, const Use& use, Binding into,
                        std::optional<std::int64_t> micro_batch);
  void gather_item(Item& item, const Use& use);
  void make_room(Bytes bytes);
  void release(Item& item);
  bool keeps(const Item& item) const;
  Bytes bytes_between(std::size_t first, std::size_t second) const;

  const Graph& graph_;
  const PassContext& context_;
  const ArenaLayout& layout_;
  const StageArenas& arenas_;
  ProgramBuilder& build_;
  const Op* op_ = nullptr;
  std::vector<Group> groups_;
  std::optional<std::size_t> tied_;    ///< the tied parameter's group
  std::vector<std::size_t> resident_;  ///< groups
  std::vector<std::int64_t> kept_at_;  ///< by group: elements into this rank's part
  std::vector<Item> items_;            ///< by instance, then the tied parameter; by segment
  std::vector<Use> uses_;
  std::vector<Bytes> used_before_;  ///< by use: gathered bytes that the uses before it read
  std::size_t now_ = 0;             ///< the use that comes next, or whose calls are being issued
  std::size_t calls_done_ = 0;      ///< of it
  Bytes live_;
  std::vector<std::optional<std::size_t>> resident_gather_;  ///< by instance
  std::map<std::size_t, std::size_t> broadcast_;             ///< by group: the latest call
};

}  // namespace plimsoll
