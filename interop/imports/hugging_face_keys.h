// Keys of a config.json whose meaning does not depend on the model: what no Job can state, what
// changes the function but no size, and what says nothing of a training step. They are those of
// models/presets/readers/hugging-face-keys.json.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "interop/imports/architecture.h"
#include "interop/imports/config_fields.h"
#include "models/job/job.h"

namespace plimsoll {

/// A KeyRule is about keys that must be off, or have a value that a Job computes with.
struct KeyRule {
  std::vector<std::string> keys;  ///< "NAME*": all keys that begin with NAME
  std::string message;            ///< what a job can state instead, or leaves out
  /// The one value that is fine, of a key or of each in its list; null: the keys must be off.
  Json only = {};
  double most = 0;  ///< the largest number that counts as off
  /// The key may be on if every model of the type has this; null: no model has it.
  bool Job::*always = nullptr;

  bool fine(const Json& value) const;
};
/// Returns whether a key is the pattern, or what its "*" leaves open.
bool fits(std::string_view pattern, std::string_view key);
bool fits_any(const std::vector<std::string>& patterns, std::string_view key);

/// Returns the rules of keys without which no Job states the model, in the order in which they are
/// checked.
const std::vector<KeyRule>& key_rules();
/// Returns the rules of keys that change what is computed, but no parameter, no matmul and no byte.
/// A Job cannot state them, and a note says so.
const std::vector<KeyRule>& noted_keys();

/// Returns why no Job states models of a type or class, or nothing.
const KeyRule* type_rule(std::string_view type);

/// Returns which layers of a list of types no Job states, or nothing.
std::string other_layers(const Json& object);

/// Returns whether a value switches nothing on: null, false, 0, or an empty list, object or text.
bool is_off(const Json& value);

/// Returns whether the architecture reads a key or names it.
bool is_known(const Architecture& architecture, std::string_view key);
/// A KeyFault is a key that keeps jobs of an architecture from stating the model.
struct KeyFault {
  std::string key, message;
};
std::vector<KeyFault> key_faults(ConfigFields& fields, const Architecture& architecture);

/// Returns whether a member of an object on rotary embeddings is read, or has no meaning for text.
bool is_of_angles(std::string_view name);
/// Returns whether a key is known to say nothing of a training step: token ids, settings of
/// generation, names of labels, epsilons.
bool is_silent(std::string_view key);

}  // namespace plimsoll
