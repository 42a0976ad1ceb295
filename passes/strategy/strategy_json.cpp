// The text forms of a strategy: KEY=VALUE pairs, JSON and the one-line summary, from one table.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <stdexcept>

#include "base/file.h"
#include "base/json.h"
#include "models/kinds/file_kind.h"
#include "passes/strategy/pipeline_order.h"
#include "passes/strategy/stage_blocks.h"
#include "passes/strategy/strategy.h"
#include "passes/strategy/strategy_fields.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kMostDegree = std::int64_t{1} << 22;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 53;

struct IntegerField {
  std::string_view key;
  std::int64_t Strategy::*member;
  std::int64_t least, most;
};

constexpr IntegerField kIntegers[] = {
    {"mp", &Strategy::mp, 1, kMostDegree},
    {"pp", &Strategy::pp, 1, kMostDegree},
    {"dp", &Strategy::dp, 1, kMostDegree},
    {"sharding_degree", &Strategy::sharding_degree, 1, kMostDegree},
    {"sharding_stage", &Strategy::sharding_stage, 0, 3},
    {"micro_batch", &Strategy::micro_batch, 1, std::int64_t{1} << 24},
    {"send_slots", &Strategy::send_slots, 1, std::int64_t{1} << 20},
    {"cp", &Strategy::cp, 1, kMostDegree},
    {"ep", &Strategy::ep, 1, kMostDegree},
    {"etp", &Strategy::etp, 0, kMostDegree},
    {"expert_rows_percent", &Strategy::expert_rows_percent, 100, std::int64_t{1} << 30},
    {"virtual_stages", &Strategy::virtual_stages, 1, std::int64_t{1} << 16},
    {"embedding_as_layers", &Strategy::embedding_as_layers, 0, std::int64_t{1} << 16},
    {"loss_as_layers", &Strategy::loss_as_layers, 0, std::int64_t{1} << 16},
    {"recompute_layers", &Strategy::recompute_layers, 0, std::int64_t{1} << 16},
    {"prefetch_depth", &Strategy::prefetch_depth, 0, std::int64_t{1} << 16},
    {"persistence_threshold", &Strategy::persistence_threshold, 0, kMostBytes},
};

struct BytesField {
  std::string_view key;
  Bytes Strategy::*member;
};
constexpr BytesField kByteCounts[] = {
    {"grad_bucket_bytes", &Strategy::grad_bucket_bytes},
    {"param_bucket_bytes", &Strategy::param_bucket_bytes},
    {"max_live_bytes", &Strategy::max_live_bytes},
    {"reuse_distance_bytes", &Strategy::reuse_distance_bytes},
    {"segment_broadcast_bytes", &Strategy::segment_broadcast_bytes},
};

struct SwitchField {
  std::string_view key;
  bool Strategy::*member;
};
constexpr SwitchField kSwitches[] = {
    {"split_boundary", &Strategy::split_boundary},
    {"sequence_parallel", &Strategy::sequence_parallel},
    {"overlap_grad_reduce", &Strategy::overlap_grad_reduce},
    {"overlap_param_gather", &Strategy::overlap_param_gather},
    {"keep_gathered", &Strategy::keep_gathered},
    {"fp8_parameters", &Strategy::fp8_parameters},
    {"overlap_shared_experts", &Strategy::overlap_shared_experts},
    {"overlap_expert_exchange", &Strategy::overlap_expert_exchange},
};

/// A field with a word for each enumerator, in their order.
struct ChoiceField {
  std::string_view key;
  std::vector<std::string_view> words;
  std::size_t (*get)(const Strategy&);
  void (*set)(Strategy&, std::size_t);
};

template <auto Member, std::size_t count>
ChoiceField choice_field(std::string_view key, const std::string_view (&words)[count]) {
  using Enum = std::remove_reference_t<decltype(std::declval<Strategy&>().*Member)>;
  return {key,
          {std::begin(words), std::end(words)},
          [](const Strategy& s) { return std::size_t(s.*Member); },
          [](Strategy& s, std::size_t i) { s.*Member = Enum(i); }};
}

