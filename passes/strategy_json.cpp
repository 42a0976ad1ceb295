// The text forms of a strategy: KEY=VALUE pairs, JSON and the one-line summary, from one table.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <stdexcept>

#include "base/file.h"
#include "base/json.h"
#include "passes/strategy.h"

namespace plimsoll {
namespace {

constexpr std::array<std::string_view, 1> kSchedules = {"1f1b"};
constexpr std::array<std::string_view, 3> kRecomputes = {"none", "selective", "full"};
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
    {"sharding_stage", &Strategy::sharding_stage, 0, 1},
    {"micro_batch", &Strategy::micro_batch, 1, std::int64_t{1} << 24},
    {"send_slots", &Strategy::send_slots, 1, std::int64_t{1} << 20},
};

/// In the order of summaries and files.
constexpr std::string_view kKeys[] = {
    "mp",          "pp",       "dp",        "sharding_degree",   "sharding_stage",
    "micro_batch", "schedule", "recompute", "grad_bucket_bytes", "send_slots",
    "layer_split"};

const IntegerField* integer_field(std::string_view key) {
  const auto field = std::find_if(std::begin(kIntegers), std::end(kIntegers),
                                  [&](const IntegerField& f) { return f.key == key; });
  return field == std::end(kIntegers) ? nullptr : field;
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

template <class Enum, std::size_t N>
Enum choice_from(std::string_view key, std::string_view value,
                 const std::array<std::string_view, N>& words) {
  const auto word = std::find(words.begin(), words.end(), value);
  if (word == words.end()) refuse(key, value, fmt::format("one of {}", fmt::join(words, ", ")));
  return static_cast<Enum>(word - words.begin());
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

std::vector<std::int64_t> layer_split_from(std::string_view key, std::string_view value) {
  std::vector<std::int64_t> split;
  if (value == "even") return split;
  for (std::size_t begin = 0; begin <= value.size();) {
    const std::size_t end = std::min(value.find('+', begin), value.size());
    const auto layers = integer_from(value.substr(begin, end - begin));
    if (!layers || *layers < 1) refuse(key, value, "\"even\" or layers per stage such as 3+3+2");
    split.push_back(*layers);
    begin = end + 1;
  }
  return split;
}

std::string layer_split_text(const Strategy& strategy) {
  if (strategy.layer_split.empty()) return "even";
  return fmt::format("{}", fmt::join(strategy.layer_split, "+"));
}

std::string bucket_text(Bytes bytes) {
  std::string text = exact_text(bytes);
  std::erase(text, ' ');
  return text;
}

std::string field_text(const Strategy& strategy, std::string_view key) {
  if (const IntegerField* field = integer_field(key)) {
    return fmt::format("{}", strategy.*field->member);
  }
  if (key == "schedule") return std::string(kSchedules[std::size_t(strategy.schedule)]);
  if (key == "recompute") return std::string(to_text(strategy.recompute));
  if (key == "grad_bucket_bytes") return bucket_text(strategy.grad_bucket_bytes);
  INVARIANT(key == "layer_split", "kKeys and field_text list the same keys");
  return layer_split_text(strategy);
}

/// There is one legal stage for a degree so far; whoever names no stage means that one.
std::int64_t implied_stage(const Strategy& strategy) {
  return strategy.sharding_degree > 1 ? 1 : 0;
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
  if (std::find(seen.begin(), seen.end(), "sharding_stage") == seen.end()) {
    strategy.sharding_stage = implied_stage(strategy);
  }
  return strategy;
}

}  // namespace

std::string_view to_text(Recompute recompute) { return kRecomputes[std::size_t(recompute)]; }

void set_field(Strategy& strategy, std::string_view key, std::string_view value) {
  if (const IntegerField* field = integer_field(key)) {
    const auto number = integer_from(value);
    if (!number || *number < field->least || *number > field->most) {
      refuse(key, value, fmt::format("an integer from {} to {}", field->least, field->most));
    }
    strategy.*field->member = *number;
  } else if (key == "schedule") {
    strategy.schedule = choice_from<Schedule>(key, value, kSchedules);
  } else if (key == "recompute") {
    strategy.recompute = choice_from<Recompute>(key, value, kRecomputes);
  } else if (key == "grad_bucket_bytes") {
    strategy.grad_bucket_bytes = bucket_from(key, value);
  } else if (key == "layer_split") {
    strategy.layer_split = layer_split_from(key, value);
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
  const Json value = parse_json(json, file);
  JsonObject object(value, file);
  Strategy strategy;
  for (const IntegerField& field : kIntegers) {
    if (!object.has(field.key)) continue;
    strategy.*field.member = object.integer(field.key, field.least, field.most);
  }
  if (!object.has("sharding_stage")) strategy.sharding_stage = implied_stage(strategy);
  if (object.has("schedule")) {
    strategy.schedule = static_cast<Schedule>(object.choice("schedule", kSchedules));
  }
  if (object.has("recompute")) {
    strategy.recompute = static_cast<Recompute>(object.choice("recompute", kRecomputes));
  }
  if (object.has("grad_bucket_bytes")) {
    strategy.grad_bucket_bytes = Bytes(object.integer("grad_bucket_bytes", 0, kMostBytes));
  }
  if (object.has("layer_split")) {
    strategy.layer_split = object.integers("layer_split", 1, kMostDegree);
  }
  object.finish();
  return strategy;
}

std::string strategy_text(const Strategy& strategy) {
  Json object = Json::object();
  for (std::string_view key : kKeys) {
    const std::string name(key);
    if (const IntegerField* field = integer_field(key)) {
      object[name] = strategy.*field->member;
    } else if (key == "grad_bucket_bytes") {
      object[name] = strategy.grad_bucket_bytes.count();
    } else if (key == "layer_split") {
      object[name] = strategy.layer_split;
    } else {
      object[name] = field_text(strategy, key);
    }
  }
  return json_text(object);
}

std::string strategy_summary(const Strategy& strategy) {
  std::string summary;
  for (std::string_view key : kKeys) {
    summary += fmt::format("{}{}={}", summary.empty() ? "" : " ", key, field_text(strategy, key));
  }
  return summary;
}

}  // namespace plimsoll
