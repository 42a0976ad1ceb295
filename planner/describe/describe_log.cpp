// Training logs: what was read of the steps, and what the trainer or its profiler printed about
// them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>

#include "planner/describe/describe_input.h"
#include "reports/numbers.h"

namespace plimsoll {
namespace {

constexpr std::size_t kMostNamed = 8;    // steps that a line of text names
constexpr std::size_t kMostListed = 30;  // kernels and collectives

constexpr std::array<std::string_view, 5> kBases = {
    "printed", "printed as a running mean", "differences of a printed clock",
    "differences of time stamps", "batch over throughput"};

/// How a quantity of steps is shown: its label, the unit in JSON, and its words.
struct Shown {
  LogQuantity quantity;
  const char* label;
  const char* unit;
  std::string (*words)(double);
};

std::string seconds_text(double value) { return to_text(Seconds(value)); }
std::string count_text(double value) { return short_number(value); }
std::string loss_text(double value) { return fmt::format("{:.4g}", value); }
std::string flops_text(double value) { return to_text(FlopsPerSecond(value)); }

constexpr Shown kShown[] = {
    {LogQuantity::samples, "global batch", "", count_text},
    {LogQuantity::sequence, "tokens of a sample", "", count_text},
    {LogQuantity::samples_per_second, "samples", "per_s", count_text},
    {LogQuantity::tokens_per_second, "tokens", "per_s", count_text},
    {LogQuantity::device_tokens_per_second, "tokens of a device", "per_s", count_text},
    {LogQuantity::device_flops, "arithmetic of a device", "flops_per_s", flops_text},
    {LogQuantity::loss, "loss", "", loss_text},
    {LogQuantity::device_idle, "device idle", "s", seconds_text},
    {LogQuantity::longest_idle, "longest gap", "s", seconds_text},
    {LogQuantity::exposed_collectives, "exposed collectives", "s", seconds_text},
    {LogQuantity::kernels, "kernels and copies", "", count_text}};

Section log_section(const TrainingLog& log) {
  Section section{"log", "log"};
  section.add("written by", log.trainer);
  section.add_count("steps", log.distinct_steps);
  if (!log.steps.empty()) {
    section.add_count("first step", log.steps.front().number);
    section.add_count("last step", log.steps.back().number);
    section.add_count("runs", std::max<std::int64_t>(1, std::ssize(log.run_begins)));
  }
  if (log.repeats > 0) section.add_count("repeated lines", log.repeats);
  return section;
}

void add_steady(Section& section, const SteadyPart& part, const std::string& prefix) {
  const auto add = [&](const char* label, Seconds time) { section.add_time(prefix + label, time); };
  section.add(prefix + "basis", std::string(kBases[std::size_t(part.basis)]));
  add("median", part.median);
  add("lower quartile", part.lower_quartile);
  add("upper quartile", part.upper_quartile);
  section.add_count(prefix + "steps", part.steps);
}

Section times_section(const TrainingLog& log) {
  Section section{"time of a step, of the steady part", "step_time"};
  if (log.steady) add_steady(section, *log.steady, "");
  if (log.by_clock) add_steady(section, *log.by_clock, "by clock ");
  if (log.mean_step) section.add_time("mean of whole runs", *log.mean_step);
  return section;
}

/// Has the steps that the steady part leaves out, by reason, with their lines.
Section left_out_section(const TrainingLog& log) {
  Section section{"steps left out of it", "left_out"};
  if (!log.steady) return section;
  for (std::size_t reason = 0; reason < kLeftOutReasons.size(); ++reason) {
    std::vector<std::string> words;
    Json steps = Json::array();
    for (const LeftOutStep& out : log.steady->left_out) {
      if (std::size_t(out.reason) != reason) continue;
      steps.push_back({{"step", out.number}, {"line", out.line}});
      if (words.size() < kMostNamed) {
        words.push_back(fmt::format("{} (line {})", out.number, out.line));
      }
    }
    if (steps.empty()) continue;
    std::string text = fmt::format("{}", fmt::join(words, ", "));
    if (steps.size() > words.size()) text += fmt::format(", {} in all", steps.size());
    section.add(std::string(kLeftOutReasons[reason]), std::move(text), std::move(steps));
  }
  return section;
}

Section medians_section(const TrainingLog& log) {
  Section section{"medians", "medians"};
  for (const Shown& shown : kShown) {
    const auto value = log.medians[std::size_t(shown.quantity)];
    if (!value) continue;
    std::string text = shown.words(*value);
    if (shown.unit == std::string_view("per_s")) text += "/s";
    section.add(shown.label, std::move(text), *value, shown.unit);
  }
  return section;
}

/// Has the highest report of each kind.
Section memory_section(const TrainingLog& log) {
  constexpr std::array<const char*, kMemoryQuantities> kLabels = {"allocated", "peak allocated",
                                                                  "reserved", "peak reserved"};
  Section section{"memory, the highest that is reported", "memory"};
  if (log.memory.empty()) return section;
  std::set<std::int64_t> ranks;
  for (const LogMemory& report : log.memory) {
    if (report.rank) ranks.insert(*report.rank);
  }
  section.add_count("reports", std::ssize(log.memory));
  if (!ranks.empty()) section.add_count("ranks", std::ssize(ranks));
  for (std::size_t i = 0; i < kMemoryQuantities; ++i) {
    const auto highest = std::ranges::max_element(
        log.memory, {}, [i](const LogMemory& report) { return report.bytes[i].value_or(-1); });
    const double bytes = highest->bytes[i].value_or(-1);
    if (bytes < 0 || bytes > 9e15) continue;
    const std::string of = highest->rank ? fmt::format("rank {}, ", *highest->rank) : "";
    section.add(
        kLabels[i],
        fmt::format("{} ({}line {})", to_text(Bytes(std::int64_t(bytes))), of, highest->line),
        bytes, "bytes");
  }
  return section;
}

Section timers_section(const TrainingLog& log) {
  Section section{"timers, medians", "timers"};
  for (const LogTimer& timer : log.timers) section.add_time(printable(timer.name), timer.median);
  return section;
}

Section kinds_section(const TrainingLog& log) {
  Section section{"kernels by kind", "kernel_kinds"};
  std::map<std::string, Seconds> totals;
  Seconds all = {};
  const auto add = [&](const std::string& kind, const LogTimes& times) {
    totals[kind] += times.total;
    all += times.total;
  };
  for (const LogKernels& kernels : log.kernels) add(kernels.kind, kernels.times);
  for (const LogCollective& collective : log.collectives) add("collective", collective.times);
  std::vector<std::pair<std::string, Seconds>> kinds(totals.begin(), totals.end());
  std::ranges::stable_sort(kinds, {}, [](const auto& one) { return -one.second.value(); });
  for (const auto& [kind, total] : kinds) {
    const double share = all > Seconds() ? total / all : 0;
    section.add(kind, fmt::format("{} ({})", to_text(total), percent(share)), total.value(), "s");
  }
  return section;
}

std::string times_text(const LogTimes& times) {
  return fmt::format("{} x {} = {}, at least {}", grouped(times.count), to_text(times.median),
                     to_text(times.total), to_text(times.least));
}

void add_times(Json& json, const LogTimes& times) {
  json["count"] = times.count;
  json["total_s"] = times.total.value();
  json["median_s"] = times.median.value();
  json["least_s"] = times.least.value();
}

std::string listed_title(const char* what, std::size_t count) {
  return count <= kMostListed ? what
                              : fmt::format("{}, the {} longest of {}", what, kMostListed, count);
}

Section kernels_section(const TrainingLog& log) {
  Section section{listed_title("kernels by shape", log.kernels.size()), "kernels"};
  section.is_list = true;
  for (const LogKernels& one : log.kernels) {
    if (section.facts.size() == kMostListed) break;
    Json json = {{"kind", one.kind}, {"kernel", one.kernel}};
    if (!one.op.empty()) json["op"] = one.op;
    if (!one.inputs.empty()) json["inputs"] = one.inputs;
    add_times(json, one.times);
    const std::string name = one.op.empty() ? one.kernel : one.op;
    section.add(fmt::format("{} {} {}", one.kind, printable(name), printable(one.inputs, 80)),
                times_text(one.times), std::move(json));
  }
  return section;
}

Section collectives_section(const TrainingLog& log) {
  Section section{listed_title("collectives by size and group", log.collectives.size()),
                  "collectives"};
  section.is_list = true;
  for (const LogCollective& one : log.collectives) {
    if (section.facts.size() == kMostListed) break;
    Json json = {{"collective", one.name},   {"kernel", one.kernel},
                 {"type", one.type},         {"elements", one.elements},
                 {"received", one.received}, {"group_size", one.group_size},
                 {"ranks", one.ranks}};
    if (one.bytes) json["bytes"] = one.bytes->count();
    add_times(json, one.times);
    const std::string size =
        one.bytes ? to_text(*one.bytes)
                  : fmt::format("{} of type {}", grouped(one.elements), printable(one.type));
    section.add(fmt::format("{}, {}, {} ranks", printable(one.name), size, one.group_size),
                times_text(one.times), std::move(json));
  }
  return section;
}

Section arguments_section(const TrainingLog& log) {
  Section section{"arguments that it prints", "arguments"};
  section.is_list = true;
  for (const auto& [name, argument] : log.arguments) {
    section.add(printable(name), printable(argument.value, 200),
                {{"name", name}, {"value", argument.value}, {"line", argument.line}});
  }
  return section;
}

Section doubts_section(const TrainingLog& log) {
  Section section{"doubts", "doubts"};
  section.is_list = true;
  for (std::size_t i = 0; i < log.doubts.size(); ++i) {
    section.add(fmt::format("{}", i + 1), log.doubts[i]);
  }
  return section;
}

}  // namespace

Description describe_log(const TrainingLog& log, const std::string& name) {
  Description description{"training log", name, {}};
  for (const auto section : {log_section, times_section, left_out_section, medians_section,
                             memory_section, doubts_section, timers_section, kinds_section,
                             kernels_section, collectives_section, arguments_section}) {
    description.sections.push_back(section(log));
  }
  return description;
}

}  // namespace plimsoll
