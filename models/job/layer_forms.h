// The layers of one job may differ, as where only some have a window. A form is one kind of layer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/job/job.h"

namespace plimsoll {

/// A LayerForm has the choices in which layers of one llama job differ. Layers of one form are one
/// block of the graph.
struct LayerForm {
  bool windowed = false;
  bool turned = true;    ///< queries and keys have rotary embeddings
  bool experts = false;  ///< a mixture of experts in place of the MLP
  bool operator==(const LayerForm&) const = default;
};
/// The layers of one form, ascending.
struct FormLayers {
  LayerForm form;
  std::vector<std::int64_t> layers;
};

/// Returns the shortest pattern that gives all layers when it is repeated: `window_pattern` and
/// `experts.pattern` of a job file.
std::vector<bool> shortest_period(const std::vector<bool>& layers);

LayerForm form_of_layer(const Job& job, std::int64_t layer);
/// Returns the forms of a job's layers, in order of their first layers.
std::vector<FormLayers> layer_forms(const Job& job);
/// Returns whether layers of the forms lie between each other's.
bool alternate(std::span<const FormLayers> forms);
/// Returns the name of the block of a form among the forms of a job: "layer" or "expert_layer",
/// with "windowed_" or "full_" before it where only some layers have the window, and "unturned_"
/// where only some have no rotary embeddings.
std::string block_name(const LayerForm& form, std::span<const FormLayers> forms);
/// Returns whether a job's layers are not all alike: of several forms, of trunk and branch, or with
/// MTP modules behind them.
bool layers_differ(const Job& job);

}  // namespace plimsoll
