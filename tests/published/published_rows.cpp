// Published rows for tests.
#include "tests/published/published_rows.h"

namespace plimsoll {

Json plain_row() {
  return {{"id", "test/1"},
          {"source", {{"repo_or_doc", "github:somebody/runs"}, {"path_or_issue", "page"}}},
          {"hardware", {{"gpu", "A100-80GB SXM"}, {"gpus", 16}, {"gpus_per_node", 8}}},
          {"model",
           {{"name", "GPT"},
            {"hidden", 1024},
            {"layers", 4},
            {"heads", 16},
            {"vocab", 50257},
            {"seq_len", 256}}},
          {"parallel", {{"tp", 2}, {"pp", 2}, {"dp", 4}}},
          {"batch", {{"micro", 2}, {"global", 32}}},
          {"precision", "fp16"},
          {"recompute", "full"},
          {"attention", "unfused"},
          {"framework", "megatron-lm"},
          {"measured", {{"step_time_s", 1}}}};
}

void set_source(Json& row, const std::string& document, const std::string& place) {
  row["source"] = {{"repo_or_doc", document}, {"path_or_issue", place}};
}

PublishedRun run_of(const Json& row) {
  return parse_published_runs(json_text(Json::array({row})), "test.json").at(0);
}

PublishedTarget target_of(const Json& row, const CalibrationChoice& calibration) {
  return published_target(run_of(row), calibration);
}

}  // namespace plimsoll
