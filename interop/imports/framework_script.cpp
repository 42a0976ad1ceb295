// Finds a framework's flags in a script and reads them.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "interop/flags/flag_document.h"
#include "interop/flags/flag_fields.h"
#include "interop/flags/flag_reader.h"
#include "interop/flags/flag_table.h"
#include "interop/imports/flag_import.h"
#include "interop/imports/readers.h"
#include "interop/shell/shell_words.h"
#include "models/presets/known_json.h"

namespace plimsoll {
namespace {

const Json& launcher_options() {
  static const Json options = known_json(reader_presets(), "launcher-options");
  return options;
}

std::string name_of(const std::string& program) {
  return std::filesystem::path(program).filename().string();
}

/// Returns a number above 0 that is all of a text.
std::optional<std::int64_t> count_in(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // Larger counts are refused where the flags are read.
  constexpr std::int64_t kMost = std::int64_t{1} << 24;
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > kMost)
    return std::nullopt;
  return value;
}

/// Returns the number that the script has for a variable, if it is known.
std::optional<std::int64_t> number_of(const ShellScript& script, std::string_view name) {
  const auto variable = script.variables.find(name);
  if (variable == script.variables.end() || variable->second.size() != 1 ||
      !variable->second[0].unknown.empty())
    return std::nullopt;
  return count_in(variable->second[0].text);
}

/// Returns the count that one of the options `of` states, if it is known.
std::optional<std::int64_t> count_of(const std::vector<GivenFlag>& flags, const char* of) {
  for (const Json& option : launcher_options().at("counts").at(of)) {
    const auto flag =
        std::ranges::find(flags, option.get_ref<const std::string&>(), &GivenFlag::option);
    if (flag == flags.end() || flag->words.empty() || !flag->words[0].unknown.empty()) continue;
    // A word before a colon is the kind of GPU: "gpu:h100:8".
    const std::string& text = flag->words[0].text;
    return count_in(text.substr(text.rfind(':') + 1));
  }
  return std::nullopt;
}

/// Returns whether a word is the name or the path of a launcher that has short options.
bool is_launcher(const ShellWord& word) {
  return launcher_options().at("short").contains(name_of(word.text));
}

/// Returns the long option that a launcher's word stands for: "-N", "-N4" and "-np" of srun and
/// mpirun. A count that is attached is its value.
std::optional<GivenFlag> short_option(const std::string& launcher, const ShellWord& word) {
  const Json& shorts = launcher_options().at("short").at(name_of(launcher));
  const std::string name = word.text.substr(0, word.text.find_first_of("0123456789"));
  const auto found = shorts.find(name);
  if (found == shorts.end()) return std::nullopt;
  GivenFlag flag{found->get<std::string>(), {}, word.line};
  if (name.size() < word.text.size())
    flag.words.push_back({word.text.substr(name.size()), word.unknown});
  return flag;
}

/// Returns the ranks that a launcher starts by its options and the script's lines "#SBATCH": its
/// tasks, or its GPUs. The result is empty if neither is stated, or if both are and differ. Notes
/// say what is assumed.
std::optional<std::int64_t> launched_ranks(const ShellScript& script,
                                           const std::vector<GivenFlag>& flags,
                                           std::vector<std::string>& notes) {
  auto ranks = count_of(flags, "ranks"), gpus = count_of(flags, "gpus");
  auto gpus_per_node = count_of(flags, "gpus_per_node");
  if (!gpus_per_node) gpus_per_node = number_of(script, "SLURM_GPUS_PER_NODE");
  auto per_node = count_of(flags, "ranks_per_node");
  auto nodes = count_of(flags, "nodes");
  // A launcher on fewer nodes than the job's starts fewer of its tasks.
  if (nodes && !ranks && !per_node) per_node = number_of(script, "SLURM_NTASKS_PER_NODE");
  if (!nodes) nodes = number_of(script, "SLURM_NNODES");
  const bool listed = std::ranges::find(flags, "--hostfile", &GivenFlag::option) != flags.end();
  if (per_node && !nodes && !listed) {
    notes.push_back("one node is assumed: the launcher has no number of nodes");
    nodes = 1;
  }
  if (!ranks && per_node && nodes) ranks = *nodes * *per_node;
  if (!ranks && !per_node) ranks = number_of(script, "SLURM_NTASKS");
  if (nodes && gpus_per_node) gpus = *nodes * *gpus_per_node;
  if (ranks && gpus && *ranks != *gpus) return std::nullopt;
  return ranks ? ranks : gpus;
}

/// Returns whether an option is a launcher's own.
bool is_of_launcher(const std::string& option) {
  return std::ranges::any_of(launcher_options().at("options"), [&](const Json& pattern) {
    return matches(pattern.get_ref<const std::string&>(), option);
  });
}

/// Takes the launcher's own options out of the flags, but those that the table has.
void take_launcher_options(const FlagTable& table, std::vector<GivenFlag>& flags,
                           std::vector<std::string>& unread) {
  std::erase_if(flags, [&](const GivenFlag& flag) {
    const bool has_row = std::ranges::any_of(table.rows, [&](const FlagRow& row) {
      return !row.words.empty() && row.words[0] == flag.option;
    });
    if (has_row || !is_of_launcher(flag.option)) return false;
    unread.push_back(printable(flag.option));
    return true;
  });
}

constexpr std::size_t kMostScriptBytes = std::size_t{4} << 20;

/// Words of a command; a quoted command within it ("bash -c '...'") is split.
ShellWords split_commands(const ShellWords& words) {
  ShellWords split;
  for (const ShellWord& word : words) {
    const bool command = word.text.find(" --") != std::string::npos;
    if (!command) {
      split.push_back(word);
      continue;
    }
    for (ShellWord& piece : split_at_blanks(word)) split.push_back(std::move(piece));
  }
  return split;
}

bool is_option(const ShellWord& word) {
  return word.text.size() > 2 && word.text.starts_with("--");
}

/// Returns the options of a command with the words behind each, and the programs that it starts.
std::vector<GivenFlag> flags_in(const ShellWords& command, std::vector<UnknownFlag>& unread) {
  std::vector<GivenFlag> flags;
  bool takes = false, module = false;
  std::string launcher;  // before its program
  for (const ShellWord& word : split_commands(command)) {
    const auto of_launcher = launcher.empty() ? std::nullopt : short_option(launcher, word);
    if (of_launcher) {
      takes = of_launcher->words.empty();
      flags.push_back(*of_launcher);
    } else if (is_option(word)) {
      const std::size_t equals = word.text.find('=');
      GivenFlag flag{word.text.substr(0, equals), {}, word.line};
      if (equals != std::string::npos)
        flag.words.push_back({word.text.substr(equals + 1), word.unknown});
      takes = equals == std::string::npos;
      flags.push_back(std::move(flag));
    } else if (word.text.ends_with(".py")) {
      // Some programs train other models than a decoder: tables refuse them by name.
      flags.push_back({std::filesystem::path(word.text).filename().string(), {}, word.line});
      takes = false;
      launcher.clear();
    } else if (word.text == "-m") {
      module = true;  // python starts the module that the next word names
      takes = false;
    } else if (module) {
      module = false;
      flags.push_back({word.text, {}, word.line});
    } else if (flags.empty() && is_launcher(word)) {
      launcher = word.text;
    } else if (takes) {
      flags.back().words.push_back({word.text, word.unknown});
    } else if (!word.unknown.empty() && !flags.empty()) {
      unread.push_back({word.text, word.line, word.unknown});
    }
  }
  return flags;
}

bool has_option(const std::vector<GivenFlag>& flags, std::string_view option) {
  return std::ranges::any_of(flags, [&](const GivenFlag& flag) { return flag.option == option; });
}

/// JobOptions tell the command of a job from others of a script. Each command of a job has `some`,
/// and one that states all of the job has `whole`, too.
struct JobOptions {
  std::string some, whole;
};

/// Returns the flags of the command that has the job's options, else all flags of the file: of
/// commands if they have any, else of variables.
std::vector<GivenFlag> flags_of_job(const ShellScript& script, const JobOptions& options,
                                    std::vector<UnknownFlag>& unread, const std::string& file) {
  std::vector<GivenFlag> chosen, all;
  std::vector<UnknownFlag> all_unread;
  for (const ShellWords& command : script.commands) {
    std::vector<UnknownFlag> of_command;
    std::vector<GivenFlag> flags = flags_in(command, of_command);
    all.insert(all.end(), flags.begin(), flags.end());
    all_unread.insert(all_unread.end(), of_command.begin(), of_command.end());
    if (!has_option(flags, options.some)) continue;
    // A file with one flag in a line has as many commands as flags.
    const bool whole = has_option(flags, options.whole);
    if (whole && !chosen.empty()) {
      throw InputError(
          file, fmt::format("line {}", flags[0].line),
          fmt::format("a second command has {}; a file of one job is required", options.some));
    }
    if (whole) {
      chosen = std::move(flags);
      unread.insert(unread.end(), of_command.begin(), of_command.end());
    }
  }
  if (!chosen.empty()) return chosen;
  unread.insert(unread.end(), all_unread.begin(), all_unread.end());
  if (has_option(all, options.some)) return all;
  for (const std::string& name : script.names) {
    const std::vector<GivenFlag> flags = flags_in(script.variables.at(name), unread);
    all.insert(all.end(), flags.begin(), flags.end());
  }
  return all;
}

/// Returns the flags of a table's command, and those that its variables state instead.
std::vector<GivenFlag> flags_of_command(const ShellScript& script, const SettingOptions& options,
                                        std::vector<UnknownFlag>& unread, const std::string& file) {
  const NamedConfiguration& named = options.named.at(0);
  std::vector<GivenFlag> flags =
      flags_of_job(script, {named.options.front()[0], named.options.back()[0]}, unread, file);
  for (const auto& [name, option] : options.variables) {
    const auto variable = script.variables.find(name);
    if (variable == script.variables.end() || has_option(flags, option)) continue;
    GivenFlag& flag = flags.emplace_back(GivenFlag{option, {}, 0});
    for (const ShellWord& word : variable->second) {
      flag.words.push_back({word.text, word.unknown});
      flag.line = word.line;
    }
  }
  return flags;
}

/// Returns the table that has rows for most of the options.
const FlagTable& table_of(const std::vector<GivenFlag>& flags) {
  const FlagTable* best = nullptr;
  std::ptrdiff_t most = -1;
  for (const FlagTable& table : flag_tables()) {
    if (!table.target || table.document) continue;
    const auto known = std::ranges::count_if(table.rows, [&](const FlagRow& row) {
      return row.kind != FlagRow::Kind::implied && has_option(flags, row.words[0]);
    });
    if (known > most) best = &table;
    most = std::max(most, known);
  }
  INVARIANT(best != nullptr, "models/presets/flags has a table with a target");
  return *best;
}

/// Whether a variable that is not known stands for flags, by its name: "$EXTRA_ARGS".
bool stands_for_flags(const std::string& text) {
  constexpr std::string_view kParts[] = {"ARGS", "args", "OPT", "opt", "FLAG", "flag"};
  return text.starts_with('$') && std::ranges::any_of(kParts, [&](std::string_view part) {
           return text.find(part) != text.npos;
         });
}

/// Returns how many words rows have behind an option at most. An option that says nothing of the
/// job may have one, and one that is not known has none.
std::size_t most_words(const FlagTable& table, const GivenFlag& flag) {
  std::size_t most = 0;
  bool known = false;
  for (const FlagRow& row : table.rows) {
    if (row.kind == FlagRow::Kind::implied || row.words[0] != flag.option) continue;
    known = true;
    most = std::max(most, row.words.size() - 1);
  }
  if (known) return most;
  if (stands_for_flags(flag.words.back().text)) return 0;
  const bool harmless = std::ranges::any_of(
      table.harmless, [&](const std::string& one) { return matches(one, flag.option); });
  return harmless || table.options || is_of_launcher(flag.option) ? 1 : 0;
}

/// Removes unknown words that an option does not take: they stand for further flags.
void drop_unknown_flags(const FlagTable& table, std::vector<GivenFlag>& flags,
                        std::vector<UnknownFlag>& unread) {
  for (GivenFlag& flag : flags) {
    if (flag.words.empty()) continue;
    const std::size_t most = most_words(table, flag);
    while (flag.words.size() > most && !flag.words.back().unknown.empty()) {
      unread.push_back({flag.words.back().text, flag.line, flag.words.back().unknown});
      flag.words.pop_back();
    }
  }
}

/// Returns the product of the launcher's counts, where both are stated as numbers. Degrees may
/// follow from it.
std::optional<std::int64_t> launched_devices(const std::vector<GivenFlag>& flags) {
  std::optional<std::int64_t> per_node, nodes;
  for (const GivenFlag& flag : flags) {
    if (flag.words.size() != 1) continue;
    if (flag.option.starts_with("--nproc")) per_node = count_in(flag.words[0].text);
    if (flag.option == "--nnodes") nodes = count_in(flag.words[0].text);
  }
  if (!per_node || !nodes) return std::nullopt;
  return *per_node * *nodes;
}

/// Without --nnodes torchrun starts one node (torch.distributed.run, --nnodes).
void add_usual_nodes(std::vector<GivenFlag>& flags, std::vector<std::string>& notes) {
  const auto per_node = std::ranges::find_if(
      flags, [](const GivenFlag& flag) { return flag.option.starts_with("--nproc"); });
  if (per_node == flags.end() || has_option(flags, "--nnodes")) return;
  notes.push_back("one node is assumed: --nnodes is not given");
  flags.push_back({"--nnodes", {{"1"}}, per_node->line});
}

/// The launcher's counts, where a shell would know them and `devices` says what comes out.
void drop_unknown_counts(std::vector<GivenFlag>& flags, std::vector<std::string>& notes) {
  std::erase_if(flags, [&](const GivenFlag& flag) {
    if (flag.option != "--nnodes" && !flag.option.starts_with("--nproc")) return false;
    const auto word =
        std::ranges::find_if(flag.words, [](const GivenWord& one) { return !one.unknown.empty(); });
    if (word == flag.words.end()) return false;
    notes.push_back(fmt::format("line {}: {}: {}", flag.line, flag.option, word->unknown));
    return true;
  });
}

}  // namespace

