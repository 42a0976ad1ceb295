// Tells the kinds of files apart by their keys.
#include "models/kinds/file_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace plimsoll {
namespace {

constexpr std::string_view kWords[] = {"a job",
                                       "a cluster",
                                       "a framework",
                                       "a calibration",
                                       "a plan",
                                       "a strategy",
                                       "a measured run",
                                       "a checkpoint of a training",
                                       "a prediction as JSON",
                                       "an explanation as JSON",
                                       "a Hugging Face config.json",
                                       "another planner's system"};

/// A KindKey is a key at the top of a file that only files of one kind have.
struct KindKey {
  FileKind kind;
  std::string_view key;
};

// The order counts: a plan has most keys of the other kinds, and the digest that a measured run
// has.
constexpr std::array kKindKeys = {
    KindKey{FileKind::checkpoint, "data_digest"},
    KindKey{FileKind::plan, "programs"},
    KindKey{FileKind::plan, "stated_vocabulary"},
    KindKey{FileKind::measured, "median_step_time_s"},
    KindKey{FileKind::measured, "warm_up_steps"},
    KindKey{FileKind::calibration, "fitted"},
    KindKey{FileKind::calibration, "busy_cores"},
    KindKey{FileKind::cluster, "levels"},
    KindKey{FileKind::cluster, "devices_per_node"},
    KindKey{FileKind::job, "family"},
    KindKey{FileKind::explanation, "twice_the_memory"},
    KindKey{FileKind::explanation, "least_changes"},
    KindKey{FileKind::prediction, "program_digests"},
    KindKey{FileKind::hugging_face, "architectures"},
    KindKey{FileKind::hugging_face, "model_type"},
    KindKey{FileKind::system, "networks"},
    KindKey{FileKind::framework, "based_on"},
    KindKey{FileKind::framework, "can"},
    KindKey{FileKind::framework, "kernels"},
    KindKey{FileKind::framework, "memory"},
    KindKey{FileKind::framework, "dispatch"},
    KindKey{FileKind::strategy, "mp"},
    KindKey{FileKind::strategy, "pp"},
    KindKey{FileKind::strategy, "micro_batch"},
    KindKey{FileKind::strategy, "sharding_degree"},
};

std::string hint(FileKind found, FileKind wanted) {
  if (found == FileKind::hugging_face) return "; planner import makes a job of it";
  if (wanted == FileKind::plan && found == FileKind::job)
    return "; planner plan makes a plan of it";
  return "";
}

}  // namespace

std::string_view to_words(FileKind kind) { return kWords[static_cast<std::size_t>(kind)]; }

std::optional<FileKind> file_kind(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  const auto* found =
      std::ranges::find_if(kKindKeys, [&](const KindKey& one) { return json.contains(one.key); });
  if (found == kKindKeys.end()) return std::nullopt;
  return found->kind;
}

Json parse_file_of(FileKind wanted, std::string_view text, const std::string& file) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos) {
    throw InputError(file, "", fmt::format("the file is empty; {} is wanted", to_words(wanted)));
  }
  if (text[first] != '{') {
    const std::string_view line = text.substr(first, text.find('\n', first) - first);
    throw InputError(
        file, "",
        fmt::format("it begins with \"{}\"; {} is wanted, a JSON object. planner import "
                    "reads files of other tools",
                    printable(line, 30), to_words(wanted)));
  }
  Json json = parse_json(text, file);
  const std::optional<FileKind> found = file_kind(json);
  if (found && *found != wanted) {
    throw InputError(file, "",
                     fmt::format("this is {}; {} is wanted{}", to_words(*found), to_words(wanted),
                                 hint(*found, wanted)));
  }
  return json;
}

}  // namespace plimsoll
