// Ops and kernels are kept in a few bytes each until the trace ends; then kernels find their ops.

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <istream>
#include <limits>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "interop/logs/steady_part.h"
#include "interop/logs/step_series.h"
#include "interop/logs/trace_events.h"
#include "models/presets/known_json.h"

namespace plimsoll {
namespace {

// At 32 and 8 bytes each, the lists of a trace take some 200 MB at most.
constexpr std::size_t kMostKernels = 2'000'000, kMostLinks = 4'000'000;
constexpr std::size_t kMostNames = 50'000, kMostSteps = 100'000;
/// No text and no number is longer.
constexpr int kMostSilentBlocks = 64;
/// Times, also durations, from the base time, and of a duration.
constexpr double kMostMicroseconds = 9e15;
constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

enum class Category : std::uint8_t { other, op, kernel, copy, launch, memory };
constexpr std::string_view kCategories[] = {"other", "op", "kernel", "copy", "launch", "memory"};

/// The table of models/presets/readers/profiler-traces.json.
struct TraceTable {
  std::string name;
  std::map<std::string, Category, std::less<>> categories;
  std::string step;
  std::vector<std::pair<std::string, std::string>> kinds;
  std::map<std::string, std::int64_t, std::less<>> type_bytes;
  std::vector<std::string> doubts;
};

TraceTable read_trace_table() {
  const Json json = known_json(reader_presets(), "profiler-traces");
  TraceTable table{.name = json["name"],
                   .categories = {},
                   .step = json["step"],
                   .kinds = json["kinds"],
                   .type_bytes = json["type_bytes"],
                   .doubts = json["doubts"]};
  for (const auto& [name, word] : json["categories"].items()) {
    const auto found = std::ranges::find(kCategories, word.get<std::string>());
    table.categories.emplace(name, Category(found - std::begin(kCategories)));
  }
  return table;
}

const TraceTable& trace_table() {
  static const TraceTable table = read_trace_table();
  return table;
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return text;
}

/// Returns the kind of the first part of a name that the table has, or nothing.
std::optional<std::string> kind_by(const std::string& name) {
  const std::string text = lower(name);
  for (const auto& [part, kind] : trace_table().kinds) {
    if (text.find(part) != text.npos) return kind;
  }
  return std::nullopt;
}

/// Nanoseconds; nothing for a time that no trace has.
std::optional<std::int64_t> nanoseconds(double microseconds) {
  if (!(std::abs(microseconds) < kMostMicroseconds)) return std::nullopt;
  return std::int64_t(std::llround(microseconds * 1e3));
}

/// Values that are equal are kept once.
template <typename Value>
class Known {
 public:
  /// Returns the index of the value of a key, which `make` returns if the key is new.
  template <typename Make>
  std::uint32_t index(const std::string& key, Make make) {
    const auto found = places_.find(key);
    if (found != places_.end()) return found->second;
    if (values_.size() >= kMostNames) return kNone;
    places_.emplace(key, std::uint32_t(values_.size()));
    values_.push_back(make());
    return std::uint32_t(values_.size() - 1);
  }
  const std::vector<Value>& values() const { return values_; }

 private:
  std::unordered_map<std::string, std::uint32_t> places_;
  std::vector<Value> values_;
};

struct Op {
  std::string name, inputs;
};

/// A KernelName is shared by kernels of one name; those of a collective have its size and group.
struct KernelName {
  std::string name, kind;
  std::optional<LogCollective> collective = {};
};

struct Kernel {
  std::int64_t start, duration;  ///< nanoseconds
  std::uint32_t name;
  std::uint32_t link;  ///< of the op, or of the launch
  std::uint16_t device;
  bool by_launch;  ///< the link is that of the launch
};

struct Window {
  std::int64_t number, event, begin, end;
};

/// Pairs of identities, sorted by the first.
using Links = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

std::uint32_t linked(const Links& links, std::uint32_t from) {
  const auto at = std::ranges::lower_bound(links, from, {}, &Links::value_type::first);
  return at != links.end() && at->first == from ? at->second : kNone;
}

std::uint32_t identity(double value) {
  return value >= 1 && value < double(kNone) ? std::uint32_t(value) : 0;
}

/// Intervals of time, in order and apart.
using Spans = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// Returns when some of the kernels, which are in order of their start, run.
template <typename Choose>
Spans spans_of(const std::vector<Kernel>& kernels, Choose choose) {
  Spans spans;
  for (const Kernel& kernel : kernels) {
    if (!choose(kernel)) continue;
    const std::int64_t end = kernel.start + kernel.duration;
    if (!spans.empty() && kernel.start <= spans.back().second) {
      spans.back().second = std::max(spans.back().second, end);
    } else {
      spans.emplace_back(kernel.start, end);
    }
  }
  return spans;
}

/// The part of a window in which nothing runs, and its longest gap, in seconds.
struct Idle {
  double all = 0, longest = 0;
};

Idle idle_in(const Spans& spans, const Window& window) {
  Idle idle;
  std::int64_t at = window.begin;
  const auto gap_to = [&](std::int64_t next) {
    if (next <= at) return;
    idle.all += double(next - at) / 1e9;
    idle.longest = std::max(idle.longest, double(next - at) / 1e9);
  };
  auto span = std::ranges::upper_bound(spans, at, {}, &Spans::value_type::second);
  for (; span != spans.end() && span->first < window.end; ++span) {
    gap_to(span->first);
    at = std::max(at, span->second);
  }
  gap_to(window.end);
  return idle;
}

class ProfilerTrace {
 public:
  void read(const TraceEvent& event);
  TrainingLog finish(const std::map<std::string, std::string>& facts, const std::string& file);

