// Names of presets: words that mean one, and words that mean several or none.
#include "models/presets/preset_names.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/error.h"

namespace plimsoll {
namespace {

std::string meant(const std::string& word, const std::vector<Preset>& presets) {
  return std::string(preset_meant(word, presets).value_or(""));
}

std::string refusal(const std::string& word, const std::vector<Preset>& presets) {
  try {
    preset_meant(word, presets);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(PresetNames, JobsHaveTheNamesOfHuggingFace) {
  const std::pair<const char*, const char*> known[] = {
      {"llama3-8b", "llama3-8b"},
      {"llama3.1-8b", "llama3-8b"},
      {"meta-llama/Llama-3.1-8B", "llama3-8b"},
      {"meta-llama/Meta-Llama-3-8B-Instruct", "llama3-8b"},
      {"meta-llama/Llama-3.3-70B-Instruct", "llama3-70b"},
      {"meta-llama/Llama-2-7b-hf", "llama2-7b"},
      {"Qwen/Qwen3-8B", "qwen3-8b"},
      {"qwen/qwen3-8b-base", "qwen3-8b"},
      {"Qwen/Qwen3-235B-A22B", "qwen3-235b-a22b"},
      {"deepseek-ai/DeepSeek-V3", "deepseek-v3"},
      {"deepseek-ai/DeepSeek-R1", "deepseek-v3"},
      {"mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"},
      {"openai/gpt-oss-20b", "gpt-oss-20b"},
      {"EleutherAI/gpt-neox-20b", "gpt-neox-20b"},
      {"google/gemma-2-9b-it", "gemma2-9b"},
      {"kimi", "kimi-k2"},
  };
  for (const auto& [word, preset] : known) EXPECT_EQ(meant(word, job_presets()), preset) << word;
}

TEST(PresetNames, ClustersHaveTheNamesOfTheirGpus) {
  const std::pair<const char*, const char*> known[] = {
      {"h100", "dgx-h100-80gb"},
      {"H100", "dgx-h100-80gb"},
      {"NVIDIA H100 80GB HBM3", "dgx-h100-80gb"},
      {"a100-80gb", "dgx-a100-80gb"},
      {"NVIDIA A100-SXM4-80GB", "dgx-a100-80gb"},
      {"NVIDIA A100-SXM4-40GB", "dgx-a100-40gb"},
      {"h200", "hgx-h200"},
      {"4090", "rtx-4090"},
      {"mi300x", "mi300x-192gb"},
      {"l40s", "g6e-l40s"},
  };
  for (const auto& [word, preset] : known)
    EXPECT_EQ(meant(word, cluster_presets()), preset) << word;
}

TEST(PresetNames, WordsOfSeveralAreRefusedWithThem) {
  const std::string a100 = refusal("a100", cluster_presets());
  EXPECT_NE(a100.find("dgx-a100-40gb"), std::string::npos) << a100;
  EXPECT_NE(a100.find("dgx-a100-80gb"), std::string::npos) << a100;
  const std::string llama = refusal("llama3", job_presets());
  EXPECT_NE(llama.find("llama3-70b"), std::string::npos) << llama;
  const std::string size = refusal("7b", job_presets());
  EXPECT_NE(size.find("more: planner list jobs"), std::string::npos) << "not all in one line";
}

TEST(PresetNames, PathsAndOtherModelsMeanNone) {
  for (const char* word : {"somebody/llama3-8b", "configs/llama3-8b", "meta-llama/x/llama3-8b",
                           "llama3-8b.json", "llama3-8b-lora", "", "-"}) {
    EXPECT_EQ(meant(word, job_presets()), "") << word;
  }
  EXPECT_EQ(unknown_preset("llama3-80b", job_presets()),
            "did you mean llama3-70b? planner list jobs prints all names");
}

// A name in a table has a preset, and no name means two.
TEST(PresetNames, TablesAreOfPresetsAndUnambiguous) {
  for (const PresetKind& kind : preset_kinds()) {
    std::set<std::string> names;
    for (const Preset& preset : kind.presets()) {
      EXPECT_EQ(meant(std::string(preset.name), kind.presets()), preset.name);
      EXPECT_TRUE(names.emplace(preset.name).second);
      for (const std::string& name : other_names(preset.name, kind.presets())) {
        EXPECT_TRUE(names.insert(name).second) << name;
        EXPECT_EQ(meant(name, kind.presets()), preset.name) << name;
      }
    }
  }
  EXPECT_EQ(other_names("no-such", job_presets()).size(), 0u);
}

}  // namespace
}  // namespace plimsoll
