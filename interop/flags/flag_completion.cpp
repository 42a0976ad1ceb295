// Completes fields with what follows from the number of devices and of micro-batches.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>

#include "interop/flags/flag_quantities.h"
#include "interop/flags/flag_values.h"

namespace plimsoll {
namespace {

using Count = std::optional<std::int64_t>;

constexpr std::int64_t kMostMicroBatches = std::int64_t{1} << 24;

/// Returns the number of micro-batches that flags state.
Count stated_micro_batches(const FlagFields& fields) {
  return fields.contains("micro_batches") ? count_of(fields, "micro_batches") : std::nullopt;
}

/// Shards of one rank are none, and nothing is gathered unless from the host's memory.
void drop_sharding(FlagFields& fields) {
  fields["sharding_stage"] = "0";
  for (const char* key : {"gather", "segment_broadcast_bytes", "prefetch_depth", "max_live_bytes",
                          "reuse_distance_bytes", "persistence_threshold", "keep_gathered"})
    fields.erase(key);
}

/// Layers of the first and the last stage; those between share the rest.
void split_by_ends(FlagFields& fields) {
  const auto first = fields.find("first_stage_layers"), last = fields.find("last_stage_layers");
  if (first == fields.end() && last == fields.end()) return;
  const std::int64_t layers = count_of(fields, "layers").value_or(0);
  const std::int64_t stages = count_of(fields, "pp").value_or(1);
  if (stages > layers) throw std::invalid_argument("there are more stages than layers");
  std::int64_t left = layers, between = stages;
  std::vector<std::int64_t> split(static_cast<std::size_t>(stages));
  for (const auto& [end, at] :
       {std::pair(first, std::size_t{0}), std::pair(last, split.size() - 1)}) {
    if (end == fields.end()) continue;
    split[at] = integer_from(end->second).value_or(0);
    left -= split[at];
    --between;
  }
  if (between < 1 || left < between || left % between != 0)
    throw std::invalid_argument("the stages between the first and the last have no equal layers");
  for (std::size_t stage = 0; stage < split.size(); ++stage) {
    const bool stated = (stage == 0 && first != fields.end()) ||
                        (stage + 1 == split.size() && last != fields.end());
    if (!stated) split[stage] = left / between;
  }
  fields["layer_split"] = fmt::format("{}", fmt::join(split, "+"));
}

/// Sets "devices" if they follow from the degrees, the batch and the micro-batches.
void complete_devices(FlagFields& fields) {
  if (fields.contains("devices") || fields.contains("nodes")) return;
  const Count each = count_of(fields, "micro_batch"), count = stated_micro_batches(fields),
              all = count_of(fields, "global_batch");
  if (!each || !count || !all || *each > kMostMicroBatches || *count > kMostMicroBatches) return;
  if (*all % (*each * *count) != 0) return;
  std::int64_t devices = *all / (*each * *count);
  for (const std::string_view key : {"mp", "pp", "cp"}) {
    const std::int64_t degree = count_of(fields, key).value_or(1);
    if (devices > kMostMicroBatches || degree > kMostMicroBatches)
      throw std::invalid_argument("at most 2^22 devices are supported");
    devices *= degree;
  }
  fields["devices"] = decimal(devices);
}

/// Sets micro_batch or global_batch if flags state "micro_batches", with `width` data-parallel
/// ranks.
void complete_batch(FlagFields& fields, std::int64_t width) {
  const Count count = stated_micro_batches(fields);
  if (!count) return;
  if (*count > kMostMicroBatches)
    throw std::invalid_argument("at most 2^24 micro-batches are supported");
  const std::int64_t parts = *count * width;
  const Count each = count_of(fields, "micro_batch"), all = count_of(fields, "global_batch");
  if (!each && all) {
    if (*all % parts != 0)
      throw std::invalid_argument(fmt::format(
          "{} sequences do not divide into {} micro-batches on each of {} data-parallel ranks",
          *all, *count, width));
    fields["micro_batch"] = decimal(*all / parts);
  } else if (each && *each <= kMostMicroBatches && (!all || *all != *each * parts)) {
    if (all)
      throw std::invalid_argument(fmt::format(
          "{} sequences are not {} micro-batches of {} on each of {} data-parallel ranks", *all,
          *count, *each, width));
    fields["global_batch"] = decimal(*each * parts);
  }
}

/// Sets the multiple that gives the padded vocabulary that flags state.
void complete_padding(FlagFields& fields) {
  const auto stated = fields.find("padded_vocabulary");
  if (stated == fields.end()) return;
  FlagFields others = fields;
  others.erase("padded_vocabulary");
  const std::int64_t ranks = count_of(fields, "mp").value_or(1);
  const Count rows = integer_from(stated->second);
  if (!rows || *rows % ranks != 0 || *rows < count_of(fields, "vocab").value_or(1))
    throw std::invalid_argument(
        fmt::format("the padded vocabulary of {} is no multiple of {} that holds the vocabulary",
                    stated->second, ranks));
  if (padded_vocabulary(others) != stated->second)
    fields["framework.vocabulary_multiple"] = decimal(multiple_for(fields, *rows, ranks));
}

}  // namespace

void complete_fields(FlagFields& fields) {
  split_by_ends(fields);
  complete_devices(fields);
  const auto devices = count_of(fields, "devices");
  if (!devices) return;
  if (*devices > kMostRanks)
    throw std::invalid_argument(
        fmt::format("found {} devices; at most 2^22 are supported", *devices));
  const auto width = data_parallel(fields);
  if (!width) {
    throw std::invalid_argument(
        fmt::format("tensor {} x pipeline {} x context {} ranks do not divide the {} devices",
                    count_of(fields, "mp").value_or(1), count_of(fields, "pp").value_or(1),
                    count_of(fields, "cp").value_or(1), *devices));
  }
  const auto stated_shards = integer_from(value_of(fields, "sharding_degree").value_or("x"));
  const std::int64_t stated_copies = count_of(fields, "dp").value_or(1);
  if (stated_shards && *stated_shards * stated_copies != *width) {
    throw std::invalid_argument(
        fmt::format("{} sets of {} shards are not the {} data-parallel ranks of {} devices",
                    stated_copies, *stated_shards, *width, *devices));
  }
  if (!differs(fields, "sharding_stage", "0")) {
    fields["dp"] = decimal(*width);
    fields["sharding_degree"] = "1";
  } else {
    const std::int64_t copies = count_of(fields, "dp").value_or(1);
    if (*width % copies != 0)
      throw std::invalid_argument(
          fmt::format("{} sets of shards do not divide the {} "
                      "data-parallel ranks",
                      copies, *width));
    fields["dp"] = decimal(copies);
    fields["sharding_degree"] = decimal(*width / copies);
    const bool alone = *width == copies && count_of(fields, "cp").value_or(1) == 1;
    if (alone && !differs(fields, "offload_parameters", "false")) drop_sharding(fields);
  }
  complete_batch(fields, *width);
  complete_padding(fields);
}

}  // namespace plimsoll
