// A FileKind tells the project's JSON files apart, so that a file in the wrong place is refused by
// what it is, and not by the first key that it lacks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace plimsoll {

/// The last four are never wanted where a job, cluster, framework, calibration, plan, strategy or
/// measured run is read. They are known so that a message can name them.
enum class FileKind : std::uint8_t {
  job,
  cluster,
  framework,
  calibration,
  plan,
  strategy,
  measured,
  checkpoint,    ///< what a saved training says of itself
  prediction,    ///< printed by `planner simulate --json`
  explanation,   ///< printed by `planner explain --json`
  hugging_face,  ///< config.json of a model
  system,        ///< devices and networks, as another planner describes them
};

/// Returns the kind in words, with its article: "a plan".
std::string_view to_words(FileKind kind);

/// Returns the kind of a document by keys that only files of that kind have, or nothing where no
/// key tells. A framework that only has a name is not recognised, nor is an empty strategy.
std::optional<FileKind> file_kind(const Json& json);

/// Parses the text of a file where `wanted` is read. Throws InputError as parse_json does, for text
/// that is empty or no JSON object, and for a document of another kind, which it names.
Json parse_file_of(FileKind wanted, std::string_view text, const std::string& file);

}  // namespace plimsoll
