// Schema note: "$schema" at the top of a file names its schema for editors.
#pragma once

#include <string_view>

#include "base/json.h"

namespace plimsoll {

inline constexpr std::string_view kSchemaNote = "$schema";

/// Returns whether the member is "$schema" with a text. It says nothing else, and every file that
/// is read may have it at its top: JsonObject::finish() lets it pass there.
inline bool is_schema_note(std::string_view key, const Json& value) {
  return key == kSchemaNote && value.is_string();
}

/// Removes the note from a document, if there is one.
inline void drop_schema_note(Json& document) {
  if (!document.is_object()) return;
  const auto note = document.find(kSchemaNote);
  if (note != document.end() && note->is_string()) document.erase(note);
}

}  // namespace plimsoll
