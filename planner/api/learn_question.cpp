// Learns from runs, and prints what was learned as text and as JSON.
#include "planner/api/learn_question.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "base/command_line.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log_statistics.h"
#include "base/text.h"
#include "planner/api/run_findings.h"
#include "predict/tried_layouts.h"
#include "reports/plan_words.h"

namespace plimsoll {
namespace {

std::string left_out_text(const SteadyPart& steady) {
  std::array<std::int64_t, 5> counts{};
  for (const LeftOutStep& step : steady.left_out) ++counts[std::size_t(step.reason)];
  std::vector<std::string> words;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) words.push_back(fmt::format("{} {}", counts[i], kLeftOutReasons[i]));
  }
  return words.empty() ? "" : fmt::format("; left out: {}", fmt::join(words, ", "));
}

/// "-12.3 %" of a predicted step.
std::string error_text(Seconds predicted, Seconds measured) {
  return fmt::format("{:+.1f} %", 100 * (predicted / measured - 1));
}

std::string runs_text(const std::vector<OwnRun>& own, const Learned& learned) {
  std::string text;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const LearnedRun& run = learned.runs[i];
    const SteadyPart& steady = own[i].steady;
    text += fmt::format("{}: {}, {} of {} steps{}\n", own[i].file, own[i].log.trainer, steady.steps,
                        own[i].log.distinct_steps, left_out_text(steady));
    text += fmt::format(
        "  step {} (half of them {} to {}); predicted before {} ({}), now {} ({})\n",
        to_text(run.measured), to_text(steady.lower_quartile), to_text(steady.upper_quartile),
        to_text(run.before), error_text(run.before, run.measured), to_text(run.after),
        error_text(run.after, run.measured));
    for (const LearnedPart& part : run.parts) {
      text += fmt::format("  {} {}; predicted before {} ({}), now {} ({})\n",
                          kTimedParts[std::size_t(part.part)], to_text(part.measured),
                          to_text(part.before), error_text(part.before, part.measured),
                          to_text(part.after), error_text(part.after, part.measured));
    }
    for (const LoggedPeak& peak : own[i].run.peaks) {
      text +=
          fmt::format("  {} {} at most; predicted before {} ({:+.1f} %)\n", to_text(peak.kind),
                      to_text(peak.measured), to_text(peak.predicted),
                      100 * (double(peak.predicted.count()) / double(peak.measured.count()) - 1));
    }
    if (run.peak_contradicts) text += "  its memory contradicts the prediction or the other runs\n";
    if (run.left_out) {
      text += fmt::format(
          "  by the other runs {:+.1f} %, expected within +-{:.1f} %{}\n",
          100 * std::expm1(-run.left_out->error),
          100 * std::expm1(kNormal90 * run.left_out->deviation),
          run.contradicts ? ": they contradict it, and nothing was learned from it" : "");
    }
    if (run.unlikely)
      text += "  this is unlikely: check that the log is of this script and this cluster\n";
    for (const std::string& doubt : own[i].log.doubts) text += fmt::format("  {}\n", doubt);
  }
  return text;
}

std::string values_text(const std::vector<OwnRun>& own, const FittedCalibration& fitted) {
  std::string text = fmt::format("{:36}{:>11}{:>11}  90 %\n", "learned", "before", "now");
  std::vector<std::string> open;
  for (const FittedValue& value : fitted.values) {
    if (!value.determined) {
      open.push_back(value.name);
      continue;
    }
    text += fmt::format("  {:34}{:>11.4g}{:>11.4g}  {:.4g} to {:.4g}\n", value.name, value.prior,
                        value.value, value.low, value.high);
  }
  std::vector<LayerShape> known;
  for (const OwnRun& one : own) {
    const LayerShape& shape = one.run.shape;
    const auto point = std::ranges::find(fitted.layers, shape, &LayerPoint::shape);
    const bool is_learned = point != fitted.layers.end();  // unless all of its runs contradict
    if (!is_learned || std::ranges::find(known, shape) != known.end()) continue;
    known.push_back(shape);
    text += fmt::format("  {:34}{:>11.3f}{:>11.3f}\n",
                        fmt::format("layers, {} tokens, mp {}", shape.tokens, shape.mp),
                        one.run.layer_factor, point->factor);
  }
  if (const auto& memory = fitted.learned->memory) {
    text += fmt::format("  {:34}{:>11}{:>11.4g}  {:.4g} to {:.4g}\n", "reserved memory", 1,
                        memory->factor, memory->factor * (1 - memory->half_width),
                        memory->factor * (1 + memory->half_width));
  }
  if (!open.empty())
    text +=
        fmt::format("  hardly moved, since no run depends much on it: {}\n", fmt::join(open, ", "));
  return text;
}

