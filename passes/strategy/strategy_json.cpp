// The text forms of a strategy: KEY=VALUE pairs, JSON and the one-line summary, from one table.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <span>
#include <stdexcept>

#include "base/field_list.h"
#include "base/file.h"
#include "models/kinds/file_kind.h"
#include "passes/strategy/pipeline_order.h"
#include "passes/strategy/stage_layout.h"
#include "passes/strategy/strategy.h"
#include "passes/strategy/strategy_fields.h"
#include "passes/strategy/strategy_table.h"

namespace plimsoll {
namespace {

/// Returns the field of a key; null if there is none, or one of another form.
template <class Form>
const Form* field_of(std::string_view key) {
  const auto field = std::ranges::find(kFields, key, &Field::key);
  return field == kFields.end() ? nullptr : std::get_if<Form>(&field->form);
}

/// Calls visit(form) unless the form is a choice, which has no place.
template <class Form, class Visit>
void visit_place(const Form& any, Visit visit) {
  std::visit(
      [&](const auto& form) {
        if constexpr (requires { form.place; }) visit(form);
      },
      any);
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

std::vector<std::int64_t> list_from(std::string_view key, const ListField& field,
                                    std::string_view value) {
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
      refuse(key, value,
             fmt::format("\"{}\" or integers of at least {} such as {}", field.none, field.least,
                         field.example));
    }
    list.insert(list.end(), std::size_t(*count), *number);
    begin = end + 1;
  }
  return list;
}

std::vector<std::string_view> words_in(const SetField& field, const Strategy& strategy) {
  std::vector<std::string_view> words;
  for (std::size_t i = 0; i < field.words.size(); ++i) {
    if (field.place.in(strategy).has(RecomputedModule(i))) words.push_back(field.words[i]);
  }
  return words;
}

void set_words(std::string_view key, const SetField& field, Strategy& strategy,
               std::string_view value) {
  field.place.of(strategy) = {};
  for (std::size_t begin = 0; value != kEmptySet && begin <= value.size();) {
    const std::size_t end = std::min(value.find('+', begin), value.size());
    const auto word =
        std::find(field.words.begin(), field.words.end(), value.substr(begin, end - begin));
    if (word == field.words.end()) {
      refuse(key, value,
             fmt::format("\"{}\" or some of {}, joined by +", kEmptySet,
                         fmt::join(field.words, ", ")));
    }
    field.place.of(strategy).add(RecomputedModule(word - field.words.begin()));
    begin = end + 1;
  }
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
  if (const auto* field = field_of<IntegerField>(key)) {
    return fmt::format("{}", field->place.in(strategy));
  }
  if (const auto* field = field_of<ChoiceField>(key)) {
    return std::string(field->words[field->get(strategy)]);
  }
  if (const auto* field = field_of<BytesField>(key)) return bucket_text(field->place.in(strategy));
  if (const auto* field = field_of<SwitchField>(key)) {
    return field->place.in(strategy) ? "true" : "false";
  }
  if (const auto* field = field_of<SetField>(key)) {
    const std::vector<std::string_view> words = words_in(*field, strategy);
    return words.empty() ? std::string(kEmptySet) : fmt::format("{}", fmt::join(words, "+"));
  }
  const auto* field = field_of<ListField>(key);
  INVARIANT(field != nullptr, "the key of a strategy");
  return list_text(*field, field->place.in(strategy));
}

std::optional<std::int64_t> field_number(const Strategy& strategy, std::string_view key) {
  if (const auto* field = field_of<IntegerField>(key)) return field->place.in(strategy);
  if (const auto* field = field_of<BytesField>(key)) return field->place.in(strategy).count();
  return std::nullopt;
}

std::span<const std::string_view> strategy_keys() {
  static const std::vector<std::string_view> keys = [] {
    std::vector<std::string_view> all;
    for (const Field& field : kFields) all.push_back(field.key);
    return all;
  }();
  return keys;
}

bool always_shown(std::string_view key) {
  const auto shown = strategy_keys().first(kAlwaysInSummary);
  return std::ranges::find(shown, key) != shown.end();
}

namespace {

/// Whoever names no stage means the optimizer's, unless parameters are offloaded.
std::int64_t implied_stage(const Strategy& strategy) {
  if (strategy.gathers.offload) return 3;
  return strategy.sharding_degree > 1 ? 1 : 0;
}

/// A schedule that is placed as a V has two chunks on each stage.
std::int64_t implied_virtual_stages(const Strategy& strategy) {
  return is_placed_as_v(strategy.schedule) ? 2 : 1;
}

using Pairs = std::vector<std::pair<std::string_view, std::string_view>>;

Pairs pairs_of(std::string_view text) {
  Pairs pairs;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view pair = text.substr(begin, end - begin);
    const std::size_t equals = pair.find('=');
    if (equals == pair.npos) {
      throw UsageError(fmt::format("strategy \"{}\": expected KEY=VALUE, found \"{}\"",
                                   printable(text), printable(pair)));
    }
    pairs.emplace_back(strategy_key(pair.substr(0, equals)), pair.substr(equals + 1));
    begin = end + 1;
  }
  // As results print data-parallel ranks: "DP 8 (ZeRO-1)" shares states, and "DP 8" does not.
  const bool shares = std::ranges::any_of(
      pairs, [](const auto& one) { return one.first == "sharding_stage" && one.second != "0"; });
  for (auto& [key, value] : pairs)
    if (key == "DP") key = shares ? "sharding_degree" : "dp";
  return pairs;
}

Strategy strategy_from_pairs(std::string_view text) {
  Strategy strategy;
  std::vector<std::string_view> seen;
  for (const auto& [key, value] : pairs_of(text)) {
    if (std::find(seen.begin(), seen.end(), key) != seen.end()) {
      throw UsageError(fmt::format("strategy \"{}\": {} is given twice", printable(text), key));
    }
    set_field(strategy, key, value);
    seen.push_back(key);
  }
  const auto names = [&](std::string_view key) {
    return std::find(seen.begin(), seen.end(), key) != seen.end();
  };
  if (!names("sharding_stage")) strategy.sharding_stage = implied_stage(strategy);
  if (!names("virtual_stages")) strategy.pipeline.virtual_stages = implied_virtual_stages(strategy);
  if (!names("sequence_parallel"))
    strategy.tokens.sequence_parallel = needs_sequence_parallel(strategy);
  return strategy;
}

Allowed allowed_in(const IntegerField& field) { return {double(field.least), double(field.most)}; }
Allowed allowed_in(const BytesField&) { return {0, double(kMostBytes)}; }
Allowed allowed_in(const SwitchField&) { return {}; }
Allowed allowed_in(const ListField& field) { return {double(field.least), double(kMostDegree)}; }
Allowed allowed_in(const SetField& field) { return field.words; }

}  // namespace

