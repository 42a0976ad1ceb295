// Files of trainers that are not read are told by their marks and named.
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "base/file.h"
#include "interop/imports/imported.h"
#include "interop/imports/readers.h"

namespace plimsoll {
namespace {

constexpr const char* kNeox = R"({
  "pipe-parallel-size": 2, "model-parallel-size": 4, "num-layers": 30,
  "zero_optimization": {"stage": 1}, "train_micro_batch_size_per_gpu": 2,
  "fp16": {"enabled": true}
})";

std::string foreign_refusal(const std::string& text) {
  try {
    import_text(text, "file");
    return "read";
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(ForeignFile, IsNamedBeforeItIsTakenForAnother) {
  EXPECT_NE(foreign_refusal(kNeox).find("a GPT-NeoX configuration"), std::string::npos)
      << foreign_refusal(kNeox);
  const std::pair<const char*, const char*> files[] = {
      {"system:\n  tensor_model_parallel_size: 2\nmodel:\n  num_layers: 16\ndata: {}\n",
       "FlagScale"},
      {"parallelism:\n  dp: 2\n  pp: 1\n  tp: 4\n", "nanotron"},
      {"model:\n  d_model: 4096\n  n_layers: 32\n  n_heads: 32\n  mlp_hidden_size: 22016\n",
       "OLMo"},
      {"model:\n  _component_: torchtune.models.llama3.llama3_8b\n", "torchtune"},
      {"model:\n  name: mpt_causal_lm\n  d_model: 4096\n  n_heads: 32\n  n_layers: 32\n"
       "  expansion_ratio: 4\n",
       "LLM Foundry"},
      {"system:\n  precision: {}\nmodel:\n  num_layers: 16\ndata: {}\n", "FlagScale"},
      {"defaults:\n  - train: 7b\nexperiment:\n  exp_name: ours\n  task:\n    type: train\n",
       "FlagScale"},
      {R"({"_CLASS_": "olmo_core.nn.transformer.config.TransformerConfig", "d_model": 4096})",
       "OLMo-core"},
      {"model: ours/7b\ntrain_type: full\ndataset: ours/text\n", "ms-swift"},
      {"swift sft --model ours/7b --train_type full --deepspeed zero3\n", "ms-swift"},
      {"checkpoint_dir: ours/7b\ndevices: 8\ntrain:\n  micro_batch_size: 1\neval: {}\n", "LitGPT"},
      {"model_name_or_path: ours/7b\nper_device_train_batch_size: 2\n", "Hugging Face Trainer"},
      {R"({"output_dir": "out", "per_device_train_batch_size": 2, "deepspeed": "ds.json"})",
       "Hugging Face Trainer"},
      {"global_train_batch_size: 1024\ndevice_train_microbatch_size: 2\nmodel:\n"
       "  d_model: 4096\n  n_heads: 32\n  mlp_hidden_size: 22016\n",
       "an OLMo configuration"},
      {"max_seq_len: 2048\nglobal_train_batch_size: 256\ndevice_train_microbatch_size: 8\n",
       "LLM Foundry"},
      {"model:\n  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained\n",
       "NeMo Automodel"},
      {"max_steps = 20\n[trainer.model]\nname = \"ours/7b\"\n[orchestrator]\nbatch_size = 8\n",
       "prime-rl"},
      {R"({"num_procs": 64, "tensor_par": 8, "pipeline_par": 8, "microbatch_size": 1})",
       "Calculon"},
      {R"({"matrix": {}, "vector": {}, "mem1": {}, "mem2": {}, "networks": []})", "Calculon"},
      {R"({"pp_deg": 2, "tp_sizes_enc": "2,2,2,2", "global_bsz": 32})", "Hetu-Galvatron"},
      {"from xtuner.dataset import process_hf_dataset\nbatch_size = 1\n", "xtuner"}};
  for (const auto& [text, name] : files) {
    EXPECT_NE(foreign_refusal(text).find(name), std::string::npos)
        << name << ": " << foreign_refusal(text);
    EXPECT_TRUE(is_importable(text)) << name;
  }
}

TEST(ForeignFile, FilesThatAreReadHaveNoMarks) {
  const std::string folder = PLIMSOLL_SOURCE_DIR;
  for (const char* file : {"/tests/interop/gpt3-175b.sh", "/tests/interop/llama3-70b.sh",
                           "/tests/fuzz/examples/import/torchtitan.toml",
                           "/tests/fuzz/examples/import/accelerate.yaml"})
    EXPECT_EQ(foreign_file(read_file(folder + file)), "") << file;
  EXPECT_EQ(foreign_file(R"({"zero_optimization": {"stage": 3}})"), "");
  // Arguments of the same trainer behind another program are read.
  EXPECT_EQ(foreign_file("model_name_or_path: ours/7b\nstage: sft\nfinetuning_type: full\n"
                         "cutoff_len: 4096\nper_device_train_batch_size: 2\n"),
            "");
}

}  // namespace
}  // namespace plimsoll
