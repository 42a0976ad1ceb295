// In sharding stage 3 parameters are kept as equal parts of elements and gathered before they are
// used (ZeRO, Rajbhandari et al. 2019, arXiv 1910.02054, P_os+g+p). Each layer has one coalesced
// gather, with prefetch, as in PyTorch FSDP and DeepSpeed PRs 1188 and 1453. In owner mode each
// parameter is kept whole by its owner, who broadcasts it (Paddle fleet's ShardingOptimizer).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "passes/schedule/stage_context.h"

namespace plimsoll {

/// A ParameterUse is one call that reads parameters which have to be gathered.
struct ParameterUse {
  std::size_t instance = 0;
  /// it reads the instance's bundle; it reads the tied parameter of another stage
  bool own = false, tied = false;
  std::vector<std::size_t> entries;  ///< owner mode: the entries of the bundle that it reads
  Phase phase = Phase::forward;
  std::int64_t micro_batch = 0;
};

/// A ParameterGathers adds the gathers of one stage to its Program while the schedule issues the
/// calls that use them.
///
/// Before a use, its parameters are gathered unless they are there already. So are the parameters
/// of the next prefetch_depth uses, as far as max_live_bytes allows. After a use its memory is
/// freed, with three exceptions: the parameters are used again within the prefetch; or within
/// reuse_distance_bytes of gathered parameters; or, with keep_gathered, some micro-batch is between
/// its first and its last use of them. A micro-batch gathers again exactly where none of the three
/// holds.
///
/// If the host's memory has this rank's parts (Strategy::gathers.offload), a gather first copies
/// its part to the device. The copy is freed behind the use that waits for the gather. A rank
/// without others has whole parameters there, and its gathers are copies alone.
///
/// In owner mode a gather is one broadcast for each owner of the gathered parameters. The owner
/// reads its own memory, and only others have a copy. With gather = segment a use is a run of calls
/// of one micro-batch: its parameters are gathered before the first call and freed after the last.
class ParameterGathers : StageCalls {
 public:
  explicit ParameterGathers(StageContext& stage);

  bool active() const { return shards_parameters(context_.strategy); }
  /// Returns the number of elements that stay whole on this rank, beside its own parts of the
  /// parameters.
  std::int64_t resident_elements() const;
  /// Returns whether the tied parameter stays whole.
  bool tied_stays() const { return tied_ && (groups_[*tied_].resident || groups_[*tied_].whole); }
  /// Returns whether a call that reads this slot of an instance has it gathered.
  bool is_gathered(const Slot& slot, std::size_t instance) const;

  /// Gathers parameters that stay whole, once per step, when the step begins. `uses` are the uses
  /// of the step that read gathered parameters, in issue order.
  void begin_step(const std::vector<ParameterUse>& uses);
  /// Prepares the call of the next use. Returns the calls for which it waits.
  std::vector<Wait> before_use();
  /// Returns the calls for which a call of this instance waits if it reads parameters that stay
  /// whole.
  std::vector<Wait> resident_waits(std::size_t instance, bool tied);
  Binding binding(const Slot& slot, std::size_t instance) const;
  /// Says that the call of that use is issued.
  void after_use(std::size_t call);

 private:
  /// A Group is the parameters that travel at once: one of ArenaLayout::gathers.
  struct Group {
    std::size_t instance = 0;  ///< the instance whose bundle it is part of
    bool copy = false;         ///< a tied parameter's copy, which is in no bundle of this stage
    bool resident = false;     ///< stays whole, in memory beside the rank's part
    bool whole = false;        ///< no other rank has a part of it
    bool frozen = false;       ///< one of ArenaLayout::frozen_ranges, which follow the others
    Bytes kept_at;             ///< from the start of its arena to this rank's part
  };
  /// An Item is parameters that are gathered and freed together: an instance's bundle, the tied
  /// parameter by itself, or the parameters that a segment reads.
  struct Item {
    std::vector<std::size_t> groups;   ///< ascending
    Bytes bytes;                       ///< bytes of all groups, on every rank
    std::vector<std::size_t> uses;     ///< ascending
    std::size_t next = 0;              ///< the first use that is not over
    bool live = false, used = false;   ///< since it was gathered
    std::optional<BufferId> buffer;    ///< none where this rank owns everything
    std::vector<std::size_t> gathers;  ///< the calls that fill it
    std::vector<BufferId> copies;      ///< from the host, that these calls read
    std::size_t last_use = 0;
    /// By micro-batch: the item's first and last use.
    std::map<std::int64_t, std::pair<std::size_t, std::size_t>> spans;
    std::int64_t between = 0;  ///< micro-batches that have used the item and will use it again
  };
  /// A Use is calls between which nothing is gathered or freed.
  struct Use {
    std::vector<std::size_t> items;
    Phase phase = Phase::forward;
    std::int64_t micro_batch = 0;
    std::size_t calls = 1;
  };

  void add_groups();
  void add_frozen();
  bool is_own(std::size_t group) const;
  std::int64_t elements_of(std::size_t group) const;
  Bytes bytes_of_group(std::size_t group) const;
  void add_item(std::vector<std::size_t> groups);
  std::vector<std::size_t> groups_of(const ParameterUse& use) const;
  void add_uses(const std::vector<ParameterUse>& calls);
  void add_segments(const std::vector<ParameterUse>& calls);
  std::optional<Bytes> place_in(const std::vector<std::size_t>& groups, std::size_t group) const;
  Binding owned_binding(std::int64_t element, std::size_t item) const;
  std::size_t gather(std::size_t group, const Use& use, Binding into,
                     std::optional<std::int64_t> micro_batch, std::vector<BufferId>& copies);
  std::size_t gather_parts(std::size_t group, const Use& use, Binding into,
                           std::optional<std::int64_t> micro_batch, std::vector<BufferId>& copies);
  std::size_t copy_part(const Use& use, Binding from, Bytes bytes, Binding into,
                        std::optional<std::int64_t> micro_batch);
  std::size_t broadcast(std::size_t group, const Use& use, Binding into,
                        std::optional<std::int64_t> micro_batch);
  void gather_item(Item& item, const Use& use);
  void copy_out(const Item& item, const Use& use);
  void make_room(Bytes bytes);
  void release(Item& item);
  bool keeps(const Item& item) const;
  Bytes bytes_between(std::size_t first, std::size_t second) const;

  const Op* op_ = nullptr;  ///< the collective, unless this rank has whole parameters
  std::vector<Group> groups_;
  std::optional<std::size_t> tied_;    ///< the tied parameter's group
  std::vector<std::size_t> resident_;  ///< groups
  std::vector<Item> items_;            ///< by instance, then the tied parameter; or by segment
  std::vector<Use> uses_;
  std::vector<Bytes> used_before_;  ///< by use: gathered bytes that the uses before it read
  std::size_t now_ = 0;             ///< the use that comes next, or whose calls are being issued
  std::size_t calls_done_ = 0;      ///< calls of the use `now_` that are issued
  Bytes live_;
  std::vector<std::vector<std::size_t>> resident_gathers_;  ///< by instance
  std::vector<std::vector<BufferId>> resident_copies_;      ///< by instance, until its first call
  std::vector<BufferId> read_copies_;  ///< whose gathers the next use, or a call before it, awaits
  std::map<std::size_t, std::size_t> broadcast_;  ///< by group: the latest call
};

}  // namespace plimsoll