std::string_view to_text(Recompute recompute) { return kRecomputes[std::size_t(recompute)]; }

void set_field(Strategy& strategy, std::string_view key, std::string_view value) {
  if (const auto* field = field_of<IntegerField>(key)) {
    const auto number = integer_from(value);
    if (!number || *number < field->least || *number > field->most) {
      refuse(key, value, fmt::format("an integer from {} to {}", field->least, field->most));
    }
    field->place.of(strategy) = *number;
  } else if (const auto* field = field_of<ChoiceField>(key)) {
    field->set(strategy, choice_from(key, value, field->words));
  } else if (const auto* field = field_of<BytesField>(key)) {
    field->place.of(strategy) = bucket_from(key, value);
  } else if (const auto* field = field_of<SwitchField>(key)) {
    field->place.of(strategy) = choice_from(key, value, {"false", "true"}) == 1;
  } else if (key == "layer_split" && is_layout(value)) {
    strategy.pipeline.layer_split = split_from(value);
  } else if (const auto* field = field_of<ListField>(key)) {
    field->place.of(strategy) = list_from(key, *field, value);
  } else if (const auto* field = field_of<SetField>(key)) {
    set_words(key, *field, strategy, value);
  } else {
    const std::vector<std::string> keys(strategy_keys().begin(), strategy_keys().end());
    const std::string near = nearest(key, keys);
    if (key == "DP")
      throw UsageError("DP is dp x sharding_degree: name these, or use --fix, --max or --min");
    throw UsageError(fmt::format("unknown strategy key \"{}\"; {}", printable(key),
                                 near.empty() ? "planner schema strategy prints all"
                                              : fmt::format("did you mean \"{}\"?", near)));
  }
}

