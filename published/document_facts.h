// Document facts: what the documents of published runs say of them beside their tables, in their
// scripts and configurations. models/presets/documents/NAME.json, each fact with its source.
#pragma once

#include "published/published_run.h"

namespace plimsoll {

/// Sets what is known of the run's document and of its place in that; it counts instead of what the
/// row says, which somebody read from a table alone.
void apply_document_facts(PublishedRun& run);

}  // namespace plimsoll
