// Writes a sweep as JSON and as CSV.

#include "base/json.h"
#include "plan/prediction_json.h"
#include "plan/training/training_json.h"
#include "planner/sweep/sweep_output.h"

namespace plimsoll {
namespace {

/// Returns one flat object for each row: the columns of CSV, without the strategy.
Json row_json(const Sweep& sweep, const SweepRow& row) {
  const PointPlan* plan = row.plan ? &*row.plan : nullptr;
  const Training* training = plan && plan->training ? &*plan->training : nullptr;
  const auto of_plan = [&](auto value_of) { return plan ? Json(value_of(*plan)) : Json(nullptr); };
  Json json = {{"cluster", row.point.cluster},
               {"framework", row.point.framework},
               {"devices", row.point.devices},
               {"global_batch", row.point.global_batch},
               {"sequence", row.point.sequence},
               {"network_bytes_per_s",
                row.point.network ? Json(row.point.network->value()) : Json(nullptr)}};
  json["step_time_s"] = of_plan([](const PointPlan& p) { return p.step_time.value(); });
  json["step_time_low_s"] = of_plan([](const PointPlan& p) { return p.step_time_low.value(); });
  json["step_time_high_s"] = of_plan([](const PointPlan& p) { return p.step_time_high.value(); });
  json["tokens_per_second"] = of_plan([](const PointPlan& p) { return p.tokens_per_second; });
  json["mfu"] = of_plan([](const PointPlan& p) { return p.mfu; });
  json["taken_bytes"] = of_plan([](const PointPlan& p) { return p.taken.count(); });
  json["capacity_bytes"] = of_plan([](const PointPlan& p) { return p.capacity.count(); });
  json["filled"] = of_plan([](const PointPlan& p) { return p.filled; });
  json["steps"] = training ? Json(training->steps) : Json(nullptr);
  add_amount(json, "days", training ? &training->days : nullptr);
  add_amount(json, "device_hours", training ? &training->device_hours : nullptr);
  add_amount(json, "cost", training && training->cost ? &*training->cost : nullptr);
  json["in_time"] = training && sweep.goal.deadline
                        ? Json(to_text(deadline_of(*training, *sweep.goal.deadline)))
                        : Json(nullptr);
  json["proven"] = of_plan([](const PointPlan& p) { return p.proven; });
  json["gap"] = of_plan([](const PointPlan& p) { return p.gap; });
  json["costs"] = plan ? Json(plan->costs) : Json(nullptr);
  json["reason"] = plan ? Json(nullptr) : Json(row.reason);
  return json;
}

Json index_json(std::optional<std::size_t> index) { return index ? Json(*index) : Json(nullptr); }

/// Returns a field of CSV. Quotes stand around it where it has a comma, a quote or a line end. An
/// apostrophe stands before what a spreadsheet would take for a formula.
std::string csv_field(const Json& value) {
  if (value.is_null()) return "";
  if (!value.is_string()) return value.dump();
  std::string text = value.get<std::string>();
  if (!text.empty() && std::string_view("=+-@\t\r").find(text[0]) != std::string_view::npos)
    text.insert(0, 1, '\'');
  if (text.find_first_of(",\"\r\n") == text.npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

std::string sweep_json(const Sweep& sweep) {
  Json points = Json::array();
  for (const SweepRow& row : sweep.rows) {
    Json json = row_json(sweep, row);
    json["strategy"] = row.plan ? strategy_json(row.plan->strategy) : Json(nullptr);
    points.push_back(std::move(json));
  }
  const SweepAnswer answer = answer_of(sweep);
  const auto& [tokens, deadline] = sweep.goal;
  return json_text({{"job", sweep.job},
                    {"command", sweep.command},
                    {"tokens", tokens ? Json(*tokens) : Json(nullptr)},
                    {"deadline_days", deadline ? Json(deadline->value() / 86400) : Json(nullptr)},
                    {"reserve_bytes", sweep.reserve.count()},
                    {"points", std::move(points)},
                    {"points_left", std::int64_t(sweep.left)},
                    {"fastest", index_json(answer.fastest)},
                    {"cheapest", index_json(answer.cheapest)},
                    {"not_told_apart", answer.not_told_apart}});
}

std::string sweep_csv(const Sweep& sweep) {
  std::string text;
  const auto add_line = [&](const std::vector<std::string>& fields) {
    for (std::size_t i = 0; i < fields.size(); ++i) text += (i == 0 ? "" : ",") + fields[i];
    text += "\n";
  };
  for (std::size_t i = 0; i < sweep.rows.size(); ++i) {
    const SweepRow& row = sweep.rows[i];
    Json json = row_json(sweep, row);
    json["strategy"] = row.plan ? Json(strategy_summary(row.plan->strategy)) : Json(nullptr);
    std::vector<std::string> names, fields;
    for (const auto& [key, value] : json.items()) {
      names.push_back(key);
      fields.push_back(csv_field(value));
    }
    if (i == 0) add_line(names);
    add_line(fields);
  }
  return text;
}

}  // namespace plimsoll
