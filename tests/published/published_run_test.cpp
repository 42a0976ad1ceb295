// Rows of published measurements: what is read, and what is refused where.
#include "published/published_run.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/published/published_rows.h"

namespace plimsoll {
namespace {

const std::string kRow = R"({
  "id": "a/1", "use": "public", "source": {"repo_or_doc": "arXiv 1", "path_or_issue": "Table 5"},
  "hardware": {"gpu": "A100-80GB", "gpu_mem_gb": 80, "gpus": 16, "gpus_per_node": 8,
               "interconnect": null},
  "model": {"name": "m", "hidden": 64, "layers": 4, "heads": 4, "kv_heads": null,
            "ffn_hidden": 256, "vocab": 100, "seq_len": 32, "params": 1e6},
  "parallel": {"tp": 2, "pp": 4, "dp": 2, "vpp": null, "zero_stage": 1, "sequence_parallel": false},
  "batch": {"micro": 1, "global": 8}, "precision": "fp16", "recompute": "full",
  "attention": "unfused", "measured": {"step_time_s": null, "peak_mem_gb": 12.5,
  "peak_mem_kind": "device"}, "derived_step_time_s": 2.5, "notes": "NOTES", "oom": false,
  "needs": ["fp8"]})";

std::vector<PublishedRun> parse(const std::string& row) {
  return {run_of(parse_json(row, "row.json"))};
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST(PublishedRun, MemoryIsInTheUnitThatItsKindAdds) {
  const auto gibibytes = [](const std::string& kind) {
    const std::string row =
        replaced(kRow, "\"peak_mem_kind\": \"device\"", "\"peak_mem_kind\": \"" + kind + "\"");
    return double(parse(row).at(0).memory_device.value().count()) / (1 << 30);
  };
  EXPECT_DOUBLE_EQ(gibibytes("device (GiB)"), 12.5);
  EXPECT_DOUBLE_EQ(gibibytes("device (MiB/1024)"), 12.5);
  EXPECT_NEAR(gibibytes("device"), 12.5e9 / (1 << 30), 1e-6);
}

TEST(PublishedRun, IsReadAsStated) {
  const PublishedRun run = parse(kRow).at(0);
  EXPECT_EQ(run.id, "a/1");
  EXPECT_EQ(run.source, "arXiv 1, Table 5");
  EXPECT_EQ(run.gpus, 16);
  EXPECT_EQ(run.kv_heads, std::nullopt);
  EXPECT_EQ(run.pp, 4);
  EXPECT_EQ(run.cp, 1);
  EXPECT_EQ(run.virtual_stages, std::nullopt);
  EXPECT_EQ(run.recompute, StatedRecompute::full);
  EXPECT_EQ(run.step_time, Seconds(2.5));
  EXPECT_TRUE(run.step_time_derived);
  EXPECT_EQ(run.memory_device, Bytes(12'500'000'000));
  EXPECT_EQ(run.memory_allocated, std::nullopt);
  EXPECT_EQ(run.needs, std::vector<std::string>{"fp8"});
}

TEST(PublishedRun, StatesGradientsThatBackwardFrees) {
  EXPECT_FALSE(parse(kRow).at(0).chosen.gradients.release);
  const std::string with = replaced(
      kRow, "\"oom\"",
      "\"statements\": [], \"stated\": {\"release_gradients\": true, \"loss_chunks\": 4}, \"oom\"");
  const Strategy chosen = parse(with).at(0).chosen;
  EXPECT_TRUE(chosen.gradients.release);
  EXPECT_EQ(chosen.loss_chunks, 4);
  EXPECT_THROW(parse(replaced(with, "true", "2")), InputError);
}

TEST(PublishedRun, HasTheLayersOfItsStages) {
  EXPECT_TRUE(parse(kRow).at(0).layers_per_stage.empty());
  const std::string with = replaced(kRow, "\"oom\"", "\"layers_per_stage\": [1, 3], \"oom\"");
  EXPECT_EQ(parse(with).at(0).layers_per_stage, (std::vector<std::int64_t>{1, 3}));
  EXPECT_THROW(parse(replaced(with, "1, 3", "-1, 3")), InputError);
  EXPECT_THROW(parse(replaced(with, "[1, 3]", "\"even\"")), InputError);
}

TEST(PublishedRun, WhatWasNotPrintedWithTheMeasurementIsUnknown) {
  const std::string notes =
      "precision, recompute and vocabulary taken from a configuration, not printed with the "
      "measurement";
  EXPECT_EQ(parse(replaced(kRow, "NOTES", notes)).at(0).recompute, StatedRecompute::unknown);
}

TEST(PublishedRun, GpusFollowFromTheDegreesWhereNotStated) {
  EXPECT_EQ(parse(replaced(kRow, "\"gpus\": 16", "\"gpus\": null")).at(0).gpus, 16);
}

TEST(PublishedRun, TorchtitanPrintsGibibytes) {
  const std::string row =
      replaced(replaced(kRow, "\"peak_mem_kind\": \"device\"", "\"peak_mem_kind\": \"reserved\""),
               "\"oom\": false", "\"oom\": false, \"framework\": \"torchtitan\"");
  EXPECT_EQ(parse(row).at(0).memory_reserved, Bytes(13'421'772'800));
}

TEST(PublishedRun, ATokenizerWithoutTextSaysItsVocabulary) {
  const std::string fields =
      "\"oom\": false, \"sharding\": \"HSDP\", \"seq_fields\": {\"vocab_size\": 50257, "
      "\"tokenizer\": \"NullTokenizer\"}";
  const std::string row = replaced(kRow, "\"oom\": false", fields);
  const PublishedRun stated = parse(row).at(0);
  EXPECT_TRUE(stated.shards_within_node);
  std::string without = row;
  const std::size_t at = without.find("\"vocab\": ");
  ASSERT_NE(at, std::string::npos);
  without.replace(at, without.find_first_of(",}", at) - at, "\"vocab\": null");
  EXPECT_EQ(parse(without).at(0).vocab, 50258);
  EXPECT_NE(stated.vocab, 50258);
}

TEST(PublishedRun, HeadingsOfBigScienceSayWhatLiesWhere) {
  const auto of = [](const std::string& section, const std::string& columns) {
    const std::string row =
        replaced(kRow, "\"oom\": false", "\"oom\": false, \"extra\": " + columns);
    std::string text = row;
    const std::size_t place = text.find("\"path_or_issue\": \"") + 18;
    text.insert(place, "gpt2.md line 1 (section '" + section + "'), ");
    text = replaced(text, "arXiv 1", "github:bigscience-workshop/bigscience@9e64edec");
    const std::size_t stage = text.find("\"zero_stage\": ");
    if (stage != std::string::npos)
      text.replace(stage, text.find_first_of(",}", stage) - stage, "\"zero_stage\": null");
    return parse(text).at(0);
  };
  const auto checkpoints = [](const PublishedRun& run) {
    return run.framework->memory.checkpoints;
  };
  const PublishedRun own = of("Megatron + Deepspeed ZeRO (old branch)", "{}");
  EXPECT_EQ(own.zero_stage, 3);
  EXPECT_EQ(checkpoints(own), CheckpointMemory::on_host);
  EXPECT_EQ(own.chosen.optimizer.offload_percent, 0);
  EXPECT_TRUE(own.framework->host.waits.for_gathers);
  EXPECT_EQ(checkpoints(of("Megatron + Deepspeed ZeRO", "{\"PA_CPU\": \"N\"}")),
            CheckpointMemory::split);
  const PublishedRun all = of("HF + Deepspeed Zero 3 + Full Offload", "{}");
  EXPECT_EQ(all.zero_stage, 3);
  EXPECT_EQ(all.chosen.optimizer.offload_percent, 100);
  EXPECT_TRUE(all.chosen.gathers.offload);
  EXPECT_EQ(checkpoints(all), CheckpointMemory::on_device);
  const PublishedRun half =
      of("HF + Deepspeed Zero 3 + Full Offload", "{\"Opt Offl\": \"Y\", \"Par Offl\": \"N\"}");
  EXPECT_EQ(half.chosen.optimizer.offload_percent, 100);
  EXPECT_FALSE(half.chosen.gathers.offload);
  EXPECT_EQ(half.framework->name, "deepspeed");
  const PublishedRun other = of("Megatron + Deepspeed 3D", "{}");
  EXPECT_EQ(other.zero_stage, std::nullopt);
  EXPECT_FALSE(other.framework->host.waits.for_gathers);
  EXPECT_EQ(checkpoints(other), CheckpointMemory::on_device);
}

TEST(PublishedRun, BadRowsAreRefusedWithTheirPlace) {
  const auto refused = [](const std::string& text, const std::string& place) {
    try {
      parse_published_runs(text, "cases.json");
      ADD_FAILURE() << "accepted: " << text.substr(0, 60);
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(place), std::string::npos) << error.what();
    }
  };
  refused("{}", "array");
  refused("[1]", "/0");
  refused("[" + kRow + "]", "/0/statements");  // a raw row
  refused("[" + kRow + "]", "lab/state");
  const std::string row = replaced(kRow, "\"oom\"", "\"statements\": [], \"oom\"");
  refused("[" + replaced(row, "[]", "true") + "]", "/0/statements");
  EXPECT_EQ(parse_published_runs("[" + row + "]", "cases.json").at(0).id, "a/1");
  refused("[" + replaced(row, "\"tp\": 2", "\"tp\": -2") + "]", "/0/parallel/tp");
  refused("[" + replaced(row, "\"id\": \"a/1\",", "") + "]", "/0");
  refused("[" + replaced(row, "\"gpus\": 16", "\"gpus\": 1.5") + "]", "/0/hardware/gpus");
  refused("[" + replaced(row, "2.5, \"notes\"", "\"soon\", \"notes\"") + "]",
          "/0/derived_step_time_s");
}

}  // namespace
}  // namespace plimsoll
