// Lists the tensors that are alive at the peak of a stage, and prints the table of all stages.
#include "predict/stage_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "passes/pipeline.h"

namespace plimsoll {

const Rule kAllocatorPeaks = {
    "allocator-peaks",
    "What an allocator hands out and takes is what replaying its program gives."};

namespace {

constexpr Bytes kNoLimit{std::int64_t{1} << 60};
constexpr double kMiB = 1 << 20;

/// Returns the buffers of an arena that are alive at the peak, by name.
std::vector<AliveTensors> buffers_at_peak(const Program& program, const MemoryPeak& memory) {
  std::map<std::pair<std::string, TensorRole>, AliveTensors> by_name;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.on_host || memory.call < buffer.begin || memory.call >= buffer.end) continue;
    AliveTensors& same = by_name[{buffer.name, buffer.role}];
    same.name = buffer.name;
    same.role = buffer.role;
    same.bytes += round_up(buffer.bytes, kBlockAlignment);
    ++same.count;
  }
  std::vector<AliveTensors> list;
  for (auto& [key, same] : by_name) list.push_back(std::move(same));
  sort_largest_first(list);
  return list;
}

/// Returns the classes of tensors that some stage has, for the columns of the table.
std::vector<std::size_t> shown_classes(std::span<const StageMemory> stages) {
  std::vector<std::size_t> shown;
  for (std::size_t role = 0; role < kTensorRoles; ++role) {
    const auto has = [&](const StageMemory& memory) { return memory.by_role[role] > Bytes(); };
    if (std::any_of(stages.begin(), stages.end(), has)) shown.push_back(role);
  }
  return shown;
}

double mib(Bytes bytes) { return double(bytes.count()) / kMiB; }

std::string totals(std::span<const StageMemory> stages, std::size_t most) {
  std::string text =
      fmt::format("    {:<20}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}\n", "", "live peak", "allocated",
                  "reserved", "+ context", "= device", "of");
  for (const StageMemory& memory : stages.first(most)) {
    const StagePrediction& stage = memory.stage;
    const Filling& filling = memory.filling;
    text += fmt::format(
        "    {:<20}{:>12.1f}{:>12.1f}{:>12.1f}{:>12.1f}{:>12.1f}{:>12.1f}  {:.1f} %\n",
        name_of(stage), mib(stage.peak), mib(stage.allocated), mib(filling.reserved),
        mib(filling.outside), mib(filling.taken()), mib(filling.capacity), 100 * filling.share());
  }
  return text;
}

std::string classes(std::span<const StageMemory> stages, std::size_t most) {
  const std::vector<std::size_t> shown = shown_classes(stages);
  std::string text = fmt::format("    {:<20}", "");
  std::vector<std::size_t> widths;
  for (const std::size_t role : shown) {
    const std::string_view name = to_text(TensorRole(role));
    widths.push_back(std::max<std::size_t>(name.size(), 8) + 2);
    text += fmt::format("{:>{}}", name, widths.back());
  }
  text += "\n";
  for (const StageMemory& memory : stages.first(most)) {
    text += fmt::format("    {:<20}", name_of(memory.stage));
    for (std::size_t column = 0; column < shown.size(); ++column) {
      text += fmt::format("{:>{}.1f}", mib(memory.by_role[shown[column]]), widths[column]);
    }
    text += "\n";
  }
  return text;
}

std::string alive(const StageMemory& memory) {
  constexpr std::size_t kMostNames = 10;
  std::string text;
  Bytes rest = memory.stage.allocated;
  for (std::size_t i = 0; i < std::min(memory.alive.size(), kMostNames); ++i) {
    const AliveTensors& one = memory.alive[i];
    text += fmt::format("    {:>10.1f}  {:<17} {}{}\n", mib(one.bytes), to_text(one.role), one.name,
                        one.count > 1 ? fmt::format(" x {}", one.count) : "");
    rest -= one.bytes;
  }
  if (memory.alive.size() > kMostNames) {
    text += fmt::format("    {:>10.1f}  {} more names (all with --json)\n", mib(rest),
                        memory.alive.size() - kMostNames);
  }
  return text;
}

}  // namespace

StageMemory memory_at_peak(const Target& target, const Strategy& strategy, const Program& program,
                           const StagePrediction& stage) {
  const Filling filling = filling_of(stage, outside_program(target, strategy), target.reserve);
  StageMemory memory{stage, filling, stage.by_role, {}};
  if (has_arena(target.framework())) {
    memory.alive = buffers_at_peak(program, memory_peak(program));
    return memory;
  }
  AllocatorUse use =
      replay_on_device(program, target.framework(), filling.room(), AliveAtPeak::list);
  memory.by_role = use.by_role;
  memory.alive = std::move(use.alive);
  return memory;
}

std::string describe(std::span<const StageMemory> stages, const Framework& framework) {
  constexpr std::size_t kMostStages = 64;
  const std::size_t most = std::min(stages.size(), kMostStages);
  const bool arena = has_arena(framework);
  std::string text = "  memory per device, MiB\n" + totals(stages, most);
  if (stages.size() > kMostStages) {
    text += fmt::format("    and {} more (all with --json)\n", stages.size() - kMostStages);
  }
  text += fmt::format(
      "    live peak: what its program keeps alive at once; allocated: {}; reserved: {};\n"
      "    context: context and communicators of {}; reserve: kept free\n",
      arena ? "the same" : "what the framework's allocator hands out",
      arena ? "the arena that holds it" : "what that takes of the device", framework.name);
  text += "  what is allocated at its peak, by class, MiB\n" + classes(stages, most);
  const auto& tightest = *std::max_element(
      stages.begin(), stages.end(), [](const StageMemory& a, const StageMemory& b) {
        return b.filling.room() - b.filling.reserved < a.filling.room() - a.filling.reserved;
      });
  text += fmt::format("  what is alive then on {}, by name, MiB\n", name_of(tightest.stage));
  return text + alive(tightest);
}

std::vector<Violation> check_allocators(const Plan& plan) {
  if (has_arena(plan.framework)) return {};
  const std::vector<Program> programs = lower({plan.job, plan.strategy, plan.framework});
  const auto& stages = plan.prediction.stages;
  const Bytes outside = memory_outside_program(plan.job, plan.strategy, plan.framework);
  for (std::size_t i = 0; i < std::min(stages.size(), programs.size()); ++i) {
    const AllocatorUse use = replay_allocations(programs[i], plan.framework, kNoLimit);
    const StagePrediction& stage = stages[i];
    const Bytes room = stage.capacity - outside;
    const bool gave_back = use.reserved > stage.reserved && stage.reserved <= room;
    if (stage.allocated == use.allocated && (stage.reserved == use.reserved || gave_back)) continue;
    return {{std::string(kAllocatorPeaks.name),
             fmt::format("{}: {} bytes handed out of {} stated; its replay hands out {} of {}",
                         name_of(stage), stage.allocated.count(), stage.reserved.count(),
                         use.allocated.count(), use.reserved.count())}};
  }
  return {};
}

}  // namespace plimsoll
