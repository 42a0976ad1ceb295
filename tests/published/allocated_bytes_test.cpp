// Bytes that PyTorch's allocator handed out at most in runs of Megatron-LM with Transformer Engine,
// printed to the byte by github.com/MooreThreads/SimuMax@4dcaae5,
// docs/b200/b200_release_v1.2_summary.json (max_allocated_mb of the rank that has most).
#include <gtest/gtest.h>

#include "published/validate.h"
#include "tests/published/published_rows.h"

namespace plimsoll {
namespace {

struct Measured {
  const char* place;
  std::int64_t layers, hidden, heads, ffn_hidden, tp, pp, dp;
  double mebibytes;
};

Bytes allocated(const Measured& run) {
  Json row = plain_row();
  row["id"] = "test/1";
  row["hardware"]["gpu"] = "B200-SXM";
  row["hardware"]["gpus"] = 8;
  row["model"]["name"] = "llama3";
  row["model"]["layers"] = run.layers;
  row["model"]["hidden"] = run.hidden;
  row["model"]["heads"] = run.heads;
  row["model"]["kv_heads"] = run.hidden == 8192 ? 8 : 16;
  row["model"]["ffn_hidden"] = run.ffn_hidden;
  row["model"]["vocab"] = 128256;  // and an end of document
  row["model"]["seq_len"] = 4096;
  row["parallel"]["tp"] = run.tp;
  row["parallel"]["pp"] = run.pp;
  row["parallel"]["dp"] = run.dp;
  row["parallel"]["zero_stage"] = 1;
  row["parallel"]["sequence_parallel"] = run.tp > 1;
  row["batch"] = {{"micro", 1}, {"grad_accum", 4}};
  row["precision"] = "bf16";
  row["recompute"] = "none";
  row["attention"] = "flash";
  row["framework"] = "megatron-core";
  set_source(row, "github:MooreThreads/SimuMax@4dcaae5", "b200_release_v1.2_summary.json");
  const PublishedTarget target = target_of(row);
  EXPECT_EQ(target.missing, "");
  return predict_published(target).memory[std::size_t(MemoryKind::allocated)];
}

TEST(AllocatedBytes, AreThoseOfMegatronWithTransformerEngine) {
  constexpr double kMebibyte = 1 << 20;
  for (const Measured& run : {Measured{"70B, tp 2", 12, 8192, 64, 28672, 2, 1, 4, 62136.40},
                              Measured{"70B, tp 4", 12, 8192, 64, 28672, 4, 1, 2, 40009.77},
                              Measured{"70B, tp 8", 12, 8192, 64, 28672, 8, 1, 1, 28965.36},
                              Measured{"405B, pp 2", 4, 16384, 128, 53248, 1, 2, 4, 89173.40},
                              Measured{"405B, tp 2", 4, 16384, 128, 53248, 2, 1, 4, 83549.85},
                              Measured{"405B, tp 8", 4, 16384, 128, 53248, 8, 1, 1, 39499.85}}) {
    const double mebibytes = double(allocated(run).count()) / kMebibyte;
    EXPECT_NEAR(mebibytes, run.mebibytes, 3) << run.place;
  }
}

/// Two activations that were sent on are kept until their slots are used again, where Megatron-LM
/// frees them (deallocate_pipeline_outputs): 128 MiB of the first stage.
TEST(AllocatedBytes, OfAFirstStageHaveWhatItSentOn) {
  const double mebibytes =
      double(allocated({"70B, pp 2", 12, 8192, 64, 28672, 1, 2, 4, 0}).count()) / (1 << 20);
  EXPECT_NEAR(mebibytes - 128, 68149.20, 15);
}

}  // namespace
}  // namespace plimsoll