bool looks_like_framework_script(std::string_view text) {
  const auto has = [&](std::string_view option) { return text.find(option) != text.npos; };
  const bool sizes = has("--num-layers") && has("--hidden-size") && has("--num-attention-heads");
  return sizes || command_line_table_of(text) != nullptr;
}

Imported read_framework_script(std::string_view text, const std::string& file,
                               const ImportGiven& given) {
  if (text.size() > kMostScriptBytes)
    throw InputError(file, "", "a script of up to 4 MiB is required");
  Imported imported;
  std::optional<std::int64_t> devices = given.devices;
  const ShellScript script = read_shell(text, file);
  imported.notes = script.notes;
  const FlagTable* command = command_line_table_of(text);
  std::vector<GivenFlag> flags =
      command ? flags_of_command(script, *command->options, imported.unknown, file)
              : flags_of_job(script, {"--num-layers", "--hidden-size"}, imported.unknown, file);
  const FlagTable& table = command ? *command : table_of(flags);
  imported.kind = fmt::format("{} {}", table.target->name, table.target->version);
  const auto world_size = number_of(script, "WORLD_SIZE");
  if (!devices && !world_size) add_usual_nodes(flags, imported.notes);
  drop_unknown_counts(flags, imported.notes);
  drop_unknown_flags(table, flags, imported.unknown);
  const bool counted = has_option(flags, "--nnodes") && (has_option(flags, "--nproc_per_node") ||
                                                         has_option(flags, "--nproc-per-node"));
  if (!devices && !counted) devices = world_size;
  const bool launched = std::ranges::any_of(
      flags, [](const GivenFlag& flag) { return flag.option.starts_with("--nproc"); });
  if (!devices && !launched && !has_option(flags, "--nnodes"))
    devices = launched_ranks(script, flags, imported.notes);
  if (table.options && !devices) devices = launched_devices(flags);
  take_launcher_options(table, flags, imported.unread);
  if (table.options) flags = flags_in_options(table, std::move(flags), file);
  FlagFields known = {{"name", job_name_of(file)}};
  if (devices) known["devices"] = fmt::format("{}", *devices);
  ImportGiven of_script;
  of_script.vocab = given.vocab;
  import_flags(imported, table, flags, std::move(known), file, of_script);
  if (imported.framework && number_of(script, "CUDA_LAUNCH_BLOCKING") == 1) {
    imported.framework->host.waits.for_launches = true;
    imported.notes.emplace_back("CUDA_LAUNCH_BLOCKING=1: each launch waits for its kernel");
  }
  std::ranges::sort(imported.unread);
  return imported;
}

}  // namespace plimsoll
