// Published rows for tests: raw rows as cases files have them, and what is read of them.
#pragma once

#include "base/json.h"
#include "published/published_run.h"
#include "published/published_target.h"

namespace plimsoll {

/// A raw row of a small GPT on 16 A100s, by a program of the words "megatron-lm".
Json plain_row();
/// Says that the row was read at this place of this document.
void set_source(Json& row, const std::string& document, const std::string& place = "page");

/// A raw row with the facts that the rules of lab/ state: lab/state runs beside the tests. Throws
/// std::runtime_error if it refuses the row.
Json stated(const Json& row);
/// The run of a raw row.
PublishedRun run_of(const Json& row);
PublishedTarget target_of(const Json& row, const CalibrationChoice& calibration = {});

}  // namespace plimsoll
