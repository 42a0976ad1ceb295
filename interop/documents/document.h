// Documents are configuration files in TOML, YAML or JSON, read as settings with dotted keys and
// written from nested values. Files may come from anybody: nothing in them is run or fetched.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace plimsoll {

enum class DocumentSyntax : std::uint8_t { toml, yaml, json };

/// A scalar as text. Booleans are "true" and "false", an absent value is "null", and numbers are in
/// the form that from_chars takes.
struct DocumentWord {
  std::string text;
  std::string unknown = {};  ///< why the value is not known, such as a tag; empty: it is
};

/// A Setting is a value of a document that is no table: a scalar, or a list of scalars.
struct Setting {
  std::string key;                  ///< "training.local_batch_size"
  std::vector<DocumentWord> words;  ///< one for a scalar, one for each element of a list
  bool list = false;
  std::int64_t line = 0;
};

/// Reads the settings of a document in file order. A list that holds tables or lists gives settings
/// with the index in the key: "layers.0.kind". A list of lists of scalars is one word, its JSON.
///
/// The limits are 1 MiB of text, nesting 64, 10^5 values, strings of 4096 bytes and keys of 256. An
/// alias of YAML counts as often as it is used. Keys are unique. In YAML, "${model.hidden_size}"
/// stands for the setting of that key, and "${.hidden_size}" for the one beside it (OmegaConf's
/// references). Other expressions in "${}" and tags are unknown words. Throws InputError with the
/// line.
std::vector<Setting> read_document(std::string_view text, DocumentSyntax syntax,
                                   const std::string& file);

/// Writes nested objects whose leaves are scalars or lists of scalars. TOML has no null, so such
/// leaves are left out there. JSON has no comments, so `comments` are left out there.
std::string document_text(const Json& values, DocumentSyntax syntax,
                          const std::vector<std::string>& comments);

}  // namespace plimsoll
