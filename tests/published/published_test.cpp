// Published step times of Megatron-LM on A100 servers against predictions with their own
// strategies. Nothing is fitted on these rows (docs/results/kernels.md says on what).
//
// Assumed where the source does not say:
// - micro-batch: the fastest of 1, 2, 4, 8, 16 by prediction that fits the device, as its authors
//   chose it by experiment;
// - dropout: 0.1, the default of --hidden-dropout and --attention-dropout in Megatron-LM's
//   arguments.py, which the published scripts leave alone;
// - recompute: full, as printed FLOP rates count recomputed operations and come out right so.
// Known to be missing: interleaved stages, sequence parallelism.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/json.h"
#include "predict/evaluate.h"

namespace plimsoll {
namespace {

struct Row {
  Job job;
  Strategy strategy;
  std::optional<std::int64_t> micro_batch;
  std::string cluster, label;
  Seconds measured;
  bool interleaved = false;
};

Row row_from(JsonObject& object) {
  Row row;
  const auto size = [&](const char* key) { return object.integer(key, 1, 1 << 20); };
  row.job.name = object.text("name");
  row.job.layers = size("layers");
  row.job.hidden = size("hidden");
  row.job.heads = row.job.kv_heads = size("heads");
  row.job.ffn_hidden = 4 * row.job.hidden;
  row.job.vocab = 51200;
  row.job.sequence = size("sequence");
  row.job.global_batch = size("global_batch");
  row.job.dropout = 0.1;
  row.job.precision = DType::bf16;  // stands for fp16, which computes at the same rate here
  check_job(row.job, row.job.name);
  row.strategy.mp = size("mp");
  row.strategy.pp = size("pp");
  row.strategy.dp = size("dp");
  row.strategy.recompute =
      object.text("recompute") == "full" ? Recompute::full : Recompute::selective;
  if (object.has("micro_batch")) row.micro_batch = size("micro_batch");
  row.interleaved = object.has("virtual_stages") && size("virtual_stages") > 1;
  object.boolean("sequence_parallel");
  row.cluster = fmt::format("dgx-a100-{}gb", size("gpu_memory_gb"));
  row.measured = Seconds(object.number("step_time_s", 1e-3, 1e6));
  const std::string document = object.text("document"), where = object.text("where");
  EXPECT_FALSE(document.empty() || where.empty());
  row.label = fmt::format("{} {}", row.job.name, object.text("date"));
  object.text("printed");
  object.finish();
  return row;
}

std::vector<Row> rows() {
  const Json file = read_json(PLIMSOLL_SOURCE_DIR "/tests/published/published_a100.json");
  JsonObject whole(file, "published_a100.json");
  whole.text("note");
  std::vector<Row> result;
  for (JsonObject& object : whole.objects("rows")) result.push_back(row_from(object));
  whole.finish();
  return result;
}

struct Predicted {
  Seconds time;
  std::int64_t micro_batch = 0;
};

Predicted predict(const Row& row) {
  // Selective recompute and sequence parallelism came with the Megatron-LM of 2022.
  const Framework framework = framework_by_name(
      row.strategy.recompute == Recompute::selective ? "megatron-lm-2022" : "megatron-lm-2021");
  const Cluster cluster = read_cluster(
      fmt::format("{}/models/presets/clusters/{}.json", PLIMSOLL_SOURCE_DIR, row.cluster));
  const std::int64_t devices = grid_of(row.strategy).world_size();
  const Target target(row.job, CostModel(cluster, std::nullopt, framework), devices);
  std::vector<std::int64_t> micro_batches = {1, 2, 4, 8, 16};
  if (row.micro_batch) micro_batches = {*row.micro_batch};
  Predicted best;
  for (const std::int64_t micro_batch : micro_batches) {
    Strategy strategy = row.strategy;
    strategy.micro_batch = micro_batch;
    if (!legal(row.job, strategy, devices)) continue;
    const Footprint footprint = lay_out(target, strategy, Proof::structure);
    if (!row.micro_batch && !fits_devices(target, strategy, footprint.stages)) continue;
    const Seconds time =
        predict(target, strategy, footprint, Folding::folded, Detail::none).prediction.step_time;
    if (best.micro_batch == 0 || time < best.time) best = {time, micro_batch};
  }
  EXPECT_NE(best.micro_batch, 0) << row.label;
  return best;
}

TEST(Published, StepTimesOfMegatronOnA100) {
  double sum = 0;
  const std::vector<Row> all = rows();
  for (const Row& row : all) {
    const Predicted predicted = predict(row);
    const double error = predicted.time / row.measured - 1;
    std::printf(
        "%-24s mp %ld pp %2ld dp %3ld micro-batch %2ld%s: %7.3f s, published %7.3f s, %+5.1f "
        "%%%s\n",
        row.label.c_str(), long(row.strategy.mp), long(row.strategy.pp), long(row.strategy.dp),
        long(predicted.micro_batch), row.micro_batch ? "" : " (assumed)", predicted.time.value(),
        row.measured.value(), 100 * error,
        row.interleaved ? ", interleaved in the publication" : "");
    EXPECT_LE(std::abs(error), 0.20) << row.label;
    sum += std::abs(error);
  }
  std::printf("mean of %zu: %.1f %%\n", all.size(), 100 * sum / double(all.size()));
  EXPECT_EQ(all.size(), 18u);
  EXPECT_LE(sum / double(all.size()), 0.10);
}

}  // namespace
}  // namespace plimsoll
