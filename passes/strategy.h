// Strategy: every choice about how a job is split and scheduled. Passes make no choices of their
// own; the search makes all of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "graph/grid.h"
#include "models/framework.h"
#include "models/job.h"

namespace plimsoll {

enum class Schedule : std::uint8_t { one_f_one_b };
/// What backward repeats instead of keeping: nothing; the attention core of each layer (Korthikanti
/// et al. 2022, arXiv 2205.05198); each layer.
enum class Recompute : std::uint8_t { none, selective, full };

struct Strategy {
  std::int64_t mp = 1, pp = 1, dp = 1;
  std::int64_t sharding_degree = 1;
  std::int64_t sharding_stage = 0;  ///< 1 exactly when sharding_degree > 1
  std::int64_t micro_batch = 1;     ///< sequences
  Schedule schedule = Schedule::one_f_one_b;
  Recompute recompute = Recompute::none;
  Bytes grad_bucket_bytes{std::int64_t{4} << 20};
  std::int64_t send_slots = 2;
  /// Layers per stage, e.g. {3, 3, 2}; empty = as even as possible, earlier stages take the rest.
  std::vector<std::int64_t> layer_split;
  bool operator==(const Strategy&) const = default;
};

std::string_view to_text(Recompute recompute);

Grid grid_of(const Strategy& strategy);
/// micro-batches per step; legal strategies divide exactly.
std::int64_t micro_batches(const Job& job, const Strategy& strategy);
/// Layers on each stage, resolved.
std::vector<std::int64_t> layers_per_stage(const Job& job, const Strategy& strategy);

/// The rules a strategy must keep for this job on `devices` ranks, each with its own reason:
/// product of degrees == devices; heads and ffn_hidden divisible by mp (the vocabulary is padded);
/// pp at most the layers; layer_split one count >= 1 per stage, summing to the layers; sharding
/// stage 1 exactly when its degree is above 1; global batch divisible by micro_batch x dp x
/// sharding_degree; send_slots >= 1; grad_bucket_bytes >= 4 KiB.
Verdict legal(const Job& job, const Strategy& strategy, std::int64_t devices);
/// The rules a framework adds: sharding_degree above 1 only where it has a distributed optimizer;
/// selective recompute only where it has it, and keeps scores that could be dropped.
Verdict legal(const Framework& framework, const Strategy& strategy);

/// Device memory of a rank that no tensor of its Program shows: the framework's context, and one
/// communicator for each set of ranks that the last stage, which has the most, communicates over:
/// mp; the pipeline's transfers; ranks that read different sequences, and where they are both
/// shards and replicas, each of the two; mp x pp x shards for the gradient norm; the pipeline's two
/// ends for tied embeddings. Charged to every rank.
Bytes memory_outside_program(const Job& job, const Strategy& strategy, const Framework& framework);

/// Sets one field from text, as `--fix KEY=VALUE` and "mp=2,pp=2" do: integers, schedule "1f1b",
/// recompute "none", "selective" or "full", grad_bucket_bytes "4 MiB" or 4194304, layer_split
/// "3+3+2" or "even". Throws UsageError for an unknown key (naming the nearest) or a bad value.
void set_field(Strategy& strategy, std::string_view key, std::string_view value);
/// "mp=2,pp=2" or the path of a JSON file. Here and in JSON, keys left out keep their defaults, and
/// sharding_stage follows sharding_degree. Throws UsageError (text) or InputError (file).
Strategy parse_strategy(std::string_view text_or_file);
Strategy strategy_from_json_text(std::string_view json, const std::string& file);
std::string strategy_text(const Strategy& strategy);  ///< canonical JSON text
std::string strategy_summary(
    const Strategy& strategy);  ///< "mp=2 pp=1 dp=1 ...", one line, all keys

}  // namespace plimsoll
