// Files of settings: what they leave out, and damaged files.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "interop/imports/imported.h"
#include "tests/interop/changed_text.h"
#include "tests/states.h"

namespace plimsoll {
namespace {

/// Arguments of PaddleNLP's trainer.
constexpr const char* kPaddle = R"({"tensor_parallel_degree": 2, "pipeline_parallel_degree": 2,
  "virtual_pp_degree": 2, "sharding": "stage1", "bf16": true, "fp16_opt_level": "O2",
  "per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "recompute": true})";
constexpr const char* kDeepSpeed = R"({"train_batch_size": 64, "gradient_accumulation_steps": 2,
  "bf16": {"enabled": true}, "zero_optimization": {"stage": 3, "overlap_comm": true,
  "stage3_prefetch_bucket_size": 5e7}, "gradient_clipping": 1.0})";

TEST(SettingsFile, ArgumentsOfPaddleMayBeLeftOut) {
  ImportGiven given;
  given.job = read_job("llama3-8b");
  given.job->global_batch = 32;
  given.devices = 8;
  const std::string text = R"({"tensor_parallel_degree": 2, "pipeline_parallel_degree": 1,
    "sharding": "stage1", "bf16": true, "fp16_opt_level": "O2",
    "per_device_train_batch_size": 2, "gradient_accumulation_steps": 4})";
  const Imported imported = import_text(text, "args.json", given);
  EXPECT_EQ(imported.strategy->mp, 2);
  EXPECT_EQ(imported.strategy->sharding_degree, 4);
  EXPECT_EQ(imported.strategy->micro_batch, 2);
  EXPECT_EQ(imported.job->sequence, given.job->sequence);
  EXPECT_TRUE(bool(legal(*imported.framework, *imported.job, *imported.strategy)));
  try {
    import_text(with(text, ", \"fp16_opt_level\": \"O2\"", ""), "args.json", given);
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_TRUE(states(error.what(), {"args.json", "fp16_opt_level O2"}));
  }
}

constexpr const char* kValuePieces[] = {
    "null",  "true", "-1",      "0",       "1e300", "99999999999999999999",
    "[]",    "{}",   "\"\"",    ",",       "1,1,1", "{\"a\": 1}",
    "\"x\"", ":",    "4194304", "[1, [2]]"};

/// Gives some key another value.
std::string with_another_value(Random& random, std::string text) {
  const std::size_t colon = text.find(": ", random() % text.size());
  if (colon == text.npos) return text;
  const std::size_t end = text.find_first_of("\n}", colon);
  const std::size_t comma = std::min(text.find(", \"", colon), end);
  if (comma == text.npos) return text;
  return text.replace(colon + 2, comma - colon - 2,
                      kValuePieces[random() % std::size(kValuePieces)]);
}

TEST(SettingsFile, DamagedFilesAreReadOrRefused) {
  Random random(22);
  int read_anyway = 0;
  ImportGiven alone, with_devices;
  alone.job = with_devices.job = read_job("llama3-8b");
  with_devices.devices = 32;
  for (const char* whole : {kPaddle, kDeepSpeed}) {
    for (int i = 0; i < 4000; ++i) {
      const std::string text =
          i % 3 == 0 ? with_another_value(random, whole) : damaged(random, whole, kValuePieces);
      if (!takes_job(text)) continue;
      try {
        import_text(text, "f.json", i % 2 == 0 ? alone : with_devices);
        ++read_anyway;
      } catch (const InputError&) {
        continue;
      }
    }
  }
  EXPECT_GT(read_anyway, 300);
}

}  // namespace
}  // namespace plimsoll
