// Flag fields are a job, a strategy and a framework as texts by key, which rows of flag tables
// name.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/framework/framework.h"
#include "models/job/job.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

/// Texts by key. Keys are those of strategies, those of job files with "." for nesting
/// ("optimizer.kind"), "framework" for the framework's name, and "framework.KEY" for its fields.
using FlagFields = std::map<std::string, std::string, std::less<>>;
/// Fields that a text states, by key.
using StatedFields = std::vector<std::pair<std::string, std::string>>;

FlagFields fields_of(const Job& job, const Strategy& strategy, const Framework& framework);
/// Returns the fields of the job alone.
FlagFields fields_of_job(const Job& job);
/// Returns those that say what the model is: sizes and kinds of its layers.
FlagFields fields_of_model(const Job& job);

/// Returns the value of a field. Where the fields do not have the key, the value may follow from
/// others: docs/reference/flags.md lists these keys. Returns nothing where it does not follow.
std::optional<std::string> value_of(const FlagFields& fields, std::string_view key);
/// Returns whether two texts are equal, as numbers where both are numbers.
bool same_value(std::string_view a, std::string_view b);

/// A FlagPlaceholder is "{KEY}" or "{KEY:UNIT}" in a row. "{}" has no key.
struct FlagPlaceholder {
  std::string_view key, unit;
};
/// Returns nothing if the word is none.
std::optional<FlagPlaceholder> placeholder_of(std::string_view word);

/// Returns the value of a condition, which may be a placeholder, if it is known. With a unit, the
/// field is in this unit.
std::optional<std::string> wanted_value(const FlagFields& fields, const std::string& text);
/// Returns what a flag has for a placeholder, if the value is known.
std::optional<std::string> written_value(const FlagFields& fields, FlagPlaceholder placeholder);
/// Returns the fields that follow where a flag has `text` for the placeholder. Throws
/// std::invalid_argument saying what is required.
StatedFields read_value(const FlagFields& fields, FlagPlaceholder placeholder,
                        std::string_view text);

/// Sets what follows from the number of devices: data-parallel ranks are those that no other degree
/// uses. They are shards where sharding_stage is above 0, in "dp" sets. Throws
/// std::invalid_argument where devices do not divide. Layers of the first and the last stage become
/// a layer_split.
void complete_fields(FlagFields& fields);

/// Return the objects of the fields; what fields do not have keeps its default. They throw
/// InputError at `file`.
Job job_of(const FlagFields& fields, const std::string& file);
/// Returns the job with what the fields say of its step: sequence, batch, precision, optimizer.
Job job_over(const Job& job, const FlagFields& fields, const std::string& file);
Strategy strategy_of(const FlagFields& fields, const std::string& file);
Framework framework_of(const FlagFields& fields, const std::string& file);

}  // namespace plimsoll