const std::vector<ChoiceField> kChoices = {
    choice_field<&Strategy::schedule>("schedule", kSchedules),
    choice_field<&Strategy::recompute>("recompute", kRecomputes),
    choice_field<&Strategy::rank_order>("rank_order", kRankOrders),
    choice_field<&Strategy::send_lifetime>("send_lifetime", {"event", "held", "published"}),
    choice_field<&Strategy::cast_placement>("cast_placement",
                                            {"fused", "after_update", "every_use"}),
    choice_field<&Strategy::flatten>("flatten", {"fused", "coalesced", "none"}),
    choice_field<&Strategy::sharding_owner>("sharding_owner",
                                            {"elements", "prefix", "greedy", "sorted_greedy"}),
    choice_field<&Strategy::collective_fusion>("collective_fusion", {"arena", "coalesced", "none"}),
    choice_field<&Strategy::grad_reduction>("grad_reduction", {"at_end", "per_micro_batch"}),
    choice_field<&Strategy::gradient_merge>("gradient_merge", {"direct", "fused", "tensor"}),
    choice_field<&Strategy::gradient_type>("gradient_type", kGradientTypes),
    choice_field<&Strategy::main_gradient_type>("main_gradient_type", kGradientTypes),
    choice_field<&Strategy::main_parameter_type>("main_parameter_type", kMasterTypes),
    choice_field<&Strategy::moment_type>("moment_type", kMomentTypes),
    choice_field<&Strategy::fp8>("fp8", kFp8s),
    choice_field<&Strategy::context_exchange>("context_exchange", kContextExchanges),
    choice_field<&Strategy::expert_dispatch>("expert_dispatch", kExpertDispatches),
    choice_field<&Strategy::gather>("gather", {"layer", "module", "tensor", "use", "segment"}),
};

/// A list of integers joined by +, where 32x3 is a 3 thirty-two times; `none` is the word for an
/// empty one, `example` a legal one.
struct ListField {
  std::string_view key;
  std::vector<std::int64_t> Strategy::*member;
  std::int64_t least;
  std::string_view none;
  std::string_view example;
};
constexpr ListField kLists[] = {{"layer_split", &Strategy::layer_split, 0, "even", "3+3+2"},
                                {"recompute_list", &Strategy::recompute_list, 0, "all", "0+3"}};

/// In the order of summaries and files.
constexpr std::string_view kKeys[] = {"mp",
                                      "pp",
                                      "dp",
                                      "sharding_degree",
                                      "sharding_stage",
                                      "micro_batch",
                                      "schedule",
                                      "recompute",
                                      "grad_bucket_bytes",
                                      "send_slots",
                                      "layer_split",
                                      "rank_order",
                                      "virtual_stages",
                                      "embedding_as_layers",
                                      "loss_as_layers",
                                      "send_lifetime",
                                      "split_boundary",
                                      "sequence_parallel",
                                      "fp8",
                                      "fp8_parameters",
                                      "cp",
                                      "context_exchange",
                                      "ep",
                                      "etp",
                                      "expert_dispatch",
                                      "expert_rows_percent",
                                      "overlap_shared_experts",
                                      "overlap_expert_exchange",
                                      "recompute_layers",
                                      "recompute_list",
                                      "cast_placement",
                                      "flatten",
                                      "sharding_owner",
                                      "collective_fusion",
                                      "param_bucket_bytes",
                                      "grad_reduction",
                                      "gradient_merge",
                                      "gradient_type",
                                      "main_gradient_type",
                                      "main_parameter_type",
                                      "moment_type",
                                      "overlap_grad_reduce",
                                      "overlap_param_gather",
                                      "gather",
                                      "prefetch_depth",
                                      "max_live_bytes",
                                      "reuse_distance_bytes",
                                      "persistence_threshold",
                                      "keep_gathered",
                                      "segment_broadcast_bytes"};
/// A summary names these always, the others where they are not the default.
constexpr std::size_t kAlwaysInSummary = 11;

