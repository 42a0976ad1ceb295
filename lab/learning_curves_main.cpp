// learning-curves FILES...: learns from a few runs of each source in files of stated rows, and
// prints the errors of its others as JSON. lab/learning runs it.
#include "base/command_line.h"
#include "lab/learning_curves.h"

int main(int argc, char** argv) {
  using namespace plimsoll;
  return run_program("learning-curves", [&] {
    LearningRequest request;
    request.counts = {0, 1, 2, 3, 5, 10};
    request.calibration.leave_out_source = true;
    std::vector<PublishedRun> runs;
    for (int i = 1; i < argc; ++i) {
      for (PublishedRun& run : read_published_runs(argv[i])) runs.push_back(std::move(run));
    }
    if (runs.empty()) throw UsageError("FILES of stated rows are required");
    print_result(json_text(learning_json(learning_curves(runs, request))));
    return ExitCode::ok;
  });
}
