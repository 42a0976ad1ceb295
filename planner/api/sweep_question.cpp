// Reads the lists and files of a sweep question, and asks for the sweep.
#include "planner/api/sweep_question.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "interop/flags/flag_table.h"
#include "models/presets/presets.h"
#include "planner/api/target.h"
#include "planner/sweep/sweep_inputs.h"

namespace plimsoll {
namespace {

/// One point, by the words of the command line. 0 devices are all of the cluster.
struct AskedPoint {
  std::string cluster, framework;
  std::int64_t devices = 0, global_batch = 0, sequence = 0;
  std::optional<BytesPerSecond> network;
};

/// Returns the name of a preset as it is, and of a path the file's name alone.
std::string word_of(const std::string& name_or_path) {
  return std::filesystem::path(name_or_path).filename().string();
}

/// Returns the command line that makes the sweep again, without paths and outputs.
std::string command_of(const SweepQuestion& question) {
  std::string text = "planner sweep " + shell_word(word_of(question.target.job));
  const auto add = [&](std::string_view flag, const std::string& value) {
    if (!value.empty()) text += fmt::format(" {} {}", flag, shell_word(value));
  };
  const auto add_all = [&](const char* flag, const std::vector<std::string>& values) {
    for (const std::string& value : values) add(flag, value);
  };
  for (const std::string& cluster : question.clusters) add("--cluster", word_of(cluster));
  for (const std::string& name : question.target.calibration) add("--calibration", word_of(name));
  for (const std::string& framework : question.frameworks) add("--framework", word_of(framework));
  add_all("--devices", question.devices);
  add_all("--global-batch", question.batches);
  add_all("--sequence", question.sequences);
  add_all("--network", question.networks);
  add("--tokens", question.tokens);
  add_all("--price", question.prices);
  add("--deadline", question.deadline);
  for (const auto& [flag, value] : flags_of(question.constraints)) add(flag, value);
  if (question.reserve != kDefaultReserve) add("--reserve", exact_text(question.reserve));
  const auto add_limit = [&](const char* flag, std::optional<Seconds> limit) {
    if (limit) add(flag, fmt::format("{} s", limit->value()));
  };
  add_limit("--time-limit", question.time_limit);
  add_limit("--point-time-limit", question.point_time_limit);
  return text;
}

/// Parses the lists and reads every file once, so that what is wrong is said before any search.
class Inputs {
 public:
  explicit Inputs(const SweepQuestion& question)
      : question_(question), job_(read_stated_job(question.target)) {
    if (!question.tokens.empty()) goal_.tokens = parse_tokens(question.tokens);
    if (!question.deadline.empty()) goal_.deadline = parse_days("--deadline", question.deadline);
    if (goal_.deadline && !goal_.tokens) throw UsageError("--deadline needs --tokens");
    if (!question.prices.empty() && !goal_.tokens) throw UsageError("--price needs --tokens");
    if (question.clusters.empty()) named_cluster({});  // refuses
    read_prices();
    list_points();
  }

  const std::vector<AskedPoint>& points() const { return points_; }
  const SweepGoal& goal() const { return goal_; }
  const Job& job() const { return job_; }

  LoadedPoint load(std::size_t index) const {
    const AskedPoint& asked = points_[index];
    LoadedTarget loaded = load_point(target_of(asked), job_of(asked), question_.reserve);
    LoadedPoint point{SearchRequest{loaded.target, question_.constraints},
                      {loaded.target.cluster().name, loaded.target.framework().name,
                       loaded.target.devices, asked.global_batch, asked.sequence, asked.network},
                      loaded.source.words,
                      price_of(asked, loaded.target.cluster().name)};
    point.request.inputs.cluster_digest = loaded.cluster_digest;
    point.request.inputs.calibration_digest = loaded.source.digest;
    return point;
  }

  SweepPoint name(std::size_t index) const {
    const AskedPoint& asked = points_[index];
    return {word_of(asked.cluster), asked.framework, asked.devices,
            asked.global_batch,     asked.sequence,  asked.network};
  }

 private:
  TargetOptions target_of(const AskedPoint& asked) const {
    TargetOptions target = question_.target;
    target.cluster = asked.cluster;
    target.framework = asked.framework;
    target.devices = asked.devices;
    target.network = asked.network;
    return target;
  }

  Job job_of(const AskedPoint& asked) const {
    Job job = job_;
    job.global_batch = asked.global_batch;
    job.sequence = asked.sequence;
    check_job(job, "--sequence");
    return job;
  }