void reset_field(Strategy& strategy, std::string_view key) {
  static const Strategy usual;
  const auto field = std::ranges::find(kFields, key, &Field::key);
  INVARIANT(field != kFields.end(), "the key of a strategy");
  if (const auto* choice = std::get_if<ChoiceField>(&field->form))
    choice->set(strategy, choice->get(usual));
  visit_place(field->form,
              [&](const auto& form) { form.place.of(strategy) = form.place.in(usual); });
}

std::string_view strategy_key(std::string_view word) {
  using Word = std::pair<std::string_view, std::string_view>;
  static constexpr Word kWords[] = {{"TP", "mp"},
                                    {"tp", "mp"},
                                    {"PP", "pp"},
                                    {"CP", "cp"},
                                    {"EP", "ep"},
                                    {"VPP", "virtual_stages"},
                                    {"vpp", "virtual_stages"},
                                    {"ZeRO", "sharding_stage"},
                                    {"zero", "sharding_stage"},
                                    {"zero_stage", "sharding_stage"}};
  const auto found = std::ranges::find(kWords, word, &Word::first);
  return found == std::end(kWords) ? word : found->second;
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
  for (const auto& [key, form] : kFields) {
    if (!object.has(key)) continue;
    if (const auto* choice = std::get_if<ChoiceField>(&form)) {
      choice->set(strategy, object.choice(key, choice->words));
      continue;
    }
    visit_place(form, [&, key = key](const auto& field) {
      read_value(object, key, allowed_in(field), Units::numbers, field.place.of(strategy));
    });
  }
  if (!object.has("sharding_stage")) strategy.sharding_stage = implied_stage(strategy);
  if (!object.has("virtual_stages"))
    strategy.pipeline.virtual_stages = implied_virtual_stages(strategy);
  if (!object.has("sequence_parallel"))
    strategy.tokens.sequence_parallel = needs_sequence_parallel(strategy);
  object.finish();
  return strategy;
}

std::string strategy_text(const Strategy& strategy) {
  Json object = Json::object();
  for (const auto& [key, form] : kFields) {
    Json& value = object[std::string(key)];
    if (const auto* choice = std::get_if<ChoiceField>(&form))
      value = choice->words[choice->get(strategy)];
    visit_place(form, [&](const auto& field) {
      value = value_json(field.place.in(strategy), allowed_in(field), Units::numbers);
    });
  }
  return json_text(object);
}

std::vector<StrategyField> shown_fields(const Strategy& strategy) {
  std::vector<StrategyField> fields;
  for (const std::string_view key : strategy_keys()) {
    std::string text = field_text(strategy, key);
    if (!always_shown(key) && text == field_text(Strategy{}, key)) continue;
    fields.push_back({key, std::move(text)});
  }
  return fields;
}

std::vector<StrategyField> differing_fields(const Strategy& strategy, const Strategy& chosen) {
  std::vector<StrategyField> fields;
  for (const std::string_view key : strategy_keys()) {
    std::string text = field_text(strategy, key);
    if (text != field_text(chosen, key)) fields.push_back({key, std::move(text)});
  }
  return fields;
}

std::vector<std::string> usual_values(std::string_view key) {
  constexpr std::int64_t kMostUsual = 64, kFewValues = 4;
  if (const auto* field = field_of<ChoiceField>(key))
    return {field->words.begin(), field->words.end()};
  if (field_of<SwitchField>(key) != nullptr) return {"true", "false"};
  if (const auto* field = field_of<ListField>(key)) return {std::string(field->none)};
  if (const auto* field = field_of<SetField>(key)) {
    std::vector<std::string> values = {std::string(kEmptySet)};
    values.insert(values.end(), field->words.begin(), field->words.end());
    return values;
  }
  if (field_of<BytesField>(key) != nullptr) return {"4MiB", "32MiB", "128MiB", "1GiB"};
  const auto* field = field_of<IntegerField>(key);
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