template <class Fields>
auto field_of(const Fields& fields, std::string_view key) {
  const auto field = std::find_if(std::begin(fields), std::end(fields),
                                  [&](const auto& f) { return f.key == key; });
  return field == std::end(fields) ? nullptr : &*field;
}

[[noreturn]] void refuse(std::string_view key, std::string_view value, const std::string& allowed) {
  throw UsageError(fmt::format("{}={}: {} is required", key, printable(value), allowed));
}

std::optional<std::int64_t> integer_from(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::size_t choice_from(std::string_view key, std::string_view value,
                        const std::vector<std::string_view>& words) {
  const auto word = std::find(words.begin(), words.end(), value);
  if (word == words.end()) refuse(key, value, fmt::format("one of {}", fmt::join(words, ", ")));
  return std::size_t(word - words.begin());
}

Bytes bucket_from(std::string_view key, std::string_view value) {
  if (const auto count = integer_from(value)) {
    if (*count < 0 || *count > kMostBytes) refuse(key, value, "a byte count from 0 to 2^53");
    return Bytes(*count);
  }
  try {
    return parse_bytes(value);
  } catch (const std::invalid_argument& error) {
    throw UsageError(fmt::format("{}: {}", key, error.what()));
  }
}

std::vector<std::int64_t> list_from(const ListField& field, std::string_view value) {
  std::vector<std::int64_t> list;
  if (value == field.none) return list;
  for (std::size_t begin = 0; begin <= value.size();) {
    const std::size_t end = std::min(value.find('+', begin), value.size());
    const std::string_view part = value.substr(begin, end - begin);
    const std::size_t times = part.find('x');
    const auto count = times == part.npos ? 1 : integer_from(part.substr(0, times));
    const auto number = integer_from(times == part.npos ? part : part.substr(times + 1));
    const bool countable =
        count && *count >= 1 && *count <= kMostDegree - std::int64_t(list.size());
    if (!countable || !number || *number < field.least) {
      refuse(field.key, value,
             fmt::format("\"{}\" or integers of at least {} such as {}", field.none, field.least,
                         field.example));
    }
    list.insert(list.end(), std::size_t(*count), *number);
    begin = end + 1;
  }
  return list;
}

/// Whether a value of layer_split is a layout in Megatron-Core's words, such as Et*3|t*4|t*3L.
bool is_layout(std::string_view value) {
  return value != "even" && value.find_first_of("EtLm|(") != value.npos;
}

std::vector<std::int64_t> split_from(std::string_view layout) {
  try {
    return layers_of_layout(layout);
  } catch (const std::invalid_argument& error) {
    throw UsageError(fmt::format("layer_split={}: {}", printable(layout), error.what()));
  }
}

std::string list_text(const ListField& field, const std::vector<std::int64_t>& list) {
  constexpr std::ptrdiff_t kLeastRun = 3;  // shorter ones are written out
  if (list.empty()) return std::string(field.none);
  std::vector<std::string> parts;
  for (auto at = list.begin(); at != list.end();) {
    const auto end = std::find_if(at, list.end(), [&](std::int64_t other) { return other != *at; });
    if (end - at >= kLeastRun) {
      parts.push_back(fmt::format("{}x{}", end - at, *at));
      at = end;
    } else {
      parts.push_back(fmt::format("{}", *at++));
    }
  }
  return fmt::format("{}", fmt::join(parts, "+"));
}

std::string bucket_text(Bytes bytes) {
  std::string text = exact_text(bytes);
  std::erase(text, ' ');
  return text;
}

}  // namespace

std::string field_text(const Strategy& strategy, std::string_view key) {
  if (const auto* field = field_of(kIntegers, key)) {
    return fmt::format("{}", strategy.*field->member);
  }
  if (const auto* field = field_of(kChoices, key)) {
    return std::string(field->words[field->get(strategy)]);
  }
  if (const auto* field = field_of(kByteCounts, key)) return bucket_text(strategy.*field->member);
  if (const auto* field = field_of(kSwitches, key)) {
    return strategy.*field->member ? "true" : "false";
  }
  const auto* field = field_of(kLists, key);
  INVARIANT(field != nullptr, "every key of kKeys has a field");
  return list_text(*field, strategy.*field->member);
}

