// Asks the questions of a starting file, and explains the file.
#include "planner/init/init.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <istream>
#include <ostream>
#include <utility>

#include "base/command_line.h"
#include "base/error.h"
#include "base/json.h"
#include "models/framework/framework.h"

namespace plimsoll {
namespace {

using KeyWords = std::pair<std::string_view, std::string_view>;

constexpr KeyWords kJobKeys[] = {
    {"based-on", "job file or preset to start from, or \"none\""},
    {"name", "name of the job"},
    {"family", "gpt, llama or bert"},
    {"layers", "layers"},
    {"hidden", "columns of a layer"},
    {"heads", "attention heads"},
    {"kv-heads", "heads of keys and values"},
    {"ffn-hidden", "columns inside the feed-forward part"},
    {"vocab", "rows of the vocabulary"},
    {"sequence", "tokens of a sequence"},
    {"global-batch", "sequences per step"},
    {"precision", "fp32, bf16 or fp16"},
};
constexpr KeyWords kClusterKeys[] = {
    {"based-on", "cluster file or preset with the same devices"},
    {"name", "name of the cluster"},
    {"devices-per-node", "devices of a node"},
    {"nodes", "number of nodes, or \"any\""},
    {"network",
     "bandwidth between nodes, in each direction: \"400 Gbit/s\". It is that of each device, and "
     "with --cards-per-node that of each card"},
    {"cards-per-node", "network cards of a node, which its devices share"},
    {"network-kind",
     "infiniband, roce, efa-2024, efa-2020 or ethernet (TCP): latency, and the share that is reached"},
    {"nodes-per-switch", "nodes that have the full bandwidth among each other"},
    {"oversubscription", "\"2:1\": between switches a device has half of the bandwidth"},
    {"with", "nodes of other devices: \"dgx-a100-80gb:2\" adds two, after those of --nodes"},
    {"date", "date of these answers"},
};
constexpr KeyWords kFrameworkKeys[] = {
    {"based-on", "built-in framework that it is like"},
    {"name", "name of the framework"},
};

constexpr KeyWords kJobNotes[] = {
    {"family, layers, hidden, heads", "the shape; docs/reference/job.md has the families"},
    {"kv_heads, ffn_hidden", "grouped queries, and the inner columns of the feed-forward part"},
    {"vocab", "rows without padding; frameworks pad it themselves"},
    {"tied_embeddings", "whether the head uses the embedding's table"},
    {"sequence, global_batch", "tokens of a sequence, and sequences per step"},
    {"precision", "bf16 and fp16 are mixed precision, with fp32 masters"},
    {"optimizer, clip_norm, dropout, seed",
     "how it is trained; they change memory and time little"},
};
constexpr KeyWords kClusterNotes[] = {
    {"nodes", "null: as many as --devices needs"},
    {"device.memory", "total as the driver reports it"},
    {"device.peak", "dense rates, without sparsity"},
    {"levels", "the network from the inside out; bandwidth is per device and direction"},
    {"efficiency", "what kernels and collectives reach; without it means over presets count"},
    {"source", "where each number comes from; every number needs one"},
};
constexpr KeyWords kFrameworkNotes[] = {
    {"based_on", "what the file does not state is as there; planner describe shows it"},
    {"can", "what it can run: {\"pipeline\": {\"value\": false, \"source\": \"...\"}}"},
    {"kernels, parallelism, dispatch", "how ops run, each group with its \"source\""},
    {"waits, memory, allocator", "the same; planner schema framework has all keys"},
    {"calibrated_as", "the framework whose fits hold for this one, as long as both run alike"},
};

std::span<const KeyWords> notes_of(InitKind kind) {
  switch (kind) {
    case InitKind::job:
      return kJobNotes;
    case InitKind::cluster:
      return kClusterNotes;
    case InitKind::framework:
      return kFrameworkNotes;
  }
  return {};
}

/// Returns why the answer is not allowed, or nothing.
std::string refusal(const Question& question, const std::string& answer) {
  if (answer.empty()) return "an answer is required";
  return question.refuse ? question.refuse(answer) : "";
}

}  // namespace

std::span<const KeyWords> init_keys(InitKind kind) {
  switch (kind) {
    case InitKind::job:
      return kJobKeys;
    case InitKind::cluster:
      return kClusterKeys;
    case InitKind::framework:
      return kFrameworkKeys;
  }
  return {};
}

std::optional<Question> next_question(InitKind kind, const Answers& answers) {
  switch (kind) {
    case InitKind::job:
      return next_job_question(answers);
    case InitKind::cluster:
      return next_cluster_question(answers);
    case InitKind::framework:
      return next_framework_question(answers);
  }
  return std::nullopt;
}

Answers ask(InitKind kind, Answers answers, std::istream& in, std::ostream& out) {
  while (const auto question = next_question(kind, answers)) {
    out << question->words;
    if (!question->usual.empty()) out << " [" << question->usual << "]";
    out << ": " << std::flush;
    std::string line;
    if (!std::getline(in, line)) {
      throw UsageError(fmt::format("the answers ended before \"{}\"", question->words));
    }
    const std::string& answer = line.empty() ? question->usual : line;
    if (const std::string why = refusal(*question, answer); !why.empty()) {
      out << "  " << why << "\n";
      continue;
    }
    answers[question->key] = answer;
  }
  return answers;
}

Answers take_usual(InitKind kind, Answers answers) {
  while (const auto question = next_question(kind, answers)) {
    if (question->usual.empty()) {
      throw UsageError(fmt::format("--{} is required: {}", question->key, question->words));
    }
    answers[question->key] = question->usual;
  }
  return answers;
}

std::string init_text(InitKind kind, const Answers& answers) {
  switch (kind) {
    case InitKind::job:
      return new_job_text(answers);
    case InitKind::cluster:
      return new_cluster_text(answers);
    case InitKind::framework:
      return new_framework_text(answers);
  }
  return "";
}

std::string init_notes(InitKind kind, const std::string& file) {
  std::string text = "keys of the file\n";
  for (const auto& [keys, words] : notes_of(kind)) {
    text += fmt::format("  {:<36} {}\n", keys, words);
  }
  if (!file.empty()) text += fmt::format("planner describe {} says what follows from it\n", file);
  return text;
}

std::function<std::string(const std::string&)> integer_answer(std::int64_t least,
                                                              std::int64_t most) {
  return [=](const std::string& text) { return refuse_integer(text, least, most); };
}

std::int64_t integer_of(const std::string& key, const std::string& text, std::int64_t least,
                        std::int64_t most) {
  if (const std::string why = refuse_integer(text, least, most); !why.empty()) {
    throw UsageError(fmt::format("--{}: {}", key, why));
  }
  return std::stoll(text);
}

std::function<std::string(const std::string&)> one_of(std::span<const std::string_view> words) {
  return [words](const std::string& text) -> std::string {
    if (std::ranges::find(words, text) != words.end()) return "";
    return fmt::format("found \"{}\"; one of {} is required", text, fmt::join(words, ", "));
  };
}

std::optional<Question> next_framework_question(const Answers& answers) {
  if (!answers.contains("based-on")) {
    return Question{"based-on", "built-in framework that it is like: " + known_frameworks()};
  }
  const std::string& base = framework_by_name(answers.at("based-on")).name;
  if (!answers.contains("name")) {
    return Question{"name", "name of the framework", "my-" + base,
                    [](const std::string& name) -> std::string {
                      return find_framework(name) == nullptr ? "" : "a built-in one has this name";
                    }};
  }
  return std::nullopt;
}

std::string new_framework_text(const Answers& answers) {
  const std::string& name = answers.at("name");
  if (find_framework(name) != nullptr) {
    throw UsageError("--name " + name + ": a built-in framework has this name");
  }
  return json_text({{"name", name}, {"based_on", framework_by_name(answers.at("based-on")).name}});
}

}  // namespace plimsoll
