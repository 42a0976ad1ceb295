// Least changes: finds changes of a request with which something fits where nothing does.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/unusual_choices.h"
#include "planner/explore/search_request.h"
#include "planner/refusal/leanest.h"

namespace plimsoll {

/// Returns the next number of devices to try after `low`, where nothing fits. It is twice as many
/// within a node, then whole nodes, twice as many each time. It is 0 beyond `most`.
std::int64_t more_devices(std::int64_t low, std::int64_t per_node, std::int64_t most);
/// Returns a number of devices in the middle between `low`, where nothing fits, and `high`, where
/// something does. Beyond one node it is of whole nodes. It is 0 where there is none.
std::int64_t devices_between(std::int64_t low, std::int64_t high, std::int64_t per_node);

/// The kinds of changes, in the order in which a practitioner tries them.
enum class ChangeKind : std::uint8_t {
  sharding,
  offload,
  recompute,
  packed,  ///< frozen weights in 4 bits
  more_devices,
  other
};

/// Returns the kind of a change that sets or frees these choices: the last that one of them has.
ChangeKind kind_of(const Fixed& change);

/// One change with which a strategy fits. The strategy was lowered, simulated and replayed.
struct FittingChange {
  ChangeKind kind = ChangeKind::other;
  std::string words;  ///< "on 8 devices (1 node)", "with --fix moment_type=bf16"
  Strategy strategy{};
  Bytes need{};  ///< the most bytes that it takes of a device
  Seconds step_time{};
  std::vector<Unusual> unusual{};  ///< what counts against it
  /// The change of a request, in one of these.
  Fixed fix{};          ///< held as well
  std::string freed{};  ///< key of a choice that is not held any more; empty: none
  std::optional<std::int64_t> devices{}, global_batch{};
  std::optional<FrozenWeights> frozen_weights{};
};
/// Returns the one that a practitioner tries first, the first of equals; null where there is none.
const FittingChange* first_of(std::span<const FittingChange> changes);

struct FoundChanges {
  std::vector<FittingChange> fitting;
  std::vector<std::string> notes;  ///< what was not tried, or not found
  bool proven = true;              ///< false: the search ended before it had looked at all changes
};

/// Returns changes of a request, each with a strategy that then fits:
///
///   - without one choice that `request` fixes;
///   - with half or all of the optimizer's states, or with all activations, in the host's memory,
///     where the framework can;
///   - with frozen weights in 4 bits, if the job has adapters;
///   - with the loss in chunks, or with gradients that backward frees, if the framework can;
///   - on more devices, by doubling, then narrowing;
///   - with memory for even routing of experts' rows;
///   - with narrower gradients and optimizer states that the framework has, the mildest that fit;
///   - with half, a quarter ... of the global batch, where `lasting_fits`.
///
/// Strategies have whole layers recomputed and the smallest micro-batch that fits, then twice that
/// as long as it is better, unless the request fixes these. Of two shares in the host's memory the
/// better plan is named, and plans without unusual choices come before others. Those that only
/// shard are tried first, then those without a context split. Once `passed` returns true, the last
/// note says which changes were not looked at.
FoundChanges least_changes(const SearchRequest& request, bool lasting_fits, const Passed& passed);

}  // namespace plimsoll