/// Makes the folder in which commands look.
void make_learned_folder(const std::filesystem::path& output) {
  const std::filesystem::path folder = output.parent_path();
  std::error_code unmade;  // writing the file names the fault
  if (folder.filename() == ".plimsoll") std::filesystem::create_directory(folder, unmade);
}

/// Names runs that the file was learned from, and that are not given again.
void note_lost_runs(const LearnQuestion& question, const std::string& output) {
  if (!std::filesystem::exists(output)) return;
  std::optional<FittedCalibration> before;
  try {
    before = parse_fitted_calibration(read_file(output), output);
  } catch (const InputError&) {  // another kind of file is written over
    return;
  }
  if (!before->learned) return;
  for (const LearnedStep& run : before->learned->runs) {
    if (std::ranges::find(question.logs, run.log) != question.logs.end()) continue;
    question.target.note(
        fmt::format("{}: replaced, and no longer learned from {}", output, run.log));
  }
}

}  // namespace

LearnAnswer learn_runs(const LearnQuestion& question, const std::string& output) {
  std::vector<std::string> inputs = question.scripts;
  inputs.insert(inputs.end(), question.logs.begin(), question.logs.end());
  inputs.insert(inputs.end(), question.traces.begin(), question.traces.end());
  inputs.push_back(question.target.cluster);
  make_learned_folder(output);
  check_output("-o", output, inputs);
  LearnAnswer answer{read_runs(question), {}};
  std::vector<FitRun> runs;
  for (const OwnRun& one : answer.runs) runs.push_back(one.run);
  FittedCalibration& fitted = answer.learned.fitted;
  answer.learned = learn(std::move(runs), answer.runs[0].run.target.fitted);
  for (std::size_t i = 0; i < answer.runs.size(); ++i) {
    const OwnRun& own = answer.runs[i];
    const PublishedTarget& target = own.run.target;
    const LearnedRun& run = answer.learned.runs[i];
    std::optional<Seconds> by_others;
    if (run.left_out) by_others = run.measured * std::exp(-run.left_out->error);
    fitted.sources.push_back(own.file);
    fitted.learned->runs.push_back(
        {own.file, layout_text(target.job, target.framework, target.strategies[0]),
         digest_of(target.job, target.devices, target.cluster, target.framework),
         digest_of(target.job, target.strategies[0]), run.measured, run.before, run.after,
         by_others, run.contradicts});
  }
  if (output.empty()) return answer;
  const std::string text = fitted_calibration_text(fitted);
  parse_fitted_calibration(text, output);  // what is written can be read
  note_lost_runs(question, output);
  write_file_atomically(output, text);
  return answer;
}

std::string learned_text(const LearnAnswer& answer) {
  const auto& [own, learned] = answer;
  const PublishedTarget& target = own[0].run.target;
  std::string text = fmt::format(
      "{} {} on {} with {}; before: {}\n{}\n{}\nother steps like these: +-{:.0f} % (90 %), before "
      "+-{:.0f} %\n",
      own.size(), own.size() == 1 ? "run" : "runs", target.cluster.name, target.framework.name,
      own[0].basis, runs_text(own, learned), values_text(own, learned.fitted),
      100 * learned.half_width, 100 * learned.half_width_before);
  if (target.measured) {
    text += fmt::format("measured costs {}: plan with --calibration for both files\n",
                        target.cluster.efficiency ? "are unchanged" : "are corrected by factors");
  }
  return in_columns(text);
}

std::string learned_json(const LearnAnswer& answer, const std::string& output) {
  const auto& [own, learned] = answer;
  Json runs = Json::array();
  for (std::size_t i = 0; i < own.size(); ++i) runs.push_back(run_json(own[i], learned.runs[i]));
  Json values = Json::array();
  for (const FittedValue& value : learned.fitted.values) {
    values.push_back({{"name", value.name},
                      {"before", value.prior},
                      {"value", value.value},
                      {"low", value.low},
                      {"high", value.high},
                      {"determined", value.determined}});
  }
  const auto& memory = learned.fitted.learned->memory;
  return json_text(
      {{"cluster", learned.fitted.cluster},
       {"framework", learned.fitted.framework},
       {"basis", own[0].basis},
       {"runs", std::move(runs)},
       {"values", std::move(values)},
       {"noise", learned.fitted.learned->noise},
       {"memory", memory ? Json{{"factor", memory->factor}, {"half_width", memory->half_width}}
                         : Json(nullptr)},
       {"half_width", learned.half_width},
       {"half_width_before", learned.half_width_before},
       {"output", output.empty() ? Json(nullptr) : Json(output)}});
}

}  // namespace plimsoll
