// The plan in words, its strategy, and where the predicted step goes.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "passes/strategy/strategy_fields.h"
#include "plan/filling.h"
#include "reports/markup.h"
#include "reports/numbers.h"
#include "reports/sections/report_sections.h"
#include "reports/strategy_meanings.h"

namespace plimsoll {
namespace {

std::string_view device_word(const Plan& plan) {
  if (plan.device_kind == DeviceKind::gpu) return plan.devices == 1 ? "GPU" : "GPUs";
  return plan.devices == 1 ? "CPU core" : "CPU cores";
}

std::string job_sentence(const Plan& plan) {
  const Job& job = plan.job;
  return fmt::format(
      "{} has {} layers of hidden size {}, {} heads, a vocabulary of {} and {} parameters. A step "
      "trains on {} sequences of {} tokens, in {}, on {} {}.",
      job.name, total_layers(job), grouped(job.hidden), job.heads,
      grouped(plan.stated_vocabulary > 0 ? plan.stated_vocabulary : job.vocab),
      grouped(parameter_count(plan)), job.global_batch, job.sequence, to_text(job.precision),
      plan.devices, device_word(plan));
}

std::string split_sentence(const Plan& plan) {
  const Strategy& s = plan.strategy;
  std::vector<std::string> parts;
  if (s.pp > 1) {
    parts.push_back(fmt::format("the layers run in {} pipeline stages (layers: {})", s.pp,
                                counts_text(layers_per_stage(plan.job, s))));
  }
  if (s.mp > 1) parts.push_back(fmt::format("every layer is split over {} ranks", s.mp));
  if (s.cp > 1) parts.push_back(fmt::format("each sequence is shared by {} ranks", s.cp));
  if (s.dp * s.sharding_degree > 1) {
    parts.push_back(fmt::format("the batch is shared by {} replicas", s.dp * s.sharding_degree));
  }
  if (s.sharding_degree > 1) {
    const std::string_view too = s.sharding_stage >= 3   ? ", gradients and parameters are"
                                 : s.sharding_stage == 2 ? " and gradients are"
                                                         : " is";
    parts.push_back(fmt::format("the optimizer state{} sharded over {}", too, s.sharding_degree));
  }
  if (parts.empty()) return "Nothing is split: one device does it all.";
  std::string sentence = fmt::format("{}.", fmt::join(parts, ", "));
  sentence[0] =
      static_cast<char>(sentence[0] - 'a' + 'A');  // every part starts with a small letter
  return sentence;
}

/// Names the modules that are computed again: "norms and expert activation".
std::string modules_phrase(const Strategy& s) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::size(kRecomputedModules); ++i) {
    if (!s.recompute_modules.has(RecomputedModule(i))) continue;
    names.emplace_back(kRecomputedModules[i]);
    std::replace(names.back().begin(), names.back().end(), '_', ' ');
  }
  if (names.size() < 2) return fmt::format("{}", fmt::join(names, ""));
  const std::string last = std::move(names.back());
  names.pop_back();
  return fmt::format("{} and {}", fmt::join(names, ", "), last);
}

std::string kept_phrase(const Strategy& s) {
  switch (s.recompute) {
    case Recompute::none:
      return "kept for backward";
    case Recompute::selective:
      return "kept for backward, attention scores computed again";
    case Recompute::per_op:
      return "kept for backward in part, the rest computed again";
    case Recompute::full:
      return "computed again in backward";
    case Recompute::modules:
      return fmt::format("kept for backward, {} computed again", modules_phrase(s));
  }
  return "";
}

/// Names the layers of which that is so; all of the others is kept.
std::string layers_phrase(const Strategy& s) {
  if (s.recompute == Recompute::none) return "";
  if (!s.recompute_list.empty())
    return fmt::format(" in {} of the layers, and kept in the others", s.recompute_list.size());
  if (s.recompute_layers == 0) return "";
  const std::string layers =
      s.recompute_layers == 1 ? "layer" : fmt::format("{} layers", s.recompute_layers);
  return fmt::format(" in the first {} of each part of the model, and kept in the others", layers);
}

std::string micro_batch_sentence(const Plan& plan) {
  const Strategy& s = plan.strategy;
  const std::int64_t count = micro_batches(plan.job, s);
  return fmt::format(
      "Each replica takes its share in {} micro-batch{} of {} sequence{}; activations are {}{}.",
      count, count == 1 ? "" : "es", s.micro_batch, s.micro_batch == 1 ? "" : "s", kept_phrase(s),
      layers_phrase(s));
}

