// The prediction of a plan, and how it was found, are read from JSON and written to it.
#pragma once

#include "base/json.h"
#include "plan/plan.h"

namespace plimsoll {

Json prediction_json(const Prediction& prediction);
Prediction prediction_from(JsonObject object);

Json search_json(const SearchSummary& search);
SearchSummary search_from(JsonObject object);

/// Reads a value that has a text form of its own (a Job, a Strategy) and is embedded whole at
/// `key`. `read` gets its text. Errors are moved to the value's place in this file.
template <class Read>
auto read_embedded(JsonObject& parent, std::string_view key, Read read) {
  const std::string pointer = parent.object(key).pointer();
  try {
    return read(parent.raw(key).dump(), parent.file());
  } catch (const InputError& error) {
    const std::string here = error.pointer().empty() ? "/" : error.pointer();
    const std::string message = error.what();
    const std::size_t prefix = error.file().size() + here.size() + std::size(": at : ") - 1;
    throw InputError(error.file(), pointer + error.pointer(), message.substr(prefix));
  }
}

/// Unusual choices are lists of their keys. Reading throws InputError for an unknown key.
Json unusual_json(std::span<const Unusual> choices);
std::vector<Unusual> unusual_from(JsonObject& object, std::string_view key);

Json fastest_json(const FastestPlan& plan);
FastestPlan fastest_from(JsonObject object);

Json runner_up_json(const RunnerUp& runner_up);
RunnerUp runner_up_from(JsonObject object);

Json pareto_json(const ParetoPlan& plan);
ParetoPlan pareto_from(JsonObject object);

}  // namespace plimsoll
