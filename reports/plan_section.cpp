// The plan in words, its strategy, and where the predicted step goes.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "reports/markup.h"
#include "reports/numbers.h"
#include "reports/report_sections.h"

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
      job.name, total_layers(job), job.hidden, job.heads, grouped(job.vocab),
      grouped(parameter_count(build_forward(job, 1))), job.global_batch, job.sequence,
      to_text(job.precision), plan.devices, device_word(plan));
}

std::string split_sentence(const Plan& plan) {
  const Strategy& s = plan.strategy;
  std::vector<std::string> parts;
  if (s.pp > 1) {
    parts.push_back(fmt::format("the layers run in {} pipeline stages ({} layers)", s.pp,
                                fmt::join(layers_per_stage(plan.job, s), ", ")));
  }
  if (s.mp > 1) parts.push_back(fmt::format("every layer is split over {} ranks", s.mp));
  if (s.dp * s.sharding_degree > 1) {
    parts.push_back(fmt::format("the batch is shared by {} replicas", s.dp * s.sharding_degree));
  }
  if (s.sharding_degree > 1) {
    parts.push_back(fmt::format("the optimizer state is sharded over {}", s.sharding_degree));
  }
  if (parts.empty()) return "Nothing is split: one device does it all.";
  std::string sentence = fmt::format("{}.", fmt::join(parts, ", "));
  sentence[0] = static_cast<char>(sentence[0] - 'a' + 'A');  // every part starts with "the"/"every"
  return sentence;
}

std::string_view kept_phrase(Recompute recompute) {
  switch (recompute) {
    case Recompute::none:
      return "kept for backward";
    case Recompute::selective:
      return "kept for backward, attention scores computed again";
    case Recompute::per_op:
      return "kept for backward in part, the rest computed again";
    case Recompute::full:
      return "computed again in backward";
  }
  return "";
}

std::string micro_batch_sentence(const Plan& plan) {
  const Strategy& s = plan.strategy;
  const std::int64_t count = micro_batches(plan.job, s);
  return fmt::format(
      "Each replica takes its share in {} micro-batch{} of {} sequence{}; activations are {}.",
      count, count == 1 ? "" : "es", s.micro_batch, s.micro_batch == 1 ? "" : "s",
      kept_phrase(s.recompute));
}

std::vector<Cell> strategy_row(std::string_view key, const std::string& value,
                               std::string_view meaning) {
  Cell name = heading_cell(key);
  name.style = "key";
  return {name, {escaped(value), "value", false}, text_cell(meaning)};
}

std::vector<Cell> schedule_row(const Strategy& s) {
  switch (s.schedule) {
    case Schedule::gpipe:
      return strategy_row("schedule", "GPipe", "all forwards, then all backwards");
    case Schedule::zb_h1:
      return strategy_row("schedule", "ZB-H1", "1F1B with late gradients of weights");
    case Schedule::one_f_one_b:
      break;
  }
  if (s.virtual_stages == 1) return strategy_row("schedule", "1F1B", "one forward, one backward");
  return strategy_row("schedule", fmt::format("1F1B, {} virtual stages", s.virtual_stages),
                      "one forward, one backward, of one chunk of layers after another");
}

std::string strategy_table(const Plan& plan) {
  const Strategy& s = plan.strategy;
  const auto number = [](std::int64_t value) { return grouped(value); };
  return table(
      "Strategy", {{"Key", ""}, {"Value", ""}, {"Meaning", ""}},
      {strategy_row("mp", number(s.mp), "ranks that share every layer (tensor parallel)"),
       strategy_row("pp", number(s.pp), "pipeline stages"),
       strategy_row("layer_split", fmt::format("{}", fmt::join(layers_per_part(plan.job, s), ", ")),
                    s.virtual_stages > 1 ? "layers of each chunk, from the model's front"
                                         : "layers on each stage"),
       strategy_row("dp", number(s.dp), "replicas that hold everything"),
       strategy_row("sharding_degree", number(s.sharding_degree),
                    "replicas that share the optimizer state"),
       strategy_row("sharding_stage", number(s.sharding_stage),
                    "what is sharded: 0 nothing, 1 the "
                    "optimizer state"),
       strategy_row("micro_batch", number(s.micro_batch), "sequences per micro-batch"),
       strategy_row("micro-batches", number(micro_batches(plan.job, s)), "per step and replica"),
       schedule_row(s),
       strategy_row("recompute", std::string(to_text(s.recompute)),
                    "what backward computes again instead of keeping it: the attention core, or "
                    "layers"),
       strategy_row("grad_bucket_bytes", to_text(s.grad_bucket_bytes),
                    "gradients reduced in one collective"),
       strategy_row("send_slots", number(s.send_slots), "sends in flight to one neighbour")});
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
  std::string bar = "<div class=\"stack\" aria-hidden=\"true\">";
  std::vector<std::vector<Cell>> rows;
  for (const Part& part : parts_of(prediction.breakdown)) {
    const double share = step > 0 ? part.time.value() / step : 0;
    if (share > 0) {
      bar += fmt::format("<span class=\"{}\" style=\"width:{:.3f}%\"></span>", part.style,
                         100 * share);
    }
    Cell label = heading_cell(part.label);
    label.html = fmt::format("<span class=\"swatch {}\"></span>{}", part.style, label.html);
    rows.push_back({label, number_cell(to_text(part.time)), number_cell(percent(share))});
  }
  return figure(
      "Where the predicted step goes, on the rank that computes longest",
      bar + "</div>\n" + table("", {{"Part", ""}, {"Time", "number"}, {"Share", "number"}}, rows));
}

std::string stages_table(const Plan& plan) {
  const auto layers = layers_per_stage(plan.job, plan.strategy);
  std::vector<std::vector<Cell>> rows;
  for (std::size_t i = 0; i < plan.prediction.stages.size(); ++i) {
    const StagePrediction& stage = plan.prediction.stages[i];
    const auto of_stage = std::size_t(stage.stage);
    const double share = static_cast<double>(stage.peak.count()) /
                         std::max(1.0, static_cast<double>(stage.capacity.count()));
    rows.push_back({heading_cell(name_of(stage)),
                    number_cell(of_stage < layers.size() ? grouped(layers[of_stage]) : ""),
                    number_cell(to_text(stage.peak)), number_cell(to_text(stage.arena)),
                    number_cell(to_text(stage.capacity)), number_cell(percent(share))});
  }
  return table("Predicted memory of a rank",
               {{"", ""},
                {"Layers", "number"},
                {"Peak", "number"},
                {"Arena", "number"},
                {"Device", "number"},
                {"Filled", "number"}},
               rows);
}

}  // namespace

std::string plan_section(const ReportInput& input) {
  const Plan& plan = input.plan;
  std::string content =
      fmt::format("<p>{} {} {}</p>\n", escaped(job_sentence(plan)), escaped(split_sentence(plan)),
                  escaped(micro_batch_sentence(plan)));
  content += "<div class=\"columns\">\n<div>" + strategy_table(plan) + "</div>\n" + "<div>" +
             breakdown_html(plan.prediction) + stages_table(plan) + "</div>\n</div>\n";
  return section("plan", "The plan", content);
}

}  // namespace plimsoll
