#include "published/public_models.h"

#include <array>
#include <cctype>
#include <string>

namespace plimsoll {
namespace {

struct PublicModel {
  std::string_view name;  ///< letters and digits of it, lower case
  std::int64_t vocabulary;
  std::string_view source;
};
/// The first that matches counts.
constexpr std::array kModels = {
    PublicModel{"llama2", 32000, "huggingface.co/meta-llama/Llama-2-7b, config.json, vocab_size"},
    PublicModel{"llama3", 128256, "huggingface.co/meta-llama/Meta-Llama-3-8B, config.json"},
    PublicModel{"codellama34b", 32000, "huggingface.co/codellama/CodeLlama-34b-hf, config.json"},
    PublicModel{"mixtral", 32000, "huggingface.co/mistralai/Mixtral-8x7B-v0.1, config.json"},
    PublicModel{"mistral7b", 32000, "huggingface.co/mistralai/Mistral-7B-v0.1, config.json"},
    PublicModel{"qwen272b", 152064, "huggingface.co/Qwen/Qwen2-72B, config.json"},
    PublicModel{"qwen27b", 152064, "huggingface.co/Qwen/Qwen2-7B, config.json"},
    PublicModel{"gemma2", 256000, "huggingface.co/google/gemma-2-9b, config.json"},
    PublicModel{"gemma7b", 256000, "huggingface.co/google/gemma-7b, config.json"},
    PublicModel{"nemotron3", 256000, "huggingface.co/nvidia/nemotron-3-8b-base-4k"},
    PublicModel{"nemotron4", 256000, "Parmar et al. 2024, arXiv 2402.16819, section 2"},
    PublicModel{"starcoder", 49152, "huggingface.co/bigcode/starcoder, config.json"},
    PublicModel{"falcon40b", 65024, "huggingface.co/tiiuae/falcon-40b, config.json"},
    PublicModel{"bloom", 250880, "huggingface.co/bigscience/bloom, config.json"},
    PublicModel{"neox20b", 50432, "huggingface.co/EleutherAI/gpt-neox-20b, config.json"},
    PublicModel{"bertlarge", 30522, "huggingface.co/google-bert/bert-large-uncased, config.json"},
    PublicModel{"bertbase", 30522, "huggingface.co/google-bert/bert-base-uncased, config.json"},
    PublicModel{"gpt2", 50257, "huggingface.co/openai-community/gpt2, config.json"},
    PublicModel{"gpt3", 50257,
                "Brown et al. 2020, arXiv 2005.14165, section 2.2: GPT-2's encoding"},
};

}  // namespace

std::optional<std::int64_t> public_vocabulary(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      plain += char(std::tolower(static_cast<unsigned char>(c)));
  }
  for (const PublicModel& model : kModels) {
    if (plain.find(model.name) != std::string::npos) return model.vocabulary;
  }
  return std::nullopt;
}

}  // namespace plimsoll
