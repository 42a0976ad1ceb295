// The table of labels is read once.
#include "interop/logs/log_table.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/error.h"
#include "base/json.h"
#include "models/presets/known_json.h"

namespace plimsoll {
namespace {

constexpr std::array<std::string_view, kStepQuantities + kMemoryQuantities> kQuantities = {
    "time",
    "steps_per_second",
    "interval",
    "elapsed",
    "time_stamp",
    "samples",
    "sequence",
    "samples_per_second",
    "tokens_per_second",
    "device_tokens_per_second",
    "device_flops",
    "loss",
    "skipped",
    "device_idle",
    "longest_idle",
    "exposed_collectives",
    "kernels",
    "allocated",
    "peak_allocated",
    "reserved",
    "peak_reserved"};
constexpr std::array<std::string_view, 18> kUses = {
    "step",       "fields",   "follow",      "ahead",    "memory",   "evaluation",
    "checkpoint", "argument", "dump_begin",  "dump_end", "dots",     "item",
    "parameters", "timers",   "timer_table", "bar",      "run_time", "run_rate"};

std::size_t index_of(std::span<const std::string_view> names, const std::string& name) {
  const auto found = std::ranges::find(names, name);
  INVARIANT(found != names.end(), "a word of the table of logs");
  return std::size_t(found - names.begin());
}

void add(LogTable& table, const std::string& label, LabelMeaning meaning) {
  const auto at = std::size_t(std::ranges::find(table.labels, label) - table.labels.begin());
  if (at == table.labels.size()) {
    table.labels.push_back(label);
    table.meanings.emplace_back();
  }
  table.meanings[at].push_back(std::move(meaning));
}

/// Adds labels with their quantities and units, and those of steps.
void add_labels(LogTable& table, const Json& lists, std::optional<std::size_t> trainer) {
  for (const LabelUse use : {LabelUse::step, LabelUse::field, LabelUse::follow, LabelUse::ahead}) {
    for (const Json& field : lists.value(std::string(kUses[std::size_t(use)]), Json::array())) {
      LabelMeaning meaning{.use = use, .trainer = trainer};
      if (use == LabelUse::step) {
        add(table, field, meaning);
        continue;
      }
      if (field[1] != "mark") meaning.quantity = LogQuantity(index_of(kQuantities, field[1]));
      if (meaning.quantity >= LogQuantity::allocated) meaning.use = LabelUse::memory;
      meaning.unit = printed_unit(field[2]);
      add(table, field[0], meaning);
    }
  }
}

LogTable read_table() {
  LogTable table;
  const Json json = known_json(reader_presets(), "training-logs");
  for (const Json& entry : json["trainers"]) {
    add_labels(table, entry, table.trainers.size());
    table.trainers.push_back({.name = entry["name"],
                              .doubt = entry.value("doubt", ""),
                              .counted = entry.value("counted", false),
                              .number_before = entry.value("number_before", false),
                              .opens_alone = entry.value("opens_alone", false),
                              .table = entry.value("columns", false),
                              .bars = entry.value("bars", std::vector<std::string>())});
  }
  add_labels(table, json["memory"], std::nullopt);
  for (const Json& other : json["others"]) {
    add(table, other[0],
        {.use = LabelUse(index_of(kUses, other[1])),
         .name = other.size() > 2 ? other[2].get<std::string>() : ""});
  }
  for (const auto& [name, word] : json["timers"]["phases"].items()) {
    for (const Phase phase : {Phase::forward, Phase::backward, Phase::optimizer})
      if (word == to_text(phase)) table.phases[name] = phase;
  }
  table.scanner = LabelScanner(table.labels);
  return table;
}

}  // namespace

/// The automaton is built breadth first: a missing transition is that of the longest proper suffix.
LabelScanner::LabelScanner(const std::vector<std::string>& labels) {
  for (const std::string& label : labels) {
    for (const char c : label) {
      std::uint8_t& kind = kinds_[static_cast<unsigned char>(c)];
      if (kind == 0) kind = static_cast<std::uint8_t>(width_++);
    }
  }
  const auto add_state = [&] {
    next_.resize(next_.size() + width_);
    ends_.emplace_back();
    return static_cast<std::uint16_t>(ends_.size() - 1);
  };
  add_state();
  for (std::size_t i = 0; i < labels.size(); ++i) {
    std::size_t state = 0;
    for (const char c : labels[i]) {
      const std::size_t at = state * width_ + kinds_[static_cast<unsigned char>(c)];
      if (next_[at] == 0) {
        INVARIANT(ends_.size() < 65'535, "states of the labels");
        const std::uint16_t added = add_state();
        next_[at] = added;
      }
      state = next_[at];
    }
    ends_[state].push_back(static_cast<std::uint16_t>(i));
    lengths_.push_back(labels[i].size());
  }
  std::vector<std::uint16_t> suffix(ends_.size(), 0), queue = {0};
  for (std::size_t at = 0; at < queue.size(); ++at) {
    const std::uint16_t state = queue[at];
    for (std::size_t kind = 1; kind < width_; ++kind) {
      std::uint16_t& child = next_[state * width_ + kind];
      const std::uint16_t other = state == 0 ? 0 : next_[suffix[state] * width_ + kind];
      if (child == 0) {
        child = other;
        continue;
      }
      suffix[child] = other;
      ends_[child].insert(ends_[child].end(), ends_[other].begin(), ends_[other].end());
      queue.push_back(child);
    }
  }
  for (const auto& ends : ends_) any_.push_back(!ends.empty());
}

void LabelScanner::scan(std::string_view line, std::vector<LabelHit>& hits) const {
  hits.clear();
  std::size_t state = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    state = next_[state * width_ + kinds_[static_cast<unsigned char>(line[i])]];
    if (any_[state] == 0) [[likely]]
      continue;
    for (const std::uint16_t label : ends_[state]) {
      hits.push_back({label, i + 1 - lengths_[label], i + 1});
    }
  }
}

const LogTable& log_table() {
  static const LogTable table = read_table();
  return table;
}

}  // namespace plimsoll
