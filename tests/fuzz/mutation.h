// Mutation: texts near a valid one, of which readers should refuse nearly all.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>

namespace plimsoll {

/// Returns a changed text. JSON is mostly changed as a tree: values of other types, extreme
/// numbers, elements that are gone, twice or exchanged, keys of other objects, deep nesting. So is
/// a line of JSON in another text. Other texts, and JSON now and then, are changed as bytes: bits,
/// cuts, repeats, tokens and numbers. The same `text` and state of `random` give the same result.
std::string mutated(std::string_view text, std::mt19937_64& random);

}  // namespace plimsoll
