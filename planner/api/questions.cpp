// Loads what questions name, and asks the search, the simulator and the explainer.
#include "planner/api/questions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "interop/imports/imported.h"
#include "planner/api/question_command.h"
#include "planner/search/search.h"

namespace plimsoll {
namespace {

/// Holds what a script states and a search does not vary, precision and offload, unless --fix says
/// otherwise. If --try names other values, the script's is tried in addition to them.
void hold_stated(const Strategy& script, PlanQuestion& question) {
  std::vector<std::string> held;
  Constraints& constraints = question.constraints;
  for (const char* key :
       {"fp8", "fp8_parameters", "gradient_type", "main_gradient_type", "main_parameter_type",
        "moment_type", "stochastic_rounding", "loss_chunks", "release_gradients",
        "offload_optimizer_percent", "overlap_offload", "paged_states", "offload_parameters",
        "offload_activations_percent", "offload_activations_layers"}) {
    const std::string value = field_text(script, key);
    if (is_fixed(constraints.fixed, key) || value == field_text(Strategy(), key)) continue;
    const auto tried = std::ranges::find(constraints.tried, key, &TriedKey::key);
    if (tried != constraints.tried.end()) {
      if (std::ranges::find(tried->values, value) == tried->values.end())
        tried->values.push_back(value);
      continue;
    }
    constraints.fixed.emplace_back(key, value);
    held.push_back(fmt::format("{}={}", key, value));
  }
  if (held.empty()) return;
  question.target.note(
      fmt::format("{}: held as in the script: {}\n", question.target.from, fmt::join(held, ", ")));
}

/// Returns the strategy that is named, else the one of the script.
Strategy strategy_of(const SimulationQuestion& question, const Target& target) {
  const auto& imported = question.target.imported;
  if (!imported) {
    const std::string& name = question.strategy;
    if (name.empty()) throw UsageError("STRATEGY is required");
    const auto given = question.target.texts.find(name);
    const Strategy strategy = given == question.target.texts.end()
                                  ? parse_strategy(name)
                                  : strategy_from_json_text(given->second, name);
    return legal_strategy(target.job, target.framework(), strategy, target.devices);
  }
  if (!question.strategy.empty())
    throw UsageError("found STRATEGY and --from; the file that --from names has the strategy");
  if (!imported->strategy) {
    throw UsageError(fmt::format("--devices is required: {} does not state how many there are",
                                 question.target.from));
  }
  return legal_strategy(target.job, target.framework(), *imported->strategy, target.devices);
}

std::vector<StageMemory> stage_memory(const Target& target, const Strategy& strategy,
                                      const Prediction& prediction) {
  // They were proven when they were predicted.
  const std::vector<Program> programs = lower(context_of(target, strategy), {}, Proof::none);
  std::vector<StageMemory> memory;
  for (const Program& program : programs)
    memory.push_back(memory_at_peak(target, strategy, program, prediction.stages[memory.size()]));
  return memory;
}

/// Refuses a script of another job than the plan's. Name, seed and the optimizer's numbers may
/// differ. So may the vocabulary, which is padded for each strategy.
void check_same_job(const Job& plan, const Job& script, const std::string& file) {
  const Json planned = Json::parse(job_text(plan)), stated = Json::parse(job_text(script));
  std::vector<std::string> differences;
  for (const auto& [key, value] : planned.items()) {
    if (key == "name" || key == "seed" || key == "vocab" || key == "optimizer") continue;
    if (stated.contains(key) && stated[key] != value)
      differences.push_back(fmt::format("{} {}, not {}", key, stated[key].dump(), value.dump()));
  }
  if (plan.optimizer.kind != script.optimizer.kind) differences.push_back("another optimizer");
  if (!differences.empty()) {
    throw InputError(file, "",
                     fmt::format("another job than the plan's: {}", fmt::join(differences, "; ")));
  }
}

/// Notes that dp has no sharding, which results print as one DP with dp.
void note_replicas(const PlanQuestion& question) {
  const Fixed& fixed = question.constraints.fixed;
  for (const auto& [key, value] : fixed) {
    if (key != "dp" || value == "1" || is_fixed(fixed, "sharding_degree")) continue;
    question.target.note(
        fmt::format("--fix dp={}: ranks that share no states (no ZeRO); --fix DP={} allows both\n",
                    value, value));
  }
}

/// Returns the prediction of the layout that a script states; nothing if it is not legal.
std::optional<Prediction> script_step(const TargetOptions& asked, const Target& target) {
  if (!asked.imported || !asked.imported->strategy) return std::nullopt;
  const Strategy& strategy = *asked.imported->strategy;
  if (!legal(target, strategy)) return std::nullopt;
  try {
    return evaluate(target, strategy, Folding::folded).prediction;
  } catch (const InfeasibleError&) {  // a step is longer than the clock holds
    return std::nullopt;
  }
}

}  // namespace

PlanAnswer plan_job(PlanQuestion question) {
  note_replicas(question);
  read_from(question.target);
  if (question.target.imported) hold_stated(*question.target.imported->strategy, question);
  LoadedTarget loaded = load_target(question.target, question.reserve);

  SearchRequest request{loaded.target, question.constraints};
  if (question.top > 0) request.shown = {std::size_t(question.top - 1), Likeness::switches};
  request.fastest = question.fastest;
  request.inputs = {origin_of(loaded, question), loaded.cluster_digest,    loaded.source.digest,
                    loaded.source.rest_digest,   loaded.stated_vocabulary, question.training};
  request.threads = question.threads;
  request.time_limit = question.time_limit;
  request.stop = question.stop;
  request.progress = question.progress;
  const auto begin = std::chrono::steady_clock::now();
  Plan plan = search(request);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  std::optional<Prediction> script = script_step(question.target, loaded.target);
  return {std::move(plan), std::move(loaded), Seconds(elapsed.count()), std::move(script)};
}

SimulationAnswer simulate_job(SimulationQuestion question) {
  read_from(question.target);
  LoadedTarget loaded = load_target(question.target, question.reserve);
  const Target& target = loaded.target;
  const Strategy strategy = strategy_of(question, target);
  Evaluation evaluation = evaluate(target, strategy, question.folding);
  std::vector<StageMemory> memory = stage_memory(target, strategy, evaluation.prediction);
  const Prediction& step = evaluation.prediction;
  std::optional<Training> training;
  if (question.training) {
    training = training_of({step.step_time, step.step_time_low, step.step_time_high,
                            tokens_per_step(target.job), target.devices},
                           *question.training);
  }
  return {std::move(loaded), strategy, std::move(evaluation), std::move(memory), training};
}

ExplainBase explain_base(const Plan& plan, const ExplainQuestion& question) {
  const Constraints& held = plan.constraints;
  if (const auto wrong = contradiction(held.fixed, held.limits, held.tried))
    throw InputError(question.files.plan, "/constraints", *wrong);
  LoadedTarget loaded = target_of_plan(plan, question.files);
  ExplainRequest request{loaded.target, plan.strategy, plan.constraints};
  request.overflow = plan.prediction.memory.overflow;
  request.threads = question.threads;
  request.time_limit = question.time_limit;
  return {std::move(loaded), std::move(request)};
}

Fixed choices_of_script(const Plan& plan, const std::string& file, const TargetOptions& reading) {
  ImportGiven given;
  given.vocab = reading.vocab;
  given.devices = plan.devices;
  const std::string text = read_file(file);
  if (takes_job(text)) {
    given.job = plan.job;
    given.job->vocab = plan.stated_vocabulary;
  }
  const Imported imported = import_text(text, file, given);
  if (!reading.ignore_unknown) refuse_unknown(imported, file);
  if (!imported.strategy) {
    throw InputError(file, "", fmt::format("a {} has no strategy to explain", imported.kind));
  }
  if (imported.devices && *imported.devices != plan.devices) {
    throw InputError(file, "",
                     fmt::format("{} devices; the plan has {}", *imported.devices, plan.devices));
  }
  check_same_job(plan.job, *imported.job, file);
  Fixed choices;
  for (const std::string_view key : strategy_keys()) {
    const std::string asked = field_text(*imported.strategy, key);
    // The script states its recompute, which else would follow from memory (why_not()).
    if (asked != field_text(plan.strategy, key) || key == "recompute")
      choices.emplace_back(key, asked);
  }
  return choices;
}

Explained explain_for_report(const Plan& plan, const ExplainQuestion& question,
                             const std::function<void(std::int64_t, std::int64_t)>& progress,
                             const std::function<bool()>& stop) {
  const bool files_given = !question.files.cluster.empty() || !question.files.calibration.empty();
  try {
    ExplainRequest request = explain_base(plan, question).request;
    if (progress) request.progress = progress;
    if (stop) request.stop = stop;
    return {explanation_for_report(request), ""};
  } catch (const UsageError& missing) {
    if (files_given) throw;
    return {std::nullopt, missing.what()};
  } catch (const InputError& other) {
    if (files_given) throw;
    return {std::nullopt, other.what()};
  }
}

}  // namespace plimsoll
