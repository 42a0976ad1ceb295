// Writes a plan or a prediction in a few lines.
#include "planner/cli/brief.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "models/calibration/fitted_calibration.h"
#include "models/job/causal_flops.h"
#include "passes/strategy/expert_rows.h"
#include "passes/strategy/strategy_fields.h"
#include "plan/filling.h"
#include "predict/expert_memory.h"
#include "predict/step_interval.h"
#include "predict/trials.h"
#include "predict/tried_layouts.h"
#include "reports/numbers.h"
#include "reports/plan_words.h"
#include "reports/text_lines.h"

namespace plimsoll {
namespace {

/// A prediction with all that lines on it need.
struct Step {
  const LoadedTarget& loaded;
  const Strategy& strategy;
  const Prediction& prediction;
  bool oversubscribed = false;

  const Target& target() const { return loaded.target; }
};

/// Returns "GPU" or "core": what tokens and hours are counted by.
std::string_view device_word(const Target& target) {
  return target.cluster().device.kind == DeviceKind::gpu ? "GPU" : "core";
}

/// Smaller shares of a step are 0.0 %.
constexpr double kLeastBriefly = 0.0005;

std::string step_text(const Step& step) {
  const Prediction& p = step.prediction;
  if (step.oversubscribed)
    return fmt::format("{}; more ranks than cores, so that no run will take as long",
                       to_text(p.step_time));
  return fmt::format("{} (90 % interval {})", to_text(p.step_time),
                     joined_amounts(to_text(p.step_time_low), "to", to_text(p.step_time_high)));
}

std::string speed_text(const Step& step) {
  const Prediction& p = step.prediction;
  const Job& job = step.target().job;
  const std::string_view device = device_word(step.target());
  const double all = training_matmul_flops_per_sequence(job).value();
  const double causal = 1 - 3 * masked_flops_per_sequence(job).value() / all;
  std::string text = fmt::format("{} tokens/s, {} per {}; {} per {}; MFU {:.1f} %",
                                 short_count(p.tokens_per_second),
                                 short_count(p.tokens_per_second / double(step.target().devices)),
                                 device, to_text(p.peak_flops * p.mfu), device, 100 * p.mfu);
  if (causal < 1) text += fmt::format(" (causal half: {:.1f} %)", 100 * p.mfu * causal);
  return text;
}

std::string memory_text(const Step& step) {
  static constexpr std::string_view kWords[] = {"safe", "tight: the interval does not fit",
                                                "does not fit"};
  const Prediction& p = step.prediction;
  std::vector<Filling> fillings;
  for (const StagePrediction& stage : p.stages) {
    fillings.push_back(
        filling_of(stage, outside_program(step.target(), step.strategy), step.target().reserve));
  }
  const std::size_t at = fullest_of(fillings);
  std::string text =
      fmt::format("{} on {}", taken_text(fillings[at]),
                  p.stages.size() == 1 ? fmt::format("each {}", device_word(step.target()))
                                       : name_of(p.stages[at]));
  if (p.memory.low < p.memory.high)
    text += fmt::format(" ({}{})", p.memory.learned ? "as learned " : "",
                        joined_amounts(to_text(p.memory.low), "to", to_text(p.memory.high)));
  const bool even_fits =
      p.memory.verdict == MemoryVerdict::does_not_fit &&
      fits_answer(step.target(), step.strategy, p.stages).fits == Fits::with_even_routing;
  text += fmt::format(
      ": {}", even_fits ? "fits with even routing only" : kWords[std::size_t(p.memory.verdict)]);
  if (step.target().job.experts && step.strategy.ep > 1) {
    const RowsRoom room = rows_room(step.target().job, step.target().framework(), step.strategy);
    text += fmt::format("; expert rows {} % of even", room.percent);
  }
  const Bytes host = largest(p.stages, &StagePrediction::host);
  if (host > Bytes()) text += fmt::format("; {} of host memory per rank", to_text(host));
  return text;
}

std::string days_text(const Step& step, const std::optional<Training>& asked) {
  const Job& job = step.target().job;
  const Prediction& p = step.prediction;
  const TrainingStep one{p.step_time, p.step_time_low, p.step_time_high, tokens_per_step(job),
                         step.target().devices};
  return training_text(asked ? *asked : training_of(one, {kUsualTokens, std::nullopt}),
                       step.target().cluster().device.kind);
}

std::string where_text(const Prediction& p) {
  const Breakdown& b = p.breakdown;
  const std::array<std::pair<std::string_view, Seconds>, 6> terms = {
      {{"compute", b.forward + b.backward},
       {"recompute", b.recompute},
       {"optimizer", b.optimizer},
       {"communication", b.exposed_communication},
       {"bubble", b.bubble},
       {"host", b.dispatch}}};
  std::vector<std::string> texts;
  for (const auto& [name, time] : terms) {
    if (time >= kLeastBriefly * p.step_time)
      texts.push_back(fmt::format("{} {:.1f} %", name, 100 * (time / p.step_time)));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

/// Names shapes that nothing was measured for, if they take a tenth of the ops' time.
std::string doubt_text(const Prediction& p) {
  const double share = p.share_by_provenance[std::size_t(Provenance::extrapolated)];
  return share < 0.1 ? "" : fmt::format("; {:.0f} % of op time is extrapolated", 100 * share);
}

/// Returns what examples of several lengths leave of sequences, and how unequal ranks are.
std::string examples_text(const Target& target, const Strategy& strategy) {
  const Job& job = target.job;
  if (job.lengths.empty()) return "";
  const SlowestRank slowest = slowest_rank(target, strategy);
  return fmt::format(
      "{}{}, {:.1f} % padding, {:.1f} % of the scores of whole sequences; attention of the slowest "
      "rank {:.2f} x the mean, +- {:.2f} from step to step",
      job.packing == Packing::packed ? "packed" : "padded", job.balanced ? ", balanced" : "",
      100 * (1 - share_of_tokens(job)), 100 * share_of_scores(job, {.sequence = job.sequence}),
      slowest.mean, slowest.deviation);
}

/// Returns all lines but the commands.
std::string lines_of(const Step& step, const std::optional<Training>& training,
                     const std::string& found) {
  const Target& target = step.target();
  std::string text = brief_headline(step.loaded, found);
  text += labelled_line("layout", layout_text(target.job, target.framework(), step.strategy));
  text += labelled_line("step", step_text(step));
  text += labelled_line("speed", speed_text(step));
  text += labelled_line("examples", examples_text(target, step.strategy));
  text += labelled_line("memory", memory_text(step));
  if (!step.oversubscribed) text += labelled_line("days", days_text(step, training));
  text += labelled_line("where", where_text(step.prediction));
  if (target.cluster().device.kind == DeviceKind::gpu)
    text += labelled_line(
        "host", host_bound_text(step.prediction, target.job, target.framework(), step.strategy));
  const std::string& assumed = step.loaded.source.assumed;
  text += labelled_line("rests on", basis_text(step.loaded) + doubt_text(step.prediction) +
                                        (assumed.empty() ? "" : "; " + assumed));
  return text;
}

std::string next_text(const std::vector<std::string>& commands) {
  std::string text;
  for (const std::string& command : commands)
    text += command_line(text.empty() ? "next" : "", command);
  return text;
}

/// Returns how good the plan is among all.
std::string found_text(const Plan& plan) {
  const SearchSummary& search = plan.search;
  const std::string of = fmt::format(": {} layouts", short_count(double(search.space)));
  if (search.proven) return of + ", proven";
  if (search.gap == 0) return of + ", not all seen";
  return of + fmt::format(", not proven: at most {:.1f} % faster is possible",
                          100 * possible_gain(search));
}

/// Whether a difference to the step is 0.0 % in print.
bool is_nothing(double difference) { return std::abs(difference) < kLeastBriefly; }

/// Returns the plans that differ from the chosen one in the words of a layout, the fastest first.
/// Plans with more unusual choices than it are left out, and so are faster ones, and those that
/// are as fast and take as much memory.
std::vector<const OtherPlan*> other_plans(const Plan& plan) {
  std::vector<const OtherPlan*> all;
  const Seconds step = plan.prediction.step_time;
  const auto add = [&](const OtherPlan& one) {
    if (one.step_time < step || handicap(one.unusual) > handicap(plan.unusual)) return;
    if (is_nothing(one.step_time / step - 1) &&
        !saves_enough(one.taken, plan.prediction.memory.taken))
      return;
    if (!layout_change(plan.job, plan.framework, one.strategy, plan.strategy).empty())
      all.push_back(&one);
  };
  for (const RunnerUp& one : plan.runners_up) add(one);
  for (const OtherPlan& one : plan.pareto) add(one);
  std::ranges::stable_sort(all, {}, &OtherPlan::step_time);
  return all;
}

/// A plan is an alternative if it takes at most so much of the memory of the one before it.
constexpr std::array kAlternatives = {1e9, 0.85, 0.6};

/// Returns the fastest other plan, and the fastest ones that take much less memory.
std::vector<const OtherPlan*> alternatives_of(const Plan& plan) {
  const std::vector<const OtherPlan*> all = other_plans(plan);
  std::vector<const OtherPlan*> chosen;
  const Bytes taken = most_taken(plan);
  for (const double share : kAlternatives) {
    const auto found = std::ranges::find_if(all, [&](const OtherPlan* one) {
      return double(one->taken.count()) <= share * double(taken.count()) &&
             std::ranges::none_of(chosen, [&](const OtherPlan* before) {
               return before->taken <= one->taken ||
                      layout_change(plan.job, plan.framework, one->strategy, before->strategy)
                          .empty();
             });
    });
    if (found != all.end()) chosen.push_back(*found);
  }
  return chosen;
}

std::string alternative_text(const Plan& plan, const OtherPlan& other) {
  const Seconds step = plan.prediction.step_time;
  const std::string words = layout_change(plan.job, plan.framework, other.strategy, plan.strategy);
  return fmt::format(
      "{} ({:+.1f} %{}), {}: {}", to_text(other.step_time), 100 * (other.step_time / step - 1),
      other.ratio.tied ? "" : ", slower", to_text(other.taken),
      words.empty() ? fields_text(differing_fields(other.strategy, plan.strategy)) : words);
}

/// Returns the plans that are named next to the chosen one.
std::vector<const OtherPlan*> listed_plans(const Plan& plan, bool all) {
  if (!all) return alternatives_of(plan);
  std::vector<const OtherPlan*> listed;
  for (const RunnerUp& one : plan.runners_up) {
    if (!plan.fastest || one.strategy != plan.fastest->strategy)  // it has a line already
      listed.push_back(&one);
  }
  std::ranges::stable_sort(listed, {}, &OtherPlan::step_time);
  return listed;
}

/// Returns what the script's layout takes as it is.
std::string script_text(const Prediction& script, const Plan& plan) {
  if (script.memory.verdict == MemoryVerdict::does_not_fit)
    return fmt::format("does not fit as it is: {}", to_text(script.memory.taken));
  const double less = 1 - plan.prediction.step_time / script.step_time;
  const std::string step = fmt::format("{}, {} as it is; this plan takes",
                                       to_text(script.step_time), to_text(script.memory.taken));
  if (is_nothing(less)) return step + " as long";
  return step + fmt::format(" {:.1f} % {}", 100 * std::abs(less), less > 0 ? "less" : "more");
}

/// Returns the plan of least predicted step, and why it is not the recommended one. Its layout is
/// named if `with_layout`.
std::string faster_text(const Plan& plan, bool with_layout) {
  if (!plan.fastest || is_nothing(plan.fastest->gain)) return "";
  const FastestPlan& fastest = *plan.fastest;
  const std::string change =
      with_layout ? layout_change(plan.job, plan.framework, fastest.strategy, plan.strategy) : "";
  return fmt::format("{} (-{:.1f} %), {}{}; but {}; --fastest takes it", to_text(fastest.step_time),
                     100 * fastest.gain, to_text(fastest.taken),
                     change.empty() ? "" : ": " + change, words_of(fastest.unusual));
}

/// Returns the fastest layout of the job that was measured, and whether to keep it.
std::string tried_text(const Target& target, const Plan& plan) {
  const LearnedStep* run = fastest_run(target);
  if (!run) return "";
  const Seconds least = plan.fastest ? plan.fastest->step_time : plan.prediction.step_time;
  const bool is_plan = run == last_run(target, plan.strategy);
  return fmt::format(
      "{} in {}: {}{}", to_text(run->measured), run->log, is_plan ? "this plan" : run->layout,
      !is_plan && run->measured < least ? "; keep it, since no plan is predicted to be faster"
                                        : "");
}

/// Returns what to try before a plan trains, what that takes, and what it is expected to gain.
std::string trials_text(const Plan& plan) {
  if (plan.trials.empty()) return "";
  Seconds steps;
  for (const Trial& trial : plan.trials) steps += trial.step_time;
  const double hours = double(kTrialSteps) * steps.value() / 3600;
  return fmt::format(
      "{} steps of {} plan{} ({} GPU-hours): expect a step {:.1f} % shorter; export --trial",
      kTrialSteps, plan.trials.size(), plan.trials.size() == 1 ? "" : "s",
      short_count(hours * double(plan.devices)), 100 * plan.trials.back().gain);
}

}  // namespace

std::string brief_headline(const LoadedTarget& loaded, const std::string& found) {
  const Target& target = loaded.target;
  const double parameters = double(parameter_count(build_forward(stated_job(loaded), 1)));
  const std::string& name = target.job.name;
  const std::string rest =
      fmt::format(" on {}, {}{}", devices_of(target), target.framework().name, found);
  const std::string whole =
      fmt::format("{} ({} parameters){}", name, short_count(parameters), rest);
  return labelled_line("", whole.size() <= kTerminalColumns ? whole : name + rest, 0);
}

std::string devices_of(const Target& target) {
  const Cluster& cluster = target.cluster();
  const bool gpus = cluster.device.kind == DeviceKind::gpu;
  const std::string count = fmt::format("{} {}{}", target.devices, gpus ? "GPU" : "CPU core",
                                        target.devices == 1 ? "" : "s");
  const std::int64_t per_node = cluster.devices_per_node;
  if (target.devices <= per_node || target.devices % per_node != 0)
    return fmt::format("{} of {}", count, cluster.name);
  return fmt::format("{} ({} x {})", count, target.devices / per_node, cluster.name);
}

std::string basis_text(const LoadedTarget& loaded) {
  const CostModel& costs = *loaded.target.costs;
  const std::optional<FittedCalibration>& fitted = costs.fitted();
  std::string rest;
  if (fitted && fitted->learned) {
    rest = fmt::format("{}, learned from {} {} of {} on {}", loaded.source.name, fitted->runs,
                       fitted->runs == 1 ? "run" : "runs", fitted->framework, fitted->cluster) +
           left_out_words(*fitted);
  } else if (fitted && fitted->runs > 0) {
    const ModelSize size = model_size(loaded.target.job);
    const TimeBasis basis = basis_of(fitted, size);
    const bool own = fitted->of_same_people && has_runs_of(*fitted, size);
    rest =
        fmt::format("{} {}runs of {} on {}, {}{}{}", fitted->runs,
                    fitted->of_same_people ? "" : "published ", fitted->framework, fitted->cluster,
                    has_runs_of(*fitted, size)         ? "this model among them"
                    : basis == TimeBasis::fit_of_model ? "a model about as large among them"
                                                       : "none of this model",
                    left_out_words(*fitted),
                    own ? ""
                        : fmt::format(", {:.0f} % off {}", 100 * source_spread(basis).mean_error,
                                      fitted->of_same_people ? "other models" : "other people's"));
  } else if (fitted) {
    rest = fmt::format(
        "rates typical of training, {:.0f} % off other devices and frameworks; no run of {} on {}",
        100 * *fitted->cross_validated_mean, costs.framework().name, costs.cluster().device.name);
  } else {
    rest = costs.cluster().efficiency ? "kernel rates of the cluster file; no training run"
                                      : "rates of the datasheet; nothing was measured";
  }
  if (!costs.calibration()) return rest;
  const bool all_measured = !fitted && costs.host_executes();
  return fmt::format("measurements of {}{}", costs.calibration()->device,
                     all_measured ? "" : "; for the rest " + rest);
}

std::string brief(const LoadedTarget& loaded, const Plan& plan, const BriefEnd& end) {
  const Step step{loaded, plan.strategy, plan.prediction, plan.oversubscribed};
  std::vector<std::string> alternatives;
  for (const OtherPlan* other : listed_plans(plan, end.lists_all)) {
    alternatives.push_back(
        labelled_line(alternatives.empty() ? "instead" : "", alternative_text(plan, *other)));
  }
  const std::string first = alternatives.empty() ? "" : alternatives.front();
  const std::string own = lines_of(step, end.training, found_text(plan)) +
                          labelled_line("script", end.script ? script_text(*end.script, plan) : "");
  std::string lines = own + labelled_line("faster", faster_text(plan, true));
  std::string trials = labelled_line("measured", tried_text(loaded.target, plan)) +
                       labelled_line("try", trials_text(plan));
  // Lines that matter least are left out first: the comment on commands, then the faster layout.
  std::vector<std::string> commands = end.next;
  if (count_lines(lines + first + trials + next_text(commands)) > kBriefLines &&
      !commands.empty() && commands.back().starts_with('#'))
    commands.pop_back();
  const std::string next = next_text(commands);
  if (count_lines(lines + trials + next) > kBriefLines)
    lines = own + labelled_line("faster", faster_text(plan, false));
  if (count_lines(lines + trials + next) > kBriefLines)
    trials = labelled_line("measured", tried_text(loaded.target, plan));
  std::string instead;
  for (const std::string& line : alternatives) {
    if (!end.lists_all && count_lines(lines + instead + line + trials + next) > kBriefLines) break;
    instead += line;
  }
  return lines + instead + trials + next;
}

std::string brief(const NothingFits& refused, const std::string& command) {
  constexpr std::size_t kLabel = 10;
  const FittingChange* change = first_of(refused.found().fitting);
  const auto unusual = [&] {
    return change->unusual.empty() ? "" : "; unusual: " + words_of(change->unusual);
  };
  const std::string words =
      change                    ? fmt::format("{} it takes {}, a step at most {}{}", change->words,
                                              to_text(change->need), to_text(change->step_time), unusual())
      : !refused.found().proven ? "none found that makes it fit; not looked at to the end"
      : command.empty()
          ? "no change that was tried makes it fit"
          : "no change of one or two choices makes it fit; a search tries more at once";
  const auto& [what, filling] = refused.shortage();
  const Bytes over = filling.taken() - filling.capacity;
  const std::string missing =
      filling.fits()   ? "the host has too little memory"
      : over > Bytes() ? fmt::format("{}, {} too much", taken_text(filling), to_text(over))
                       : fmt::format("{}, with less than {} left to keep free", taken_text(filling),
                                     to_text(filling.reserve));
  return fmt::format("{}: {}\n", what, missing) + labelled_line("  change", words, kLabel) +
         (command.empty() ? "" : command_line("  run", command, kLabel));
}

std::string brief(const LoadedTarget& loaded, const Strategy& strategy,
                  const Prediction& prediction, const BriefEnd& end) {
  const Step step{loaded, strategy, prediction, is_oversubscribed(loaded.target)};
  return lines_of(step, end.training, "") + next_text(end.next);
}

}  // namespace plimsoll
