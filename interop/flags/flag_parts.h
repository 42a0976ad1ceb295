// Flag parts are the ways in which flags say how layers are split over stages, and which layers are
// recomputed.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "interop/flags/flag_fields.h"

namespace plimsoll {

/// Returns "even" where counts of layers need not be listed, else "listed".
std::optional<std::string> split_of(const FlagFields& fields);

/// Returns embedding, layers and loss of each part of the model: "Et*3|t*4|t*3L".
std::optional<std::string> layout_of(const FlagFields& fields);
/// Return the fields that a layout states, and those that the layers of a virtual stage state. Like
/// the functions below, they throw std::invalid_argument saying what is required.
StatedFields split_from_layout(const FlagFields& fields, std::string_view text);
StatedFields virtual_stages_from(const FlagFields& fields, std::string_view text);

/// Returns the modules of each part of the model as JSON: [["embedding","layers.0"],["layers.1",
/// "norm"]]. `names` has the module before the layers, the layers' with * for their number, and the
/// modules behind: "embedding layers.* norm".
std::optional<std::string> modules_of(const FlagFields& fields, std::string_view names);
StatedFields split_from_modules(const FlagFields& fields, std::string_view names,
                                std::string_view text);

/// Returns n where the recomputed layers are each n-th one: layers n - 1, 2 n - 1, and so on.
std::optional<std::string> every_nth_layer(const FlagFields& fields);
StatedFields layers_from_step(const FlagFields& fields, std::string_view text);

}  // namespace plimsoll