 private:
  void read_op(const TraceEvent& event);
  void link(Links& links, std::uint32_t from, std::uint32_t to);
  void read_kernel(const TraceEvent& event, bool copy);
  void read_memory(const TraceEvent& event);
  KernelName kernel_name(const TraceEvent& event, bool copy) const;
  void sum_kernels(TrainingLog& log);
  void add_steps(TrainingLog& log);

  std::int64_t events_ = 0, left_out_ = 0, no_time_ = 0, unlinked_ = 0;
  Known<Op> ops_;
  Known<KernelName> names_;
  Links op_of_;        ///< by external id, an op
  Links external_of_;  ///< by correlation, an external id
  std::vector<Kernel> kernels_;
  std::vector<Window> steps_;
  std::optional<LogMemory> memory_;
};

void ProfilerTrace::read(const TraceEvent& event) {
  ++events_;
  const auto category = trace_table().categories.find(lower(event.category));
  if (category == trace_table().categories.end()) return;
  if (category->second == Category::memory) return read_memory(event);
  if (event.phase != "X") return;
  switch (category->second) {
    case Category::op:
      return read_op(event);
    case Category::kernel:
    case Category::copy:
      return read_kernel(event, category->second == Category::copy);
    case Category::launch:
      if (const auto external = identity(event.number(TraceNumber::external_id)); external != 0) {
        link(external_of_, identity(event.number(TraceNumber::correlation)), external);
      }
      return;
    default:
      return;
  }
}

void ProfilerTrace::read_op(const TraceEvent& event) {
  const std::string& step = trace_table().step;
  if (event.name.starts_with(step)) {
    Window window{.number = -1, .event = events_, .begin = 0, .end = 0};
    const char* const last = event.name.data() + event.name.size();
    std::from_chars(event.name.data() + step.size(), last, window.number);
    const auto start = nanoseconds(event.start), duration = nanoseconds(event.duration);
    if (!start || !duration || *duration <= 0 || window.number < 0) {
      ++no_time_;
    } else if (steps_.size() >= kMostSteps) {
      ++left_out_;
    } else {
      window.begin = *start;
      window.end = *start + *duration;
      steps_.push_back(window);
    }
    return;
  }
  const std::uint32_t external = identity(event.number(TraceNumber::external_id));
  if (external == 0) return;
  std::string inputs = event.text(TraceText::dimensions);
  if (!inputs.empty()) inputs += " " + event.text(TraceText::types);
  const std::uint32_t op = ops_.index(event.name + "\n" + inputs, [&] {
    return Op{event.name, inputs};
  });
  link(op_of_, external, op);
}

void ProfilerTrace::link(Links& links, std::uint32_t from, std::uint32_t to) {
  if (to == kNone || links.size() >= kMostLinks) {
    ++unlinked_;
  } else {
    links.emplace_back(from, to);
  }
}

KernelName ProfilerTrace::kernel_name(const TraceEvent& event, bool copy) const {
  const auto kind = copy ? std::optional<std::string>("copy") : kind_by(event.name);
  KernelName name{.name = event.name, .kind = kind.value_or("")};
  const std::string& collective = event.text(TraceText::collective);
  if (collective.empty()) return name;
  name.kind = "collective";
  const auto count = [&](TraceNumber which) {
    const double value = event.number(which);
    return value > 0 && value < 1e15 ? std::int64_t(value) : 0;
  };
  name.collective = {.name = collective,
                     .kernel = event.name,
                     .type = event.text(TraceText::type),
                     .elements = count(TraceNumber::elements),
                     .received = count(TraceNumber::received),
                     .group_size = count(TraceNumber::group_size),
                     .ranks = event.text(TraceText::ranks)};
  const auto size = trace_table().type_bytes.find(name.collective->type);
  if (size != trace_table().type_bytes.end()) {
    name.collective->bytes =
        Bytes(size->second) * std::max(name.collective->elements, name.collective->received);
  }
  return name;
}

void ProfilerTrace::read_kernel(const TraceEvent& event, bool copy) {
  const auto start = nanoseconds(event.start), duration = nanoseconds(event.duration);
  if (!start || !duration || *duration < 0) {
    ++no_time_;
    return;
  }
  std::string key = event.name;
  if (copy) {
    key += "\n";
  } else if (const std::string& collective = event.text(TraceText::collective);
             !collective.empty()) {
    key = fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}", key, collective, event.text(TraceText::type),
                      event.number(TraceNumber::elements), event.number(TraceNumber::received),
                      event.number(TraceNumber::group_size), event.text(TraceText::ranks));
  }
  const std::uint32_t name = names_.index(key, [&] { return kernel_name(event, copy); });
  if (name == kNone || kernels_.size() >= kMostKernels) {
    ++left_out_;
    return;
  }
  const std::uint32_t external = identity(event.number(TraceNumber::external_id));
  const double device = event.number(TraceNumber::device);
  kernels_.push_back(
      {.start = *start,
       .duration = *duration,
       .name = name,
       .link = external != 0 ? external : identity(event.number(TraceNumber::correlation)),
       .device = std::uint16_t(device > 0 && device < 65'536 ? device : 0),
       .by_launch = external == 0});
}

/// The profiler counts the allocator's bytes at each change; the host's device type is 0.
void ProfilerTrace::read_memory(const TraceEvent& event) {
  if (!(event.number(TraceNumber::device_type) > 0)) return;
  if (!memory_) memory_ = LogMemory{.line = events_};
  const auto raise = [&](LogQuantity quantity, double value) {
    auto& peak = memory_->bytes[std::size_t(quantity) - kStepQuantities];
    if (value < 1e15 && value > peak.value_or(0)) peak = value;
  };
  raise(LogQuantity::peak_allocated, event.number(TraceNumber::allocated));
  raise(LogQuantity::peak_reserved, event.number(TraceNumber::reserved));
}

LogTimes times_of_kernels(std::vector<double> seconds) {
  LogTimes times{.count = std::int64_t(seconds.size())};
  double total = 0;
  for (const double one : seconds) total += one;
  times.total = Seconds(total);
  times.least = Seconds(*std::ranges::min_element(seconds));
  times.median = Seconds(quantile_of(std::move(seconds), 0.5));
  return times;
}

/// Sums kernels of one name, op and shape. Links become those of ops; kernels come in this order.
void ProfilerTrace::sum_kernels(TrainingLog& log) {
  std::ranges::stable_sort(op_of_, {}, &Links::value_type::first);
  std::ranges::stable_sort(external_of_, {}, &Links::value_type::first);
  for (Kernel& kernel : kernels_) {
    const std::uint32_t external =
        kernel.by_launch ? linked(external_of_, kernel.link) : kernel.link;
    kernel.link = external == kNone ? kNone : linked(op_of_, external);
    if (names_.values()[kernel.name].collective) kernel.link = kNone;
  }
  const auto group = [](const Kernel& kernel) { return std::tuple(kernel.name, kernel.link); };
  std::ranges::sort(kernels_, {}, [&](const Kernel& kernel) {
    return std::tuple_cat(group(kernel), std::tuple(kernel.start, kernel.duration));
  });
  for (auto at = kernels_.begin(); at != kernels_.end();) {
    const auto end = std::find_if(at, kernels_.end(),
                                  [&](const Kernel& other) { return group(other) != group(*at); });
    std::vector<double> seconds;
    for (auto one = at; one != end; ++one) seconds.push_back(double(one->duration) / 1e9);
    const LogTimes times = times_of_kernels(std::move(seconds));
    const KernelName& name = names_.values()[at->name];
    if (name.collective) {
      log.collectives.push_back(*name.collective);
      log.collectives.back().times = times;
    } else {
      const Op op = at->link == kNone ? Op() : ops_.values()[at->link];
      std::string kind = name.kind;
      if (kind.empty()) kind = kind_by(op.name).value_or("other");
      log.kernels.push_back({std::move(kind), name.name, op.name, op.inputs, times});
    }
    at = end;
  }
  const auto longest = [](const auto& one) { return -one.times.total.value(); };
  std::ranges::stable_sort(log.kernels, {}, longest);
  std::ranges::stable_sort(log.collectives, {}, longest);
}

/// Adds steps with their gaps, if all kernels were read. The device with the most kernels counts.
void ProfilerTrace::add_steps(TrainingLog& log) {
  std::map<std::uint16_t, std::int64_t> devices;
  for (const Kernel& kernel : kernels_) ++devices[kernel.device];
  if (devices.size() > 1) {
    log.doubts.push_back(
        fmt::format("kernels of {} devices: the gaps are those of the device with "
                    "the most kernels",
                    devices.size()));
  }
  if (!devices.empty()) {
    const std::uint16_t device =
        std::ranges::max_element(devices, {}, [](const auto& one) { return one.second; })->first;
    std::erase_if(kernels_, [&](const Kernel& kernel) { return kernel.device != device; });
  }
  std::ranges::sort(kernels_, {},
                    [](const Kernel& kernel) { return std::tuple(kernel.start, kernel.duration); });
  const Spans busy = spans_of(kernels_, [](const Kernel&) { return true; });
  const Spans computes = spans_of(kernels_, [&](const Kernel& kernel) {
    return names_.values()[kernel.name].kind != "collective";
  });
  std::ranges::stable_sort(steps_, {}, &Window::begin);
  StepSeries series;
  for (const Window& step : steps_) {
    series.open(step.number, step.event, std::nullopt);
    series.set(LogQuantity::time, double(step.end - step.begin) / 1e9);
    if (kernels_.empty() || left_out_ > 0) continue;
    const Idle idle = idle_in(busy, step);
    series.set(LogQuantity::device_idle, idle.all);
    series.set(LogQuantity::longest_idle, idle.longest);
    series.set(LogQuantity::exposed_collectives, idle_in(computes, step).all - idle.all);
    const auto from = std::ranges::lower_bound(kernels_, step.begin, {}, &Kernel::start);
    const auto to = std::ranges::lower_bound(kernels_, step.end, {}, &Kernel::start);
    series.set(LogQuantity::kernels, double(to - from));
  }
  series.finish(log);
}

TrainingLog ProfilerTrace::finish(const std::map<std::string, std::string>& facts,
                                  const std::string& file) {
  if (steps_.empty() && kernels_.empty()) {
    throw InputError(file, "/traceEvents",
                     fmt::format("it has neither a {} nor a kernel", trace_table().step));
  }
  TrainingLog log;
  log.trainer = trace_table().name;
  for (const auto& [name, value] : facts) log.arguments.emplace(name, LogArgument{value, 1});
  if (memory_) log.memory.push_back(*memory_);
  log.doubts = trace_table().doubts;
  if (no_time_ > 0) {
    log.doubts.push_back(
        fmt::format("{} steps and kernels have no time, and are left out", no_time_));
  }
  if (left_out_ > 0) {
    log.doubts.push_back(
        fmt::format("{} kernels and steps are left out, behind the first {} of {} names; no "
                    "gaps are counted",
                    left_out_, kMostKernels, kMostNames));
  }
  if (unlinked_ > 0) {
    log.doubts.push_back(
        fmt::format("{} ops and launches are left out: their kernels have no shape", unlinked_));
  }
  sum_kernels(log);
  const bool shapes = std::ranges::any_of(
      log.kernels, [](const LogKernels& kernels) { return !kernels.inputs.empty(); });
  if (!log.kernels.empty() && !shapes) {
    log.doubts.emplace_back("shapes of inputs are not recorded (record_shapes=True)");
  }
  op_of_ = external_of_ = {};
  add_steps(log);
  tell_times(log, false);
  return log;
}

}  // namespace

TrainingLog read_profiler_trace(BlockSource source, std::string begin, const std::string& file) {
  ProfilerTrace trace;
  TraceEvents events(file, [&](const TraceEvent& event) { trace.read(event); });
  std::int64_t seen = 0;
  int silent = 0;  // blocks within one text or number, which the JSON reader keeps whole
  BlockBuffer buffer(
      [&](std::span<char> block) {
        silent = events.seen() == seen ? silent + 1 : 0;
        seen = events.seen();
        if (silent > kMostSilentBlocks) throw InputError(file, "", "it has a text of 16 MiB");
        return source(block);
      },
      std::move(begin));
  std::istream stream(&buffer);
  Json::sax_parse(stream, &events);
  return trace.finish(events.facts(), file);
}

}  // namespace plimsoll
