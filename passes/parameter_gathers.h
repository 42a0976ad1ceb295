// Sharding stage 3: parameters are kept as equal parts of elements and gathered before they are
// used (ZeRO, Rajbhandari et al. 2019, arXiv 1910.02054, P_os+g+p; one coalesced gather per layer
// and prefetch as PyTorch FSDP and DeepSpeed PRs 1188 and 1453).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "passes/arena_layout.h"
#include "passes/pipeline.h"
#include "passes/program_builder.h"
#include "passes/step_collectives.h"

namespace plimsoll {

/// One call that reads parameters which have to be gathered.
struct ParameterUse {
  std::size_t instance = 0;
  bool own = false, tied = false;  ///< the instance's bundle; the tied parameter of another
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
class ParameterGathers {
 public:
  ParameterGathers(const Graph& graph, const PassContext& context, const ArenaLayout& layout,
                   const StageArenas& arenas, ProgramBuilder& build);

  bool active() const { return op_ != nullptr; }

  /// What stays whole is gathered once per step, when it begins. `uses`: those of the step that
  /// read gathered parameters, in issue order.
  void begin_step(std::vector<ParameterUse> uses);
  /// Before the call of the next use: what it waits for.
  std::vector<Wait> before_use();
  /// What a call of this instance waits for that reads parameters which stay whole.
  std::vector<Wait> resident_waits(std::size_t instance, bool tied) const;
  Binding binding(SlotKind kind, std::size_t instance) const;
  /// The call of that use is issued.
  void after_use(std::size_t call);

 private:
  /// Parameters that come and go together: an instance's bundle, or the tied parameter by itself.
  struct Item {
    std::int64_t base = 0, elements = 0;  ///< in the arenas
    std::vector<std::size_t> uses;        ///< ascending
    std::size_t next = 0;                 ///< the first of them that is not over
    bool live = false, used = false;      ///< since it was gathered
    BufferId buffer;
    std::vector<std::size_t> gathers;  ///< the calls that fill it
    std::size_t last_use = 0;
    /// By micro-batch: its first and its last use.
    std::map<std::int64_t, std::pair<std::size_t, std::size_t>> spans;
    std::int64_t between = 0;  ///< micro-batches that have used it and will again
  };

  std::vector<std::size_t> items_of(const ParameterUse& use) const;
  Bytes bytes_of_item(const Item& item) const;
  std::size_t gather(std::size_t bucket, Phase phase, std::optional<std::int64_t> micro_batch,
                     BufferId into, std::int64_t base);
  void gather_item(Item& item, const ParameterUse& use);
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
  std::vector<std::int64_t> kept_at_;  ///< by bucket: elements into this rank's part
  std::vector<Item> items_;            ///< by instance, then the tied parameter
  std::vector<ParameterUse> uses_;
  std::vector<Bytes> used_before_;  ///< by use: gathered bytes that the uses before it read
  std::size_t now_ = 0;             ///< the use that comes next
  Bytes live_;
  std::vector<std::optional<std::size_t>> resident_gather_;  ///< by instance
};

}  // namespace plimsoll
