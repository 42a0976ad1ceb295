// A framework in JSON: whole, as plan files hold it, and as a framework file states it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "models/framework/framework.h"

namespace plimsoll {

/// Every field, as docs/reference/plan.md lists them for plan files. Facts are left out: they
/// belong to the framework's name.
Json framework_json(const Framework& framework);
/// The inverse. Facts are those of the built-in framework of that name. Throws InputError for a
/// missing or unknown key and a bad value.
Framework framework_from(JsonObject object);

/// Sets the fields that the object has, by their keys in a plan file; those of the allocator itself
/// are not among them. Throws InputError for an unknown key and a bad value.
void set_fields(JsonObject object, Framework& framework);

/// A framework file (docs/reference/framework.md): what it does not state is as in the framework
/// that it is `based_on`, or else as a Framework is by default. Throws InputError. Absent where the
/// base is not among `known` and the file is built in, so that the base may follow.
std::optional<Framework> parse_framework(std::string_view text, const std::string& file,
                                         std::span<const Framework> known);

}  // namespace plimsoll
