// Init makes a starting file of a job, a cluster or a framework from a few answers.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace plimsoll {

enum class InitKind : std::uint8_t { job, cluster, framework };
inline constexpr std::string_view kInitKinds[] = {"job", "cluster", "framework"};

/// A Question has a key, which is also the name of a flag ("global-batch" of --global-batch).
struct Question {
  std::string key, words;
  /// The answer where none is given. It is empty where an answer is required.
  std::string usual = {};
  /// Returns why an answer is not allowed, or nothing.
  std::function<std::string(const std::string&)> refuse = {};
};

/// Answers by key.
using Answers = std::map<std::string, std::string>;

/// Returns all keys that may be answered, with their words. Keys beyond the questions change what a
/// preset states.
std::span<const std::pair<std::string_view, std::string_view>> init_keys(InitKind kind);

/// Returns the first question without an answer, or nothing where all have one. Later questions
/// and usual answers depend on earlier answers. Throws InputError for an unknown preset.
std::optional<Question> next_question(InitKind kind, const Answers& answers);

/// Asks on `out` and reads lines from `in` until every question has an answer. An empty line takes
/// the usual answer, and a refused one is asked for again. Throws UsageError where `in` ends.
Answers ask(InitKind kind, Answers answers, std::istream& in, std::ostream& out);
/// Takes the usual answers. Throws UsageError, naming the flag, where one is required.
Answers take_usual(InitKind kind, Answers answers);

/// Returns the text of the file. Throws UsageError and InputError for answers that do not go
/// together.
std::string init_text(InitKind kind, const Answers& answers);

// The parts by kind.

std::optional<Question> next_job_question(const Answers& answers);
std::optional<Question> next_cluster_question(const Answers& answers);
std::optional<Question> next_framework_question(const Answers& answers);
std::string new_job_text(const Answers& answers);
std::string new_cluster_text(const Answers& answers);
std::string new_framework_text(const Answers& answers);

/// Returns a check for an integer answer.
std::function<std::string(const std::string&)> integer_answer(std::int64_t least,
                                                              std::int64_t most);
/// Returns the integer of an answer. Throws UsageError, naming the flag, where it is none.
std::int64_t integer_of(const std::string& key, const std::string& text, std::int64_t least,
                        std::int64_t most);
/// Returns a check for one of several words.
std::function<std::string(const std::string&)> one_of(std::span<const std::string_view> words);

}  // namespace plimsoll