std::optional<std::int64_t> field_number(const Strategy& strategy, std::string_view key) {
  if (const auto* field = field_of(kIntegers, key)) return strategy.*field->member;
  if (const auto* field = field_of(kByteCounts, key)) return (strategy.*field->member).count();
  return std::nullopt;
}

std::span<const std::string_view> strategy_keys() { return kKeys; }

bool always_shown(std::string_view key) {
  const auto end = std::begin(kKeys) + kAlwaysInSummary;
  return std::find(std::begin(kKeys), end, key) != end;
}

namespace {

/// Whoever names no stage means the optimizer's.
std::int64_t implied_stage(const Strategy& strategy) {
  return strategy.sharding_degree > 1 ? 1 : 0;
}

/// A schedule that is placed as a V has two chunks on each stage.
std::int64_t implied_virtual_stages(const Strategy& strategy) {
  return is_placed_as_v(strategy.schedule) ? 2 : 1;
}

Strategy strategy_from_pairs(std::string_view text) {
  Strategy strategy;
  std::vector<std::string_view> seen;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view pair = text.substr(begin, end - begin);
    const std::size_t equals = pair.find('=');
    if (equals == pair.npos) {
      throw UsageError(fmt::format("strategy \"{}\": expected KEY=VALUE, found \"{}\"",
                                   printable(text), printable(pair)));
    }
    const std::string_view key = pair.substr(0, equals);
    if (std::find(seen.begin(), seen.end(), key) != seen.end()) {
      throw UsageError(fmt::format("strategy \"{}\": {} is given twice", printable(text), key));
    }
    set_field(strategy, key, pair.substr(equals + 1));
    seen.push_back(key);
    begin = end + 1;
  }
  const auto names = [&](std::string_view key) {
    return std::find(seen.begin(), seen.end(), key) != seen.end();
  };
  if (!names("sharding_stage")) strategy.sharding_stage = implied_stage(strategy);
  if (!names("virtual_stages")) strategy.virtual_stages = implied_virtual_stages(strategy);
  return strategy;
}

}  // namespace

std::string_view to_text(Recompute recompute) { return kRecomputes[std::size_t(recompute)]; }

void set_field(Strategy& strategy, std::string_view key, std::string_view value) {
  if (const auto* field = field_of(kIntegers, key)) {
    const auto number = integer_from(value);
    if (!number || *number < field->least || *number > field->most) {
      refuse(key, value, fmt::format("an integer from {} to {}", field->least, field->most));
    }
    strategy.*field->member = *number;
  } else if (const auto* field = field_of(kChoices, key)) {
    field->set(strategy, choice_from(key, value, field->words));
  } else if (const auto* field = field_of(kByteCounts, key)) {
    strategy.*field->member = bucket_from(key, value);
  } else if (const auto* field = field_of(kSwitches, key)) {
    strategy.*field->member = choice_from(key, value, {"false", "true"}) == 1;
  } else if (key == "layer_split" && is_layout(value)) {
    strategy.layer_split = split_from(value);
  } else if (const auto* field = field_of(kLists, key)) {
    strategy.*field->member = list_from(*field, value);
  } else {
    const std::vector<std::string> keys(std::begin(kKeys), std::end(kKeys));
    const std::string near = nearest(key, keys);
    throw UsageError(fmt::format("unknown strategy key \"{}\"; {}", printable(key),
                                 near.empty() ? fmt::format("known: {}", fmt::join(keys, ", "))
                                              : fmt::format("did you mean \"{}\"?", near)));
  }
}

Strategy parse_strategy(std::string_view text_or_file) {
  std::error_code error;
  const bool is_file = std::filesystem::is_regular_file(std::filesystem::path(text_or_file), error);
  if (!is_file && text_or_file.find('=') != text_or_file.npos) {
    return strategy_from_pairs(text_or_file);
  }
  const std::string file(text_or_file);
  if (file.empty()) throw UsageError("a strategy is a file or pairs such as mp=2,pp=2");
  return strategy_from_json_text(read_file(file), file);
}