std::string strategy_table(const Plan& plan) {
  std::vector<std::vector<Cell>> rows;
  const auto row = [&](std::string_view key, const std::string& value, const std::string& meaning) {
    Cell name = heading_cell(key);
    name.style = "key";
    rows.push_back({name, {escaped(value), "value", false}, text_cell(meaning)});
  };
  for (const StrategyField& field : shown_fields(plan.strategy)) {
    std::string meaning(meaning_of(field.key));
    if (field.key == "layer_split") {
      meaning += ": " + counts_text(layers_per_part(plan.job, plan.strategy));
    }
    row(field.key, field.value, meaning);
    if (field.key == "micro_batch") {
      row("micro-batches", grouped(micro_batches(plan.job, plan.strategy)), "per step and replica");
    }
  }
  return table("Strategy", {{"Key", ""}, {"Value", ""}, {"Meaning", ""}}, rows) +
         "<p class=\"note\">Of the keys after layer_split only those are listed that are not at "
         "their default.</p>\n";
}

struct Part {
  std::string_view style, label;
  Seconds time;
};

std::array<Part, 7> parts_of(const Breakdown& breakdown) {
  return {{{"forward", "forward", breakdown.forward},
           {"recompute", "recompute", breakdown.recompute},
           {"backward", "backward", breakdown.backward},
           {"optimizer", "optimizer", breakdown.optimizer},
           {"transfer", "exposed communication", breakdown.exposed_communication},
           {"bubble", "bubble", breakdown.bubble},
           {"dispatch", "dispatch", breakdown.dispatch}}};
}

/// One bar of the whole step, and the same numbers as a table.
std::string breakdown_html(const Prediction& prediction) {
  const double step = prediction.step_time.value();
  std::vector<BarPart> bar;
  std::vector<std::vector<Cell>> rows;
  for (const Part& part : parts_of(prediction.breakdown)) {
    const double share = step > 0 ? part.time.value() / step : 0;
    if (share < 0.0005) continue;  // 0.0 %
    bar.push_back({part.style, share});
    rows.push_back({swatch_cell(part.style, part.label), exact_cell(part.time), share_cell(share)});
  }
  return figure("Where the predicted step goes, on the rank that computes longest",
                stacked_bar(bar) +
                    table("", {{"Part", ""}, {"Time", "number", "s"}, {"Share", "number"}}, rows));
}

std::string stages_table(const Plan& plan) {
  constexpr std::size_t kMostRows = 12;
  const auto layers = layers_per_stage(plan.job, plan.strategy);
  const auto& stages = plan.prediction.stages;
  const std::vector<Filling> fillings = fillings_of(plan);
  const bool arena = plan.framework.allocator.kind == AllocatorKind::arena;
  std::vector<std::vector<Cell>> rows;
  bool several = false;
  for (const AlikeStages& alike : alike_stages(fillings, kMostRows)) {
    const StagePrediction& stage = stages[alike.fullest];
    const Filling& filling = fillings[alike.fullest];
    const auto of_stage = std::size_t(stage.stage);
    several = several || alike.first != alike.last;
    rows.push_back({heading_cell(name_of(alike, stages)),
                    number_cell(of_stage < layers.size() ? grouped(layers[of_stage]) : ""),
                    exact_cell(stage.peak), exact_cell(filling.reserved),
                    exact_cell(filling.outside), exact_cell(filling.reserve),
                    exact_cell(filling.capacity), number_cell(filled_text(filling))});
  }
  const std::string note =
      several ? "<p class=\"note\">Of stages that are alike the fullest is shown.</p>\n" : "";
  return table("Predicted memory of a rank",
               {{"", ""},
                {"Layers", "number"},
                {"Live peak", "number", "bytes"},
                {arena ? "Arena" : "Reserved", "number", "bytes"},
                {"+ context", "number", "bytes"},
                {"+ kept free", "number", "bytes"},
                {"of", "number", "bytes"},
                {"Filled", "number"}},
               rows) +
         note;
}

}  // namespace

std::string plan_section(const ReportInput& input) {
  const Plan& plan = input.plan;
  std::string content =
      fmt::format("<p>{} {} {}</p>\n", escaped(job_sentence(plan)), escaped(split_sentence(plan)),
                  escaped(micro_batch_sentence(plan)));
  content += "<div class=\"columns\">\n<div>" + strategy_table(plan) + "</div>\n" + "<div>" +
             breakdown_html(plan.prediction) + "</div>\n</div>\n" + stages_table(plan);
  return section("plan", "The plan", content);
}

}  // namespace plimsoll
