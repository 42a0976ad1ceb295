#include "published/published_source.h"

#include <cctype>

namespace plimsoll {

std::string lower_case(std::string text) {
  for (char& c : text) c = char(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool is_torchtitan(const PublishedRun& run) {
  return contains(lower_case(run.framework), "torchtitan");
}

bool is_megatron_test(const PublishedRun& run) {
  return contains(run.source, "tests/functional_tests");
}

bool is_deterministic(const PublishedRun& run) {
  return is_megatron_test(run) && run.attention != "flash" && run.cp == 1 &&
         !contains(run.model, "weekly") && !contains(run.model, "nondeterministic");
}

bool keeps_scores(const PublishedRun& run) {
  return is_deterministic(run) &&
         (run.attention == "unfused" || !contains(run.model, "memory_speed"));
}

bool is_nemo(const PublishedRun& run) {
  return contains(lower_case(run.framework), "nemo") || is_bridge(run);
}

bool is_bridge(const PublishedRun& run) { return contains(lower_case(run.framework), "bridge"); }

bool is_llama_example(const PublishedRun& run) {
  return contains(run.source, "examples/llama/README.md");
}

bool is_amp(const PublishedRun& run) { return contains(run.source, "/AMP@"); }

bool is_deep_learning_examples(const PublishedRun& run) {
  return contains(run.source, "NVIDIA/DeepLearningExamples") &&
         contains(lower_case(run.model), "bert");
}

bool is_deepspeed(const Framework& framework) {
  return framework.name.starts_with("megatron-deepspeed");
}

}  // namespace plimsoll