Strategy strategy_from_json_text(std::string_view json, const std::string& file) {
  const Json value = parse_file_of(FileKind::strategy, json, file);
  JsonObject object(value, file);
  Strategy strategy;
  for (const IntegerField& field : kIntegers) {
    if (!object.has(field.key)) continue;
    strategy.*field.member = object.integer(field.key, field.least, field.most);
  }
  if (!object.has("sharding_stage")) strategy.sharding_stage = implied_stage(strategy);
  for (const ChoiceField& field : kChoices) {
    if (object.has(field.key)) field.set(strategy, object.choice(field.key, field.words));
  }
  if (!object.has("virtual_stages")) strategy.virtual_stages = implied_virtual_stages(strategy);
  for (const BytesField& field : kByteCounts) {
    if (!object.has(field.key)) continue;
    strategy.*field.member = Bytes(object.integer(field.key, 0, kMostBytes));
  }
  for (const SwitchField& field : kSwitches) {
    if (object.has(field.key)) strategy.*field.member = object.boolean(field.key);
  }
  for (const ListField& field : kLists) {
    if (!object.has(field.key)) continue;
    strategy.*field.member = object.integers(field.key, field.least, kMostDegree);
  }
  object.finish();
  return strategy;
}

std::string strategy_text(const Strategy& strategy) {
  Json object = Json::object();
  for (std::string_view key : kKeys) {
    const std::string name(key);
    if (const auto* integer = field_of(kIntegers, key)) {
      object[name] = strategy.*integer->member;
    } else if (const auto* bytes = field_of(kByteCounts, key)) {
      object[name] = (strategy.*bytes->member).count();
    } else if (const auto* flag = field_of(kSwitches, key)) {
      object[name] = strategy.*flag->member;
    } else if (const auto* list = field_of(kLists, key)) {
      object[name] = strategy.*list->member;
    } else {
      object[name] = field_text(strategy, key);
    }
  }
  return json_text(object);
}

std::vector<StrategyField> shown_fields(const Strategy& strategy) {
  std::vector<StrategyField> fields;
  for (std::string_view key : kKeys) {
    std::string text = field_text(strategy, key);
    if (!always_shown(key) && text == field_text(Strategy{}, key)) continue;
    fields.push_back({key, std::move(text)});
  }
  return fields;
}

std::vector<StrategyField> differing_fields(const Strategy& strategy, const Strategy& chosen) {
  std::vector<StrategyField> fields;
  for (std::string_view key : kKeys) {
    std::string text = field_text(strategy, key);
    if (text != field_text(chosen, key)) fields.push_back({key, std::move(text)});
  }
  return fields;
}

std::vector<std::string> usual_values(std::string_view key) {
  constexpr std::int64_t kMostUsual = 64, kFewValues = 4;
  if (const auto* field = field_of(kChoices, key))
    return {field->words.begin(), field->words.end()};
  if (field_of(kSwitches, key) != nullptr) return {"true", "false"};
  if (const auto* field = field_of(kLists, key)) return {std::string(field->none)};
  if (field_of(kByteCounts, key) != nullptr) return {"4MiB", "32MiB", "128MiB", "1GiB"};
  const auto* field = field_of(kIntegers, key);
  std::vector<std::string> values;
  if (field == nullptr) return values;
  const bool few = field->most < kFewValues;
  for (std::int64_t value = field->least; value <= std::min(field->most, kMostUsual);
       value = few || value == 0 ? value + 1 : 2 * value) {
    values.push_back(fmt::format("{}", value));
  }
  return values;
}

std::string fields_text(const std::vector<StrategyField>& fields) {
  std::string text;
  for (const StrategyField& field : fields) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", field.key, field.value);
  }
  return text;
}

std::string strategy_summary(const Strategy& strategy) {
  return fields_text(shown_fields(strategy));
}

}  // namespace plimsoll
