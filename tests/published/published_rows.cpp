// Published rows for tests.
#include "tests/published/published_rows.h"

#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <stdexcept>

namespace plimsoll {
namespace {

/// The program lab/state, which reads a raw row and writes a stated one a line. It ends when its
/// input does, with the tests.
class LabState {
 public:
  LabState() {
    std::array<int, 2> in{}, out{};
    posix_spawn_file_actions_t files;
    pid_t process = 0;
    const char* command[] = {PLIMSOLL_SOURCE_DIR "/lab/state", "--lines", nullptr};
    if (pipe2(in.data(), O_CLOEXEC) != 0 || pipe2(out.data(), O_CLOEXEC) != 0)
      throw std::runtime_error("lab/state: no pipe");
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, out[1], STDOUT_FILENO);
    if (posix_spawn(&process, command[0], &files, nullptr, const_cast<char* const*>(command),
                    environ) != 0)
      throw std::runtime_error("lab/state does not start");
    posix_spawn_file_actions_destroy(&files);
    close(in[0]), close(out[1]);
    to_ = fdopen(in[1], "w"), from_ = fdopen(out[0], "r");
  }

  Json stated(const Json& row) {
    std::fprintf(to_, "%s\n", row.dump().c_str());
    std::fflush(to_);
    std::string line;
    for (int c = std::fgetc(from_); c != EOF && c != '\n'; c = std::fgetc(from_)) line += char(c);
    if (line.empty()) throw std::runtime_error("lab/state refuses " + row.dump());
    return parse_json(line, "lab/state");
  }

 private:
  std::FILE *to_ = nullptr, *from_ = nullptr;
};

}  // namespace

Json stated(const Json& row) {
  static LabState lab;
  return lab.stated(row);
}

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
  return parse_published_runs(json_text(Json::array({stated(row)})), "test.json").at(0);
}

PublishedTarget target_of(const Json& row, const CalibrationChoice& calibration) {
  return published_target(run_of(row), calibration);
}

}  // namespace plimsoll
