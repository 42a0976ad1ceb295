// Small config.json files of models, which tests change key by key, and what an import says of
// them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "graph/graph.h"
#include "interop/imports/architecture.h"
#include "interop/imports/imported.h"

namespace plimsoll {

/// A small model of a family, with the members of `changes`, an object. "LEFT OUT" leaves one out.
inline std::string config(const std::string& changes, const char* model_type = "llama") {
  Json value = parse_json(R"({"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                              "intermediate_size": 128, "vocab_size": 256, "hidden_act": "silu",
                              "max_position_embeddings": 128})",
                          "test");
  value["model_type"] = model_type;
  const Architecture* known = architecture_of_type(model_type);
  if (known != nullptr && known->family == Family::llama) value["num_key_value_heads"] = 2;
  const Json changed = parse_json(changes, "test");
  for (const auto& [key, change] : changed.items()) {
    if (change.is_string() && change.get<std::string>() == "LEFT OUT") {
      value.erase(key);
    } else {
      value[key] = change;
    }
  }
  return json_text(value);
}

inline Imported read_config(const std::string& changes, const char* model_type = "llama",
                            const ImportGiven& given = {}) {
  return import_text(config(changes, model_type), "config.json", given);
}

inline std::int64_t parameters(const Imported& imported) {
  return parameter_count(build_forward(*imported.job, 1));
}

/// Returns the fault of a config.json: "POINTER: MESSAGE"; nothing where it has none. Behind a
/// fault of a key stands the model_type, which is cut off.
inline std::string fault(const std::string& text, const ImportGiven& given = {}) {
  try {
    import_text(text, "config.json", given);
  } catch (const InputError& error) {
    EXPECT_EQ(error.file(), "config.json");
    const std::string text =
        std::string(error.what()).substr(std::string("config.json: at ").size());
    return text.substr(0, text.rfind(" (model_type \""));
  }
  return "";
}

inline bool has(const std::vector<std::string>& lines, const std::string& words) {
  return std::ranges::any_of(
      lines, [&](const std::string& line) { return line.find(words) != line.npos; });
}

}  // namespace plimsoll
