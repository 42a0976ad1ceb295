// Published source: whose runs they are, where a row's words are not all that its source says.
#pragma once

#include <string>
#include <string_view>

#include "models/framework/framework.h"
#include "published/published_run.h"

namespace plimsoll {

/// In ASCII.
std::string lower_case(std::string text);
/// Whether `part` is somewhere in it.
bool contains(std::string_view text, std::string_view part);

bool is_torchtitan(const PublishedRun& run);

/// Tests of Megatron-LM itself: they leave dropout at its default.
bool is_megatron_test(const PublishedRun& run);
/// Most of them switch off what is not deterministic (--deterministic-mode,
/// --no-gradient-accumulation-fusion); those of context parallelism and weekly ones do not (their
/// model_config.yaml).
bool is_deterministic(const PublishedRun& run);
/// Among these tests, the ones of memory and speed (gpt3_7b_*_memory_speed) have no
/// --attention-backend unfused: Transformer Engine takes flash attention.
bool keeps_scores(const PublishedRun& run);

/// NeMo and its successor: Megatron-LM with the switches of their recipes.
bool is_nemo(const PublishedRun& run);

/// The successor. Its recipes of speed gather and scatter tokens beside products, part by part
/// (NVIDIA-NeMo/Megatron-Bridge scripts/performance, COMM_OVERLAP_CONFIG_MAP: user buffers of
/// Transformer Engine for Llama 3 70B and 405B, on H100 and B200).
bool is_bridge(const PublishedRun& run);

/// Megatron-LM's own examples of Llama 3 in FP8: their script repeats no layers, reduces gradients
/// in bf16 and keeps weights in 8 bits (examples/llama/train_llama3_8b_h100_fp8.sh:
/// --grad-reduce-in-bf16, --fp8-param-gather).
bool is_llama_example(const PublishedRun& run);

/// AMP's trials (arXiv 2210.07297): Megatron-LM 1.1.5 in DeepSpeed's pipeline. Its script asks for
/// none of Megatron-LM's fusions and not for --checkpoint-activations (github.com/DachengLi1/AMP,
/// DeepSpeed/DeepSpeedExamples/Megatron-LM-v1.1.5-3D_parallelism/examples/ds_pretrain_gpt2_pipe.sh;
/// rows name another copy of that repository).
bool is_amp(const PublishedRun& run);

/// NVIDIA's example of BERT: query, key and value of layers of their own, whose products add the
/// bias, dropout and the residual's sum as kernels of their own; bias and GELU are one
/// (PyTorch/LanguageModeling/BERT/modeling.py).
bool is_deep_learning_examples(const PublishedRun& run);

/// A preset of DeepSpeed's engine around Megatron-LM's layers.
bool is_deepspeed(const Framework& framework);

}  // namespace plimsoll
