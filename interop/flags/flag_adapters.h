// Flags of low-rank adapters: the scale, the targets and the parameters of a job that other tools
// state by an alpha and by names of modules. Functions throw std::invalid_argument that states what
// is required.
#pragma once

#include <string>
#include <string_view>

#include "interop/flags/flag_fields.h"

namespace plimsoll {

/// Return the scale of adapters with this alpha: it is divided by the fields' rank (Hu et al. 2021,
/// arXiv 2106.09685, section 4.1) or by its root (Kalajdzievski 2023, arXiv 2312.03732).
std::string scale_by_rank(const FlagFields& fields, std::string_view alpha);
std::string scale_by_root(const FlagFields& fields, std::string_view alpha);

/// Returns the adapters' targets as a list of JSON. `names` are modules between commas, by
/// models/presets/readers/adapter-modules.json, or a pattern such as ".*\.(q_proj|v_proj)".
std::string targets_of_modules(const FlagFields& fields, std::string_view names);
/// Returns them if none is of MLPs that are experts.
std::string targets_outside_experts(const FlagFields& fields, std::string_view names);
/// Returns the parameters that are trained in addition to adapters, as a list of JSON.
std::string matches_of_modules(const FlagFields& fields, std::string_view names);
/// States the adapters' targets: every linear layer of the model's layers.
StatedFields every_linear(const FlagFields& fields, std::string_view text);

}  // namespace plimsoll
