// Counts the ranks of srun, mpirun, deepspeed and accelerate.
#include "interop/imports/launchers.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
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

}  // namespace

bool is_launcher(const ShellWord& word) {
  return launcher_options().at("short").contains(name_of(word.text));
}

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

std::optional<std::int64_t> count_in(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // Larger counts are refused where the flags are read.
  constexpr std::int64_t kMost = std::int64_t{1} << 24;
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > kMost)
    return std::nullopt;
  return value;
}

std::optional<std::int64_t> number_of(const ShellScript& script, std::string_view name) {
  const auto variable = script.variables.find(name);
  if (variable == script.variables.end() || variable->second.size() != 1 ||
      !variable->second[0].unknown.empty())
    return std::nullopt;
  return count_in(variable->second[0].text);
}

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

bool is_of_launcher(const std::string& option) {
  return std::ranges::any_of(launcher_options().at("options"), [&](const Json& pattern) {
    return matches(pattern.get_ref<const std::string&>(), option);
  });
}

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

}  // namespace plimsoll
