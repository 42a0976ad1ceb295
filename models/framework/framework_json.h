// A framework is read and written in JSON: whole as in plan files, or in part as in framework
// files.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "models/framework/framework.h"

namespace plimsoll {

/// Returns every field, as docs/reference/plan.md lists them for plan files. Facts are left out,
/// since they follow from the framework's name.
Json framework_json(const Framework& framework);
/// Reads such an object. Facts are those of the built-in framework of that name. Throws InputError
/// for a missing or unknown key and a bad value.
Framework framework_from(JsonObject object);

/// Returns a framework file with the fields in which a framework differs from the built-in one of
/// its name, and that one as its base. `source` says where they are from. The file's framework is
/// called NAME-imported, since files do not take the names of built-in ones.
std::string framework_text(const Framework& framework, const std::string& source);

/// Sets the fields that the object has, by their keys in a plan file. The allocator's own fields
/// are not among them. Throws InputError for an unknown key and a bad value.
void set_fields(JsonObject object, Framework& framework);

/// Parses a framework file (docs/reference/framework.md). Fields that it does not state are those
/// of the framework in `based_on`, or else the defaults. Throws InputError. Returns nothing where
/// the file is built in and its base is not among `known`, since the base may come later.
std::optional<Framework> parse_framework(std::string_view text, const std::string& file,
                                         std::span<const Framework> known);

/// Parses the text of a user's own framework file, as read_framework() does.
Framework framework_of_text(std::string_view text, const std::string& file);

}  // namespace plimsoll
