// The module plimsoll._core: what Python calls, with arguments as the package plimsoll passes them.
// Answers are JSON text. The package turns them into dictionaries.
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <tuple>
#include <type_traits>

#include "planner/api/learn_question.h"
#include "planner/api/target.h"
#include "planner/cli/brief.h"
#include "planner/cli/flags.h"
#include "planner/search/search.h"
#include "planner/sweep/sweep_inputs.h"
#include "python/python_answers.h"

namespace plimsoll {
namespace {

namespace py = pybind11;
using namespace pybind11::literals;

/// Raises plimsoll.errors.TYPE with a message and attributes.
void raise(const char* type, const std::string& message, const py::dict& attributes = {}) {
  const py::object error_class = py::module_::import("plimsoll.errors").attr(type);
  const py::object error = error_class(message);
  for (const auto& [name, value] : attributes) py::setattr(error, name, value);
  PyErr_SetObject(error_class.ptr(), error.ptr());
}

void translate(std::exception_ptr failure) {
  try {
    if (failure) std::rethrow_exception(failure);
  } catch (const InputError& error) {
    raise("InputError", error.what(),
          py::dict("file"_a = error.file(), "pointer"_a = error.pointer()));
  } catch (const UsageError& error) {
    raise("UsageError", error.what());
  } catch (const NothingFits& refused) {
    std::string message = brief(refused, "");
    while (message.ends_with('\n')) message.pop_back();
    raise("DoesNotFit", message, py::dict("changes"_a = refused.changes()));
  } catch (const InfeasibleError& error) {
    raise("Infeasible", error.what());
  } catch (const NothingFoundYet& stopped) {
    raise("StoppedEarly", stopped.what());
  } catch (const EnvironmentError& error) {
    raise("MachineError", error.what());
  }
}

/// Lets Python's signals end a search, which runs without Python's lock. Ctrl-C leaves the best
/// plan so far.
class Signals {
 public:
  /// Returns whether the search shall end. Python handles signals in its main thread alone, and
  /// some ten times a second are enough.
  bool asked() {
    if (std::this_thread::get_id() != caller_) return ended_;
    const auto now = std::chrono::steady_clock::now();
    if (ended_ || now - last_ < std::chrono::milliseconds(100)) return ended_;
    last_ = now;
    const py::gil_scoped_acquire lock;
    if (PyErr_CheckSignals() == 0) return false;
    raised_.emplace();
    ended_ = true;
    return true;
  }
  /// Raises what a signal raised. `found` says that there is a plan, for which Ctrl-C is no error.
  void rethrow(bool found) {
    if (raised_ && !(found && raised_->matches(PyExc_KeyboardInterrupt))) throw std::move(*raised_);
  }

