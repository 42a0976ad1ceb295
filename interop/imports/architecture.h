// An Architecture says how a config.json of one model_type states the sizes of a Job. Each is a
// file of models/presets/architectures, named as the model_type; docs/how-to/add-a-model-family.md
// explains the keys of these files.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "models/job/job.h"

namespace plimsoll {

/// An ExpertKeys says how a config.json states a mixture of experts.
struct ExpertKeys {
  /// The key, by a key of `experts` in a job, or by "shared_experts", the number of them.
  std::map<std::string, std::string, std::less<>> keys;
  Experts always;  ///< what no key states
};

/// A LeftOut is something that the model computes and a Job leaves out: no size and no count
/// changes.
struct LeftOut {
  std::string key;  ///< it holds where this key is on; empty: for every such model
  std::string note;
};

struct Architecture {
  std::string name;                      ///< model_type
  std::vector<std::string> model_types;  ///< further ones that mean this one
  std::vector<std::string> classes;      ///< of `architectures` in a config.json
  std::string source;                    ///< where the defaults and the shape are from

  Family family = Family::llama;
  bool gated = false;               ///< the MLP has a gate in addition to its up projection
  std::vector<std::string> joined;  ///< products that the model computes as one: "qkv", "gate_up"
  /// Every such model has these biases, these norms and this MLP input, which no key states.
  Job always;
  /// The key that switches something on, by what it is: a key of a job ("qkv_bias", "qk_norm"), or
  /// "parallel_mlp" or "own_norm", which together say what the MLP reads, or "grouped": there are
  /// fewer heads of keys than of queries.
  std::map<std::string, std::string, std::less<>> switches;
  /// The key of a config.json, by the size of a job ("layers", "heads", ...).
  std::map<std::string, std::string, std::less<>> keys;
  /// Further keys that the library takes for a size, beside the one in `keys`.
  std::map<std::string, std::string, std::less<>> aliases;
  /// The keys of dropout at the sites of a job; empty where the model has none there.
  std::string embedding_dropout, attention_dropout, residual_dropout;
  /// Each of Factors, by its name, as a product of powers: of keys, and of "head", the columns of a
  /// head's key.
  std::map<std::string, std::map<std::string, double>, std::less<>> factors;
  bool tanh_gelu = false;           ///< "gelu" is the approximation
  bool scales_full_layers = false;  ///< angles of layers with a window are not scaled
  bool turns_windowed = false;      ///< if some layers have windows, the others are not turned
  bool softmax_of_yarn = false;     ///< scores have the square of YaRN's factor
  std::vector<LeftOut> left_out;
  /// Values that keys must have where a file has them; "{KEY}": that of another key.
  Json required = Json::object();
  /// Patterns of keys without meaning in a model whose `layer_types` lists attention alone. A file
  /// must then have this list.
  std::vector<std::string> inert;
  std::optional<ExpertKeys> experts;
  Json defaults = Json::object();  ///< what the library takes for keys that a file leaves out

  const std::string& key(std::string_view size) const { return keys.find(size)->second; }
};

/// Returns whether most of the library's classes have a size by this key.
bool is_usual_key(std::string_view key);
/// Returns all of them, ordered by name.
const std::vector<Architecture>& architectures();
/// Returns the architecture of a model_type, or nothing.
const Architecture* architecture_of_type(std::string_view model_type);
/// Returns the architecture of a class ("LlamaForCausalLM"), or nothing.
const Architecture* architecture_of_class(std::string_view name);
/// Returns the names of all of them.
std::vector<std::string> supported_architectures();

}  // namespace plimsoll
