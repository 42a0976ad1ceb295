// A model's sizes, activations, dropouts, rotary embeddings and windows are read from a
// config.json. It is internal to interop/imports. All functions throw InputError at the key that no
// Job states.
#pragma once

#include <vector>

#include "interop/imports/architecture.h"
#include "interop/imports/config_fields.h"
#include "interop/imports/imported.h"
#include "models/job/job.h"

namespace plimsoll {

/// Returns the architecture with its keys as this file spells them: the library takes some sizes by
/// two names. Both may be there where they are equal.
Architecture with_aliases(ConfigFields& fields, const Architecture& model);
/// Returns the pattern of a job whose layers have something or not: empty if all have it.
std::vector<bool> pattern_of(const std::vector<bool>& layers);
/// Sets the family, the sizes and the choices of a layer.
void read_shape(ConfigFields& fields, const Architecture& known, Job& job);
/// Sets the dropout. Embeddings, attention and residual branches of a job drop out alike.
void read_dropout(ConfigFields& fields, const Architecture& known, const ImportGiven& given,
                  Job& job);
/// Sets the factors by which the model multiplies values.
void read_factors(ConfigFields& fields, const Architecture& known, Job& job);
/// Sets the epsilon of norms.
void read_epsilon(ConfigFields& fields, Job& job);
/// Sets bases and scalings of rotary embeddings, and the layers that have them. Notes scalings that
/// no job states.
void read_rotary(ConfigFields& fields, const Architecture& known, Imported& imported);
/// Refuses windows that are shorter than the job's sequence, over which its attention is.
void read_windows(ConfigFields& fields, const Architecture& known, Job& job);

/// Reads the part "experts" of an architecture's file.
ExpertKeys expert_keys_from(JsonObject object);
/// Sets the experts of a job whose architecture has some.
void read_experts(ConfigFields& fields, const ExpertKeys& known, Job& job);

}  // namespace plimsoll
