// Memory that PyTorch's allocator reserved in runs of torchtitan, as its logs print it (GiB).
#include <gtest/gtest.h>

#include "published/validate.h"
#include "tests/published/published_rows.h"

namespace plimsoll {
namespace {

struct TitanRun {
  const char *document, *place;
  const char* gpu;
  std::int64_t gpus, sequence, micro;
  const char* recompute;
  bool compile;
  double gibibytes;
};

/// The predicted memory of Llama 3 8B, sharded over all GPUs, in GiB.
double reserved_gibibytes(const TitanRun& run) {
  Json row = plain_row();
  row["hardware"]["gpu"] = run.gpu;
  row["hardware"]["gpus"] = run.gpus;
  row["model"] = {{"name", "llama3-8b"}, {"hidden", 4096},         {"layers", 32},
                  {"heads", 32},         {"kv_heads", 8},          {"ffn_hidden", 14336},
                  {"vocab", 128256},     {"seq_len", run.sequence}};
  row["parallel"] = {{"tp", 1}, {"pp", 1}, {"dp", run.gpus}, {"zero_stage", 3}};
  row["batch"] = {{"micro", run.micro}, {"global", run.micro * run.gpus}};
  row["precision"] = "bf16";
  row["recompute"] = run.recompute;
  row["attention"] = "flash";
  row["framework"] = "torchtitan";
  if (std::string_view(run.place).starts_with("torchao/prototype"))
    row["notes"] = "AC every 2nd layer";
  row["compile"] = run.compile;
  set_source(row, run.document, run.place);
  const PublishedTarget target = target_of(row);
  EXPECT_EQ(target.missing, "");
  const Bytes bytes = predict_published(target).memory[std::size_t(MemoryKind::reserved)];
  return double(bytes.count()) / (1 << 30);
}

constexpr const char* kAo = "github:pytorch/ao@36027d82d";
constexpr const char* kNoCompile = "torchao/prototype/float8nocompile/README.md";
constexpr const char* kTraining = "docs/source/workflows/training.md";

// The scattered gradient comes from the pool of the compute stream, which has room after the loss.
TEST(ReservedBytes, OfWholeLayersRecomputedAreThoseOfTorchtitan) {
  for (const TitanRun& run :
       {TitanRun{kAo, kNoCompile, "H100-80GB SXM", 8, 4096, 1, "full", false, 28.07},
        TitanRun{kAo, kNoCompile, "H100-80GB SXM", 8, 4096, 1, "full", true, 28.03}}) {
    EXPECT_NEAR(reserved_gibibytes(run) / run.gibibytes, 1, 0.02) << run.compile;
  }
}

// Norms, SwiGLU and repeated keys and values keep more if no compiler fuses them.
TEST(ReservedBytes, OfKeptLayersAreThoseOfTorchtitan) {
  for (const TitanRun& run :
       {TitanRun{kAo, kNoCompile, "H100-80GB SXM", 8, 4096, 1, "none", false, 53.12},
        TitanRun{kAo, kNoCompile, "H100-80GB SXM", 8, 4096, 1, "none", true, 46.64},
        TitanRun{kAo, kNoCompile, "H100-80GB SXM", 8, 4096, 1, "selective", false, 40.6}}) {
    EXPECT_NEAR(reserved_gibibytes(run) / run.gibibytes, 1, 0.03) << run.recompute << run.compile;
  }
}

// The loss is compiled since April 2025, so that no logits are in f32.
TEST(ReservedBytes, OfACompiledLossAreThoseOfTorchtitan) {
  const TitanRun before{kAo,
                        "docs/source/workflows/training.md NVIDIA H100",
                        "H100-80GB SXM",
                        8,
                        8192,
                        1,
                        "selective",
                        true,
                        47.65};
  const TitanRun since{kAo, kTraining, "H100-80GB SXM", 8, 8192, 1, "selective", true, 39.09};
  EXPECT_NEAR(reserved_gibibytes(before) / before.gibibytes, 1, 0.03);
  EXPECT_NEAR(reserved_gibibytes(since) / since.gibibytes, 1, 0.03) << "measured on MI300X";
}

}  // namespace
}  // namespace plimsoll
