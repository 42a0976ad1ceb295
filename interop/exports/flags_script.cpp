// Writes scripts with the flags of a plan.
#include "interop/exports/flags_script.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "graph/program.h"
#include "interop/flags/flag_document.h"
#include "interop/flags/flag_fields.h"
#include "interop/flags/flag_reader.h"
#include "interop/flags/framework_flags.h"
#include "passes/pipeline.h"

namespace plimsoll {
namespace {

/// The job with the vocabulary that was stated.
Job stated_job_of(const Plan& plan) {
  Job job = plan.job;
  job.vocab = plan.stated_vocabulary;
  return job;
}

std::vector<GivenFlag> as_given(const std::vector<std::vector<std::string>>& flags) {
  std::vector<GivenFlag> given;
  for (const std::vector<std::string>& words : flags) {
    GivenFlag flag{words[0], {}, 0};
    for (std::size_t i = 1; i < words.size(); ++i) flag.words.push_back({words[i]});
    given.push_back(std::move(flag));
  }
  return given;
}

/// Returns the names that stand for all sizes of a model.
std::vector<std::string> named_models(const FlagTable& table) {
  std::vector<std::string> names;
  for (const FlagRow& row : table.rows) {
    const bool sizes = std::ranges::find(row.when, "layers", &FlagCondition::key) != row.when.end();
    if (row.kind == FlagRow::Kind::flag && sizes)
      names.push_back(fmt::format("{}", fmt::join(row.words.begin() + 1, row.words.end(), " ")));
  }
  return names;
}

/// Three fields together say how layers are split; several of their values mean one split.
bool says_how_layers_split(std::string_view key) {
  return key == "layer_split" || key == "embedding_as_layers" || key == "loss_as_layers";
}

std::vector<LostChoice> differences(const FlagFields& planned, const FlagFields& read,
                                    bool same_layers) {
  std::vector<LostChoice> lost;
  for (const auto& [key, value] : planned) {
    const auto other = read.find(key);
    const std::string nearest = other == read.end() ? "none" : other->second;
    if (same_value(value, nearest)) continue;
    if (same_layers && says_how_layers_split(key)) continue;
    // How the vocabulary is padded shows in its size, which is compared.
    if (key == "vocab" || key.ends_with("vocabulary_multiple") || key == "padded_vocabulary")
      continue;
    lost.push_back({key, value, nearest});
  }
  return lost;
}

/// Returns the fields that the program has from elsewhere.
std::vector<ChoiceBeside> choices_beside(const Plan& plan, const FlagTable& table,
                                         const FlagFields& planned) {
  std::vector<ChoiceBeside> choices;
  const auto keys = strategy_keys();
  for (const FlagException& beside : table.beside) {
    if (!all_hold(planned, beside.when)) continue;
    for (const std::string& key : beside.names) {
      const bool of_strategy = std::ranges::find(keys, key) != keys.end();
      choices.push_back(
          {key, of_strategy ? field_text(plan.strategy, key) : planned.at(key), beside.because});
    }
  }
  return choices;
}

/// Removes choices without effect: with the nearest value the plan has the same Programs.
void drop_without_effect(std::vector<LostChoice>& lost, const Plan& plan) {
  // Several orders may number the ranks of these degrees alike.
  std::erase_if(lost, [&](const LostChoice& choice) {
    if (choice.key != "rank_order") return false;
    Strategy strategy = plan.strategy;
    set_field(strategy, choice.key, choice.nearest);
    return same_ranks(plan.strategy, plan.strategy.rank_order, strategy.rank_order);
  });
  const auto keys = strategy_keys();
  const bool of_strategy = std::ranges::any_of(lost, [&](const LostChoice& choice) {
    return std::ranges::find(keys, choice.key) != keys.end();
  });
  if (!of_strategy) return;
  const std::vector<Program> planned =
      lower({plan.job, plan.strategy, plan.framework}, {}, Proof::none);
  std::erase_if(lost, [&](const LostChoice& choice) {
    if (std::ranges::find(keys, choice.key) == keys.end()) return false;
    Strategy strategy = plan.strategy;
    set_field(strategy, choice.key, choice.nearest);
    return legal(plan.job, strategy, plan.devices) &&
           lower({plan.job, strategy, plan.framework}, {}, Proof::none) == planned;
  });
}

}  // namespace

PlanFlags flags_of(const Plan& plan, const FlagTable& table, const std::string& file) {
  PlanFlags result;
  FlagFields& planned = result.planned;
  planned = fields_of(stated_job_of(plan), plan.strategy, plan.framework);
  const std::int64_t mp = plan.strategy.mp;
  planned["padded_vocabulary"] = fmt::format("{}", (plan.job.vocab + mp - 1) / mp * mp);
  FlagFields written = planned;  // and what follows from the number of devices
  const std::int64_t per_node = std::min(plan.devices, plan.devices_per_node);
  written["devices"] = fmt::format("{}", plan.devices);
  written["nodes"] = fmt::format("{}", (plan.devices + per_node - 1) / per_node);
  result.flags = table.options ? options_of(table, written) : flags_of(table, written);
  for (const FlagRow& row : table.environment) {
    const bool there =
        std::ranges::find(result.environment, row.words[0]) != result.environment.end();
    if (!there && row_holds(planned, row)) result.environment.push_back(row.words[0]);
  }
  const std::vector<GivenFlag> given =
      table.options    ? flags_in_options(table, as_given(result.flags), file)
      : table.document ? flags_in_document(table, document_of(table, written, {}), file)
                       : as_given(result.flags);
  FlagFields known = {{"devices", fmt::format("{}", plan.devices)}, {"name", plan.job.name}};
  if (!states_model(table)) known.merge(fields_of_model(stated_job_of(plan)));
  result.beside = choices_beside(plan, table, planned);
  for (const ChoiceBeside& choice : result.beside) known[choice.key] = planned.at(choice.key);
  FlagReading reading = read_flags(table, given, std::move(known), file);
  const auto family = reading.fields.find("family");
  if (family == reading.fields.end()) {
    throw InputError(file, "/job",
                     fmt::format("{} names its models and has none of these sizes; known: {}",
                                 table.target->name, fmt::join(named_models(table), ", ")));
  }
  if (family->second != planned.at("family")) {
    throw InputError(file, "/job/family",
                     fmt::format("found \"{}\"; the flags of {} state no such job",
                                 planned.at("family"), table.target->name));
  }
  result.job = states_model(table) ? job_of(reading.fields, file)
                                   : job_over(stated_job_of(plan), reading.fields, file);
  result.strategy = strategy_of(reading.fields, file);
  result.framework = framework_of(reading.fields, file);
  const FlagFields read = fields_of(result.job, result.strategy, result.framework);
  result.job.vocab = plan.job.vocab;
  result.lost = differences(
      planned, read,
      layers_per_part(plan.job, plan.strategy) == layers_per_part(result.job, result.strategy));
  planned = std::move(written);
  drop_without_effect(result.lost, plan);
  return result;
}

namespace {

/// Returns the command that starts the program on a node.
std::string launch_of(const FlagTarget& target, std::int64_t per_node, std::int64_t nodes) {
  if (!target.launcher.empty()) {
    std::string launcher = target.launcher;
    const std::string_view count = "{nodes}";
    if (const std::size_t at = launcher.find(count); at != launcher.npos)
      launcher.replace(at, count.size(), fmt::format("{}", nodes));
    return launcher + " " + target.program;
  }
  return fmt::format("torchrun --nproc_per_node {} --nnodes {} {}", per_node, nodes,
                     target.program);
}

std::vector<std::string> lines_beside(const PlanFlags& flags) {
  std::vector<std::string> lines;
  for (const ChoiceBeside& choice : flags.beside)
    lines.push_back(
        fmt::format("{} is {} in the plan; {}.", choice.key, choice.planned, choice.because));
  return lines;
}

}  // namespace

std::vector<std::string> document_comments(const Plan& plan, const FlagTable& table,
                                           const PlanFlags& flags) {
  const FlagTarget& target = *table.target;
  const std::int64_t per_node = std::min(plan.devices, plan.devices_per_node);
  const std::int64_t nodes = (plan.devices + per_node - 1) / per_node;
  std::vector<std::string> lines;
  lines.push_back(
      fmt::format("{}: {}", as_one_word(plan.job.name), strategy_summary(flags.strategy)));
  lines.push_back(fmt::format("For {} of {}, on {} node{} of {} device{}, each started as",
                              as_one_word(plan.framework.name), target.version, nodes,
                              nodes == 1 ? "" : "s", per_node, per_node == 1 ? "" : "s"));
  lines.push_back("  " + launch_of(target, per_node, nodes));
  for (const std::string& setting : flags.environment)
    lines.push_back(fmt::format("with {} in its environment.", setting));
  lines.push_back(fmt::format("A plan does not state {}.", target.unstated));
  lines.push_back(fmt::format("Ranks are numbered in the order {}: the first axis changes fastest,",
                              field_text(flags.strategy, "rank_order")));
  lines.push_back("and ranks fill nodes in order.");
  for (const std::string& line : lines_beside(flags)) lines.push_back(line);
  for (const LostChoice& lost : flags.lost) {
    lines.push_back(fmt::format("Not stated: {} is {} in the plan and {} here.", lost.key,
                                lost.planned, lost.nearest));
  }
  return lines;
}

std::vector<std::pair<std::string, Json>> trial_settings(const FlagTarget& target,
                                                         std::int64_t steps) {
  std::vector<std::pair<std::string, Json>> settings = target.trial;
  for (auto& [key, value] : settings)
    if (value == "{steps}") value = steps;
  return settings;
}

std::string flags_document(const Plan& plan, const FlagTable& table, const PlanFlags& flags) {
  return document_of(table, flags.planned, document_comments(plan, table, flags), flags.trial);
}

std::string flags_script(const Plan& plan, const FlagTable& table, const PlanFlags& flags) {
  const std::int64_t per_node = std::min(plan.devices, plan.devices_per_node);
  const std::int64_t nodes = (plan.devices + per_node - 1) / per_node;
  std::string script = "#!/bin/bash\n";
  const auto add = [&](const std::string& line) { script += line + "\n"; };
  add(fmt::format("# {}: {}", as_one_word(plan.job.name), strategy_summary(flags.strategy)));
  add(fmt::format("# For {} of {}, on {} node{} of {} devices.", as_one_word(plan.framework.name),
                  table.target->version, nodes, nodes == 1 ? "" : "s", per_node));
  add("# Further arguments of this script state what a plan does not:");
  add(fmt::format("# {}.", table.target->unstated));
  add(fmt::format("# Ranks are numbered in the order {}: the first axis changes fastest, and ranks",
                  field_text(flags.strategy, "rank_order")));
  add("# fill nodes in order. Each node starts this script with its NODE_RANK.");
  for (const std::string& line : lines_beside(flags)) add("# " + line);
  add("set -euo pipefail");
  for (const std::string& setting : flags.environment) {
    const std::size_t equals = setting.find('=');
    add("export " + setting.substr(0, equals + 1) + shell_word(setting.substr(equals + 1)));
  }
  add("LAUNCH=(");
  add(fmt::format("  --nproc_per_node {}", per_node));
  add(fmt::format("  --nnodes {}", nodes));
  add(nodes > 1 ? "  --node_rank \"${NODE_RANK:?}\"" : "  --node_rank 0");
  add(nodes > 1 ? "  --master_addr \"${MASTER_ADDR:?}\"" : "  --master_addr localhost");
  add("  --master_port \"${MASTER_PORT:-29500}\"");
  add(")");
  add("ARGS=(");
  for (const std::vector<std::string>& words : flags.flags) {
    std::string line = " ";
    for (const std::string& word : words) line += " " + shell_word(word);
    add(line);
  }
  for (const auto& [option, value] : flags.trial) add(fmt::format("  {} {}", option, value.dump()));
  add(")");
  add(fmt::format("exec torchrun \"${{LAUNCH[@]}}\" {} \"${{ARGS[@]}}\" \"$@\"",
                  table.target->program));
  return script;
}

std::optional<PlanExport> plan_export(const Plan& plan) {
  std::optional<PlanExport> best;
  const auto look = [&](const FlagTable& table) {
    if (!table.target || !table.target->exported || table.target->by_version) return;
    if (std::ranges::find(table.frameworks, plan.framework.name) == table.frameworks.end()) return;
    try {
      PlanFlags flags = flags_of(plan, table, "plan");
      if (!best || flags.lost.size() < best->flags.lost.size()) best = {&table, std::move(flags)};
    } catch (const InputError&) {  // the program has no such job
    }
  };
  const FlagTable* own = flag_table_of(plan.framework.name);
  if (own != nullptr) look(*own);
  for (const FlagTable& table : flag_tables()) {
    if (best && best->flags.lost.empty()) break;
    if (&table != own) look(table);
  }
  return best;
}

std::optional<ReportFlags> report_flags(const Plan& plan) {
  const auto best = plan_export(plan);
  if (!best) return std::nullopt;
  const auto& [table, flags] = *best;
  ReportFlags result;
  result.target = table->target->name;
  result.text = table->document && !table->options ? flags_document(plan, *table, flags)
                                                   : flags_script(plan, *table, flags);
  for (const LostChoice& one : flags.lost) {
    result.lost += fmt::format("{}{} is {}, and the flags give {}", result.lost.empty() ? "" : "; ",
                               one.key, one.planned, one.nearest);
  }
  return result;
}

}  // namespace plimsoll
