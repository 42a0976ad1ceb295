// Starting files of jobs: a preset with changes, or a shape by its sizes.

#include <array>

#include "base/command_line.h"
#include "base/json.h"
#include "models/job/job.h"
#include "models/job/job_words.h"
#include "planner/init/init.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kMostSize = std::int64_t{1} << 27;

/// An ernie job has a branch as well, so it starts from its preset.
constexpr std::array<std::string_view, 3> kShapedFamilies = {"gpt", "llama", "bert"};

/// The sizes that have questions where no preset states them. kv_heads and ffn_hidden have usual
/// values.
struct SizeKey {
  std::string_view key, in_file, words;
};
constexpr SizeKey kSizes[] = {
    {"layers", "layers", "how many layers"},
    {"hidden", "hidden", "columns of a layer (hidden)"},
    {"heads", "heads", "attention heads"},
    {"kv-heads", "kv_heads", "heads of keys and values"},
    {"ffn-hidden", "ffn_hidden", "columns inside the feed-forward part"},
    {"vocab", "vocab", "rows of the vocabulary"},
    {"sequence", "sequence", "tokens of a sequence"},
    {"global-batch", "global_batch", "sequences per step"},
};

std::string answer(const Answers& answers, const std::string& key) {
  const auto found = answers.find(key);
  return found == answers.end() ? "" : found->second;
}

bool starts_from_preset(const Answers& answers) { return answer(answers, "based-on") != "none"; }

/// Returns the usual answer for a size, or nothing.
std::string usual_size(const Answers& answers, std::string_view key) {
  if (key == "kv-heads") return answer(answers, "heads");
  const std::string hidden = answer(answers, "hidden");
  if (key == "ffn-hidden" && refuse_integer(hidden, 1, kMostSize).empty()) {
    return std::to_string(4 * std::stoll(hidden));
  }
  return "";
}

}  // namespace

std::optional<Question> next_job_question(const Answers& answers) {
  const auto open = [&](const char* key) { return !answers.contains(key); };
  if (open("based-on")) {
    // Sizes without a preset say that there is none.
    const bool sized = answers.contains("layers") || answers.contains("family");
    return Question{"based-on", "job file or preset to start from, or \"none\"",
                    sized ? "none" : ""};
  }
  std::optional<Job> preset;
  if (starts_from_preset(answers)) preset = read_job(answer(answers, "based-on"));
  if (!preset && open("family")) {
    return Question{"family", "family: gpt, llama or bert", "llama", one_of(kShapedFamilies)};
  }
  for (const SizeKey& size : kSizes) {
    const std::string key(size.key);
    if (answers.contains(key)) continue;
    Question question{key, std::string(size.words), usual_size(answers, key),
                      integer_answer(1, kMostSize)};
    if (preset && key == "sequence") question.usual = std::to_string(preset->sequence);
    if (preset && key == "global-batch") question.usual = std::to_string(preset->global_batch);
    const bool asked = !preset || key == "sequence" || key == "global-batch";
    if (asked) return question;
  }
  if (open("precision")) {
    const std::size_t usual = preset && preset->precision == DType::f32   ? 0
                              : preset && preset->precision == DType::f16 ? 2
                                                                          : 1;
    return Question{"precision", "precision: fp32, bf16 or fp16", std::string(kPrecisions[usual]),
                    one_of(kPrecisions)};
  }
  if (open("name")) {
    return Question{"name", "name of the job", preset ? "my-" + preset->name : "my-job"};
  }
  return std::nullopt;
}

std::string new_job_text(const Answers& answers) {
  Json json = Json::object();
  if (starts_from_preset(answers)) {
    json = parse_json(job_text(read_job(answer(answers, "based-on"))), "planner init");
    json["name"] = answer(answers, "name");
  } else {
    const std::string family = answer(answers, "family");
    json = {{"name", answer(answers, "name")},
            {"family", family},
            {"tied_embeddings", family != "llama"}};
  }
  if (answers.contains("family")) json["family"] = answer(answers, "family");
  for (const SizeKey& size : kSizes) {
    const std::string key(size.key), text = answer(answers, key);
    if (!text.empty()) json[std::string(size.in_file)] = integer_of(key, text, 1, kMostSize);
  }
  if (answers.contains("heads") && !answers.contains("kv-heads")) json["kv_heads"] = json["heads"];
  json["precision"] = answer(answers, "precision");
  return job_text(parse_job(json_text(json), "planner init"));
}

}  // namespace plimsoll