 private:
  std::thread::id caller_ = std::this_thread::get_id();
  std::chrono::steady_clock::time_point last_;
  std::atomic<bool> ended_ = false;
  std::optional<py::error_already_set> raised_;
};

/// Builds the target that keyword arguments name. Notes are appended to `notes`.
TargetOptions target_of(const py::dict& arguments, std::vector<std::string>& notes) {
  TargetOptions options;
  options.job = arguments["job"].cast<std::string>();
  options.from = arguments["from_script"].cast<std::string>();
  options.cluster = arguments["cluster"].cast<std::string>();
  options.calibration = arguments["calibration"].cast<std::vector<std::string>>();
  options.framework = arguments["framework"].cast<std::string>();
  const auto devices = arguments["devices"].cast<std::optional<std::int64_t>>();
  check_range("devices", devices, 1, kMostDevices);
  options.devices = devices.value_or(0);
  options.global_batch = arguments["global_batch"].cast<std::optional<std::int64_t>>();
  check_range("global_batch", options.global_batch, 1, kMostGlobalBatch);
  options.sequence = arguments["sequence"].cast<std::optional<std::int64_t>>();
  check_range("sequence", options.sequence, 1, kMostSequence);
  options.texts = arguments["texts"].cast<GivenTexts>();
  options.note = [&notes](std::string_view note) { notes.emplace_back(note); };
  return options;
}

/// An answer, and what was noted on the way.
using Answer = std::pair<std::string, std::vector<std::string>>;

/// Calls `work` with a function that says when it shall end, without Python's lock. Returns what it
/// returns, if it found an answer before a signal ended it.
template <class Work>
auto unlocked(const Work& work) {
  Signals signals;
  std::invoke_result_t<Work, const std::function<bool()>&> answer;
  try {
    const py::gil_scoped_release released;
    answer = work([&signals] { return signals.asked(); });
  } catch (const NothingFoundYet&) {
    signals.rethrow(false);
    throw;
  }
  signals.rethrow(true);
  return answer;
}

Constraints held_of(const py::dict& arguments) {
  const auto pairs = [&](const char* name) {
    return arguments[name].cast<std::vector<std::string>>();
  };
  return parse_held({pairs("fix"), pairs("max"), pairs("min"), pairs("exclude"), pairs("try")});
}

std::optional<TrainingGoal> training_question(const py::dict& arguments) {
  return parse_training(
      {arguments["tokens"].cast<std::string>(), arguments["price"].cast<std::string>()});
}

/// The JSON of an answer, the notes on how files were read, and the lines that a command prints.
using ShownAnswer = std::tuple<std::string, std::vector<std::string>, std::string>;

ShownAnswer plan(const py::dict& target, const py::dict& held, const std::string& reserve,
                 const std::string& time_limit, std::optional<std::int64_t> threads,
                 std::optional<std::int64_t> top, bool fastest) {
  std::vector<std::string> notes;
  PlanQuestion question;
  question.target = target_of(target, notes);
  question.training = training_question(target);
  question.constraints = held_of(held);
  if (!reserve.empty()) question.reserve = parse_reserve(reserve);
  question.time_limit = optional_time_limit(time_limit);
  check_range("threads", threads, 1, kMostThreads);
  question.threads = threads.value_or(0);
  check_range("top", top, 1, kMostListedPlans);
  question.top = top.value_or(0);
  question.fastest = fastest;
  BriefAnswer answer = unlocked([&](const std::function<bool()>& stop) {
    question.stop = stop;
    return plan_answer(std::move(question));
  });
  return {std::move(answer.json), std::move(notes), std::move(answer.lines)};
}

Answer sweep(const py::dict& target, const py::dict& lists, const py::dict& held,
             const py::dict& texts, std::optional<std::int64_t> threads) {
  Answer answer;
  SweepQuestion question;
  question.target = target_of(target, answer.second);
  const auto list = [&](const char* name) { return lists[name].cast<std::vector<std::string>>(); };
  question.clusters = list("cluster");
  question.frameworks = list("framework");
  question.devices = list("devices");
  question.batches = list("global_batch");
  question.sequences = list("sequence");
  question.networks = list("network");
  question.prices = list("price");
  question.constraints = held_of(held);
  const auto text = [&](const char* name) { return texts[name].cast<std::string>(); };
  question.tokens = text("tokens");
  question.deadline = text("deadline");
  if (const std::string reserve = text("reserve"); !reserve.empty())
    question.reserve = parse_reserve(reserve);
  question.time_limit = optional_time_limit(text("time_limit"));
  if (const std::string limit = text("point_time_limit"); !limit.empty())
    question.point_time_limit = parse_days("--point-time-limit", limit);
  check_range("threads", threads, 1, kMostThreads);
  question.threads = threads.value_or(0);
  answer.first = unlocked([&](const std::function<bool()>& stop) {
    question.stop = stop;
    return sweep_answer(question);
  });
  return answer;
}

ShownAnswer simulate(const py::dict& target, const std::string& strategy,
                     const std::string& reserve) {
  std::vector<std::string> notes;
  SimulationQuestion question;
  question.target = target_of(target, notes);
  question.strategy = strategy;
  question.training = training_question(target);
  if (!reserve.empty()) question.reserve = parse_reserve(reserve);
  const py::gil_scoped_release unlocked;
  BriefAnswer answer = simulation_answer(std::move(question));
  return {std::move(answer.json), std::move(notes), std::move(answer.lines)};
}

ShownAnswer learn(const py::dict& target, std::vector<std::string> scripts,
                  std::vector<std::string> logs, const std::string& output) {
  std::vector<std::string> notes;
  const LearnQuestion question{std::move(scripts), std::move(logs), {}, target_of(target, notes)};
  const py::gil_scoped_release unlocked;
  const LearnAnswer answer = learn_runs(question, output);
  return {learned_json(answer, output), std::move(notes), learned_text(answer)};
}

std::string explain(const std::string& plan, const AskedChoices& asked,
                    const ExplainQuestion& question) {
  return unlocked([&](const std::function<bool()>& stop) {
    return explanation_answer(plan, question, asked, stop);
  });
}

void add_functions(py::module_& module) {
  module.def("job", &job_answer, "name"_a, "texts"_a);
  module.def("cluster", &cluster_answer, "name"_a, "texts"_a);
  module.def("framework", &framework_answer, "name"_a, "texts"_a);
  module.def("presets", &presets_answer);
  module.def("plan", &plan, "target"_a, "held"_a, "reserve"_a, "time_limit"_a, "threads"_a, "top"_a,
             "fastest"_a);
  module.def("sweep", &sweep, "target"_a, "lists"_a, "held"_a, "texts"_a, "threads"_a);
  module.def("simulate", &simulate, "target"_a, "strategy"_a, "reserve"_a);
  module.def("learn", &learn, "target"_a, "scripts"_a, "logs"_a, "output"_a);
  module.def(
      "explain",
      [](const std::string& plan, const std::string& why_not, const std::string& from_script,
         const std::string& cluster, const std::vector<std::string>& calibration,
         const GivenTexts& texts, const std::string& time_limit,
         std::optional<std::int64_t> threads) {
        check_range("threads", threads, 1, kMostThreads);
        return explain(plan, {why_not, from_script},
                       {{"plan", cluster, calibration, texts},
                        optional_time_limit(time_limit),
                        threads.value_or(0)});
      },
      "plan"_a, "why_not"_a, "from_script"_a, "cluster"_a, "calibration"_a, "texts"_a,
      "time_limit"_a, "threads"_a);
  module.def(
      "import_file",
      [](const std::string& file, std::optional<std::int64_t> sequence,
         std::optional<std::int64_t> global_batch, const std::string& precision,
         std::optional<double> dropout, std::optional<std::int64_t> devices,
         const std::string& name, const std::string& family, std::optional<std::int64_t> vocab) {
        ImportGiven given;
        given.sequence = sequence;
        given.global_batch = global_batch;
        given.dropout = dropout;
        given.devices = devices;
        given.name = name;
        given.family = family;
        given.vocab = vocab;
        return import_answer(file, std::move(given), precision);
      },
      "file"_a, "sequence"_a, "global_batch"_a, "precision"_a, "dropout"_a, "devices"_a, "name"_a,
      "family"_a, "vocab"_a);
  module.def(
      "report",
      [](const std::string& plan, const std::string& measured, double tolerance, bool plan_only,
         const std::string& cluster, const std::vector<std::string>& calibration,
         const GivenTexts& texts, const std::string& time_limit,
         std::optional<std::int64_t> threads) {
        check_range("threads", threads, 1, kMostThreads);
        const ReportQuestion question{{{"plan", cluster, calibration, texts},
                                       optional_time_limit(time_limit),
                                       threads.value_or(0)},
                                      measured,
                                      tolerance,
                                      plan_only};
        return unlocked(
            [&](const std::function<bool()>& stop) { return report_answer(plan, question, stop); });
      },
      "plan"_a, "measured"_a, "tolerance"_a, "plan_only"_a, "cluster"_a, "calibration"_a, "texts"_a,
      "time_limit"_a, "threads"_a);
  module.def("describe", &description_answer, "name"_a, "texts"_a);
  module.def("validate", &validation_answer, "files"_a, "calibration"_a, "leave_out_sources"_a,
             py::call_guard<py::gil_scoped_release>());
  module.def("fit", &fit_answer, "files"_a, "cluster"_a, "framework"_a,
             py::call_guard<py::gil_scoped_release>());
  module.def("export", &export_answer, "plan"_a, "to"_a, "allow_lossy"_a);
}

}  // namespace
}  // namespace plimsoll

PYBIND11_MODULE(_core, module) {
  module.doc() = "The planner's own code, for the package plimsoll.";
  module.attr("version") = std::string(plimsoll::kProductVersion);
  pybind11::register_exception_translator(&plimsoll::translate);
  plimsoll::add_functions(module);
}