  /// Whether a price's cluster is one of the sweep, as the command line or its file names it.
  bool is_swept(const std::string& name) const {
    return std::ranges::any_of(question_.clusters, [&](const std::string& cluster) {
      if (cluster == name) return true;
      TargetOptions target = question_.target;
      target.cluster = cluster;
      const std::string file = named_cluster(target).name;
      if (file == name) return true;
      return parse_cluster(given_text(target.texts, file, cluster_presets()), file).name == name;
    });
  }

  void read_prices() {
    for (const std::string& text : question_.prices) {
      Price price = parse_price(text);
      if (!price.cluster.empty() && !is_swept(price.cluster))
        throw UsageError(fmt::format("--price {}: no --cluster {}", text, price.cluster));
      for (const Price& other : prices_) {
        if (other.cluster == price.cluster)
          throw UsageError(fmt::format("--price {}: the price is given twice", text));
      }
      prices_.push_back(std::move(price));
    }
  }

  /// Returns the price of a cluster itself, else that of all clusters.
  std::optional<double> price_of(const AskedPoint& asked, const std::string& name) const {
    std::optional<double> found;
    for (const Price& price : prices_) {
      if (price.cluster.empty() && !found) found = price.per_hour;
      if (price.cluster == asked.cluster || price.cluster == name) found = price.per_hour;
    }
    if (!found && !prices_.empty())
      throw UsageError(fmt::format("--price: none is given for --cluster {}", asked.cluster));
    return found;
  }

  void list_points() {
    const auto list = [](const char* flag, const std::vector<std::string>& lists, std::int64_t most,
                         std::int64_t usual) {
      return lists.empty() ? std::vector{usual} : parse_numbers(flag, lists, 1, most);
    };
    const auto devices = list("--devices", question_.devices, kMostDevices, 0);
    const auto batches =
        list("--global-batch", question_.batches, kMostGlobalBatch, job_.global_batch);
    const auto sequences = list("--sequence", question_.sequences, kMostSequence, job_.sequence);
    const auto frameworks =
        question_.frameworks.empty() ? std::vector<std::string>{""} : question_.frameworks;
    std::vector<std::optional<BytesPerSecond>> networks = {std::nullopt};
    if (!question_.networks.empty()) {
      const std::vector<BytesPerSecond> rates = parse_networks(question_.networks);
      networks.assign(rates.begin(), rates.end());
    }
    const std::size_t count = question_.clusters.size() * frameworks.size() * devices.size() *
                              batches.size() * sequences.size() * networks.size();
    if (count > kMostSweepPoints)
      throw UsageError(fmt::format("{} points, more than {}", count, kMostSweepPoints));
    for (const std::string& cluster : question_.clusters) {
      for (const std::string& framework : frameworks) {
        check({cluster, framework, devices.front(), batches.front(), sequences.front(),
               networks.front()});
        for (const auto& network : networks) {
          for (const std::int64_t batch : batches) {
            for (const std::int64_t sequence : sequences) {
              for (const std::int64_t number : devices)
                points_.push_back({cluster, framework, number, batch, sequence, network});
            }
          }
        }
      }
    }
  }

  /// Reads the files of a point and finds its price.
  void check(const AskedPoint& asked) const {
    const LoadedTarget loaded = load_point(target_of(asked), job_of(asked), question_.reserve);
    price_of(asked, loaded.target.cluster().name);
  }

  const SweepQuestion& question_;
  const Job job_;
  SweepGoal goal_;
  std::vector<Price> prices_;
  std::vector<AskedPoint> points_;
};

}  // namespace

Sweep sweep_job(const SweepQuestion& asked) {
  SweepQuestion question = asked;
  std::set<std::string> noted;  // every point reads its cluster
  question.target.note = [&](std::string_view text) {
    if (noted.emplace(text).second) asked.target.note(text);
  };
  SweepRequest request;
  request.time_limit = question.time_limit;
  request.point_limit = question.point_time_limit;
  const Inputs inputs(question);
  request.points = inputs.points().size();
  request.load = [&](std::size_t i) { return inputs.load(i); };
  request.name = [&](std::size_t i) { return inputs.name(i); };
  request.goal = inputs.goal();
  request.threads = question.threads;
  request.stop = question.stop;
  request.progress = question.progress;
  Sweep sweep = run_sweep(request);
  sweep.job = inputs.job().name;
  sweep.command = command_of(question);
  sweep.reserve = question.reserve;
  return sweep;
}

}  // namespace plimsoll
