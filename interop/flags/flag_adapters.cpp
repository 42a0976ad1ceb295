// Reads names of modules as targets of adapters.
#include "interop/flags/flag_adapters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "interop/flags/flag_values.h"
#include "models/job/job_words.h"
#include "models/presets/known_json.h"
#include "models/presets/presets.h"

namespace plimsoll {
namespace {

/// NamedModules are modules of some names, and what they are in a job.
struct NamedModules {
  std::vector<std::string> names;
  std::vector<std::string> families;  ///< of jobs; empty: all
  std::optional<bool> gated;          ///< of jobs whose MLPs have gates, or have none
  std::vector<std::string> parts;     ///< targets of adapters, or matches of parameters
  std::string because;                ///< why a job does not have them; empty: it has
};

struct KnownModules {
  std::vector<std::string> every;   ///< words for all linear layers
  std::vector<std::string> inside;  ///< modules around those of a layer
  std::vector<NamedModules> layers, trained;
};

std::vector<NamedModules> names_from(const Json& list) {
  std::vector<NamedModules> all;
  for (const Json& one : list) {
    NamedModules& names = all.emplace_back();
    names.names = one.at("names").get<std::vector<std::string>>();
    names.families = one.value("families", std::vector<std::string>());
    if (one.contains("gated")) names.gated = one.at("gated").get<bool>();
    names.because = one.value("because", "");
    if (one.contains("targets")) names.parts = one.at("targets").get<std::vector<std::string>>();
    if (one.contains("match")) names.parts = {one.at("match").get<std::string>()};
  }
  return all;
}

const KnownModules& known_modules() {
  static const KnownModules known = [] {
    const Json json = known_json(reader_presets(), "adapter-modules");
    return KnownModules{json.at("every"), json.at("inside"), names_from(json.at("layers")),
                        names_from(json.at("trained"))};
  }();
  return known;
}

std::string family_of(const FlagFields& fields) {
  const auto family = fields.find("family");
  return family == fields.end() ? "" : family->second;
}

bool is_true(const FlagFields& fields, std::string_view key) {
  return value_of(fields, key) == "true";
}

/// Whether the model computes the products that these words name as one.
bool is_joined(const FlagFields& fields, const char* products) {
  const auto joined = fields.find("joined");
  return joined != fields.end() &&
         std::ranges::count(split(joined->second, '+'), std::string(products)) > 0;
}

const NamedModules* find_module(const std::vector<NamedModules>& known, std::string_view name,
                                const FlagFields& fields) {
  const std::string family = family_of(fields);
  const auto found = std::ranges::find_if(known, [&](const NamedModules& one) {
    const bool of_family =
        one.families.empty() || std::ranges::find(one.families, family) != one.families.end();
    const bool of_form = !one.gated || *one.gated == is_true(fields, "gated");
    return of_family && of_form && std::ranges::find(one.names, name) != one.names.end();
  });
  return found == known.end() ? nullptr : &*found;
}

/// Returns what a name means, whether or not the module around it is named, too.
const NamedModules& module_of(const std::vector<NamedModules>& known, std::string name,
                              const FlagFields& fields) {
  const NamedModules* found = find_module(known, name, fields);
  for (const std::string& around : known_modules().inside) {
    if (found == nullptr && name.starts_with(around))
      found = find_module(known, name.substr(around.size()), fields);
  }
  if (found == nullptr) {
    std::vector<std::string> names;
    for (const NamedModules& one : known) {
      const bool plain = one.because.empty() && one.names[0].find('.') == std::string::npos;
      if (plain && one.names[0] != (names.empty() ? "" : names.back()))
        names.insert(names.end(), one.names.begin(), one.names.end());
    }
    throw std::invalid_argument(fmt::format("{} is no module that a job has; known: {}",
                                            printable(name), fmt::join(names, ", ")));
  }
  if (!found->because.empty())
    throw std::invalid_argument(fmt::format("{}: {}", printable(name), found->because));
  return *found;
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

/// Returns the names of a pattern that any path matches which ends with one of them:
/// "^.*\.(?:q_proj|v_proj)$", where all but the names may be missing.
std::vector<std::string> names_of_pattern(std::string_view pattern) {
  std::string_view rest = pattern;
  for (const std::string_view before : {"^", ".*", "\\."}) {
    if (rest.starts_with(before)) rest.remove_prefix(before.size());
  }
  if (rest.ends_with('$')) rest.remove_suffix(1);
  if (rest.starts_with('(') && rest.ends_with(')')) {
    rest = rest.substr(1, rest.size() - 2);
    if (rest.starts_with("?:")) rest.remove_prefix(2);
  }
  if (rest.empty() || rest.find_first_of("()[]{}?*+.\\^$") != rest.npos)
    throw std::invalid_argument(
        "a pattern other than .*\\.(NAME|NAME) may leave out layers; a list of names is required");
  return split(rest, '|');
}

std::vector<std::string> names_in(std::string_view text) {
  if (text.find_first_of("()[]{}?*+\\^$|") != text.npos) return names_of_pattern(trimmed(text));
  std::vector<std::string> names;
  for (const std::string& name : split(text, ',')) names.emplace_back(trimmed(name));
  return names;
}

/// Refuses adapters of layers' parts that have none in a job.
void check_model(const FlagFields& fields, const std::vector<std::string>& targets) {
  const bool of_query = std::ranges::find(targets, "query") != targets.end();
  if (of_query && is_true(fields, "attention_gate"))
    throw std::invalid_argument("the product of queries has the gate's in it");
}

/// Returns words in the order in which files have them.
std::string list_text(const std::vector<std::string>& targets) {
  Json list = Json::array();
  for (const std::string_view target : kAdapterTargets) {
    if (std::ranges::find(targets, target) != targets.end()) list.push_back(target);
  }
  return list.dump();
}

double rank_of(const FlagFields& fields) {
  return double(count_of(fields, "adapters.rank").value_or(1));
}

std::string scale(std::string_view alpha, double divisor) {
  const auto number = number_from(alpha);
  if (!number || *number <= 0) throw std::invalid_argument("a number above 0 is required");
  return fmt::format("{}", *number / divisor);
}

}  // namespace

std::string scale_by_rank(const FlagFields& fields, std::string_view alpha) {
  return scale(alpha, rank_of(fields));
}

std::string scale_by_root(const FlagFields& fields, std::string_view alpha) {
  return scale(alpha, std::sqrt(rank_of(fields)));
}

std::string targets_of_modules(const FlagFields& fields, std::string_view names) {
  const std::string family = family_of(fields);
  std::vector<std::string> targets;
  if (family.empty()) return list_text(targets);  // no model is known, and no job comes out
  if (std::ranges::find(known_modules().every, names) != known_modules().every.end())
    return every_linear(fields, "true").at(0).second;
  for (const std::string& name : names_in(names)) {
    const NamedModules& module = module_of(known_modules().layers, name, fields);
    targets.insert(targets.end(), module.parts.begin(), module.parts.end());
  }
  check_model(fields, targets);
  return list_text(targets);
}

std::string targets_outside_experts(const FlagFields& fields, std::string_view names) {
  const std::string targets = targets_of_modules(fields, names);
  for (const std::string target : Json::parse(targets)) {
    const bool of_attention =
        target != "gate" && target != "up" && target != "gate_up" && target != "down";
    if (!of_attention && is_true(fields, "has_experts"))
      throw std::invalid_argument(target + " is of experts, too");
  }
  return targets;
}

std::string matches_of_modules(const FlagFields& fields, std::string_view names) {
  Json matches = Json::array();
  for (const std::string& name : names_in(names)) {
    const Json match = module_of(known_modules().trained, name, fields).parts.at(0);
    if (std::ranges::find(matches, match) == matches.end()) matches.push_back(match);
  }
  return matches.dump();
}

StatedFields every_linear(const FlagFields& fields, std::string_view text) {
  if (text != "true") throw std::invalid_argument("true is required");
  const std::string family = family_of(fields);
  if (family.empty()) return {};
  if (family != "gpt" && family != "llama")
    throw std::invalid_argument(
        "the model has linear layers behind its layers, which have no adapters in a job; names of "
        "modules are required");
  if (is_true(fields, "has_experts"))
    throw std::invalid_argument(
        "the model has routers, which have no adapters in a job; names of modules are required");
  std::vector<std::string> targets = {"out", "down"};
  const auto add = [&](const char* whole, bool joined, std::initializer_list<const char*> parts) {
    if (joined) {
      targets.emplace_back(whole);
    } else {
      targets.insert(targets.end(), parts.begin(), parts.end());
    }
  };
  if (!is_true(fields, "has_latent")) {
    add("qkv", family == "gpt" || is_joined(fields, "qkv"), {"query", "key", "value"});
  } else {
    targets.insert(targets.end(), {"kv_down", "kv_up"});
    add("query", count_of(fields, "latent.q_rank").value_or(0) == 0, {"query_down", "query_up"});
  }
  if (is_true(fields, "gated")) {
    add("gate_up", is_joined(fields, "gate_up"), {"gate", "up"});
  } else {
    targets.emplace_back("up");
  }
  check_model(fields, targets);
  return {{"adapters.targets", list_text(targets)}};
}

}  // namespace plimsoll
