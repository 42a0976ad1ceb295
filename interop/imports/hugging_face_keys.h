// Keys of a config.json whose meaning does not depend on the model: what no Job can state, what
// changes the function but no size, and what says nothing of a training step. The meanings are
// those of huggingface/transformers (configuration_utils.py, and the models that have the key).
#pragma once

#include <span>
#include <string_view>

#include "base/json.h"
#include "models/job/job.h"

namespace plimsoll {

/// A KeyRule is a key that must be off for a Job to state the model.
struct KeyRule {
  std::string_view key;  ///< "NAME*": all keys that begin with NAME
  bool (*fine)(const Json& value);
  std::string_view message;  ///< what a job can state instead
  /// The key may be on if every model of the type has this; null: no model has it.
  bool Job::*always = nullptr;

  bool matches(std::string_view name) const {
    return key.ends_with('*') ? name.starts_with(key.substr(0, key.size() - 1)) : name == key;
  }
};
/// Returns the rules, in the order in which they are checked.
std::span<const KeyRule> key_rules();

/// A NotedKey changes what is computed, but no parameter, no matmul and no byte. A Job cannot state
/// it, and a note says so.
struct NotedKey {
  std::string_view key;
  bool (*fine)(const Json& value);  ///< without a note
  std::string_view message;
};
std::span<const NotedKey> noted_keys();

/// Returns whether a value switches nothing on: null, false, 0, or an empty list, object or text.
bool is_off(const Json& value);

/// Returns whether a key is known to say nothing of a training step: token ids, settings of
/// generation, names of labels, epsilons.
bool is_silent(std::string_view key);

}  // namespace plimsoll
