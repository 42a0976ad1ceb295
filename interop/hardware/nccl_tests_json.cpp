// nccl-tests' JSON (`-J`), file versions 1 to 3: rows up to where a killed run ended.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/json.h"
#include "interop/hardware/nccl_rows.h"

namespace plimsoll {
namespace {

/// Text up to the last element of the outermost lists and objects that is whole, with what it left
/// open closed. Empty: the text does not end early.
std::string closed(std::string_view text) {
  std::string open, open_there;  // closers, innermost last
  std::size_t whole = 0;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') ++at;
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '{' || c == '[') open += c == '{' ? '}' : ']';
    if (open.size() > 64) return "";  // the parser refuses it
    if (c != '}' && c != ']') continue;
    if (open.empty() || open.back() != c) return "";
    open.pop_back();
    if (open.empty()) return "";
    if (open.size() <= 2) {
      whole = at + 1;
      open_there = open;
    }
  }
  if (whole == 0) return "";
  std::reverse(open_there.begin(), open_there.end());
  return std::string(text.substr(0, whole)) + open_there;
}

/// A value that nccl-tests may write as the text "nan".
std::optional<double> number_or_nan(JsonObject& object, const char* key, double least,
                                    double most) {
  if (object.raw(key) == "nan") return std::nullopt;
  return object.number(key, least, most);
}

/// Median and interquartile range of at least four of them.
std::optional<Seconds> spread_of(JsonObject per_iteration) {
  std::vector<double> times = per_iteration.numbers("times_us");
  if (times.size() < 4) return std::nullopt;
  std::sort(times.begin(), times.end());
  const auto at = [&](double part) { return times[std::size_t(part * double(times.size() - 1))]; };
  return Seconds((at(0.75) - at(0.25)) * 1e-6);
}

std::optional<NcclTiming> timing_from(NcclRun& run, const NcclRow& row, JsonObject object) {
  const bool host = object.has("cpu_time");
  if (host) run.host_time = true;
  const auto time = number_or_nan(object, host ? "cpu_time" : "time", 1e-3, kMostNcclMicroseconds);
  const auto bandwidth = number_or_nan(object, "bus_bw", 0, 1e9);
  if (!time || !bandwidth) return std::nullopt;
  NcclTiming timing;
  timing.time = Seconds(*time / 1e6);
  timing.bus_bandwidth = *bandwidth;
  if (object.has("nwrong")) {
    if (const auto wrong = number_or_nan(object, "nwrong", 0, 1e15)) {
      timing.wrong = std::int64_t(*wrong);
    }
  }
  // Written with six decimals.
  if (row.size.count() > 0) check_bandwidth(run, row, timing, {5e-7, 5e-7});
  return timing;
}

NcclRow row_from(NcclRun& run, JsonObject& object) {
  NcclRow row;
  row.where = object.pointer();
  row.size = Bytes(object.integer("size", 0, kMostNcclSize));
  row.count = object.integer("count", 0, kMostNcclSize);
  row.dtype = object.text("type");
  check_size(run, row);
  constexpr std::array<const char*, 2> kKeys = {"out_of_place", "in_place"};
  for (const char* key : kKeys) {
    if (!object.has(key)) continue;
    auto timing = timing_from(run, row, object.object(key));
    const std::string iterations = std::string(key) + "_per_iter";
    if (timing && object.has(iterations)) timing->spread = spread_of(object.object(iterations));
    (key == kKeys[0] ? row.out_of_place : row.in_place) = timing;
  }
  return row;
}

/// One entry for each process: its first rank.
NcclDevices devices_from(JsonObject& config) {
  NcclDevices list;
  list.per_process = config.integer("nthreads", 1, 1 << 16) * config.integer("ngpus", 1, 1 << 16);
  list.partial = list.per_process > 1;
  for (JsonObject& object : config.objects("devices")) {
    NcclDevice device;
    device.where = object.pointer();
    device.rank = object.integer("rank", 0, (1 << 22) - 1);
    device.group = object.integer("group", 0, 1 << 22);
    device.host = object.text("hostname");
    device.name = object.text("device_info");
    list.devices.push_back(std::move(device));
  }
  return list;
}

void read_header(NcclRun& run, JsonObject& object, const NcclGiven& given) {
  const std::int64_t version = object.integer("version", 1, 1'000'000);
  if (version > 3) {
    object.fail("version", "a version of nccl-tests' JSON from 1 to 3 is known");
  }
  const std::vector<std::string> arguments = object.texts("args");
  if (!arguments.empty()) run.collective = nccl_collective(arguments[0]).value_or("");
  if (run.collective.empty()) run.collective = given.collective;
  if (run.collective.empty()) {
    object.fail("args", "the name of a program of nccl-tests first is required, or --collective");
  }
  run.date = given.date.empty() && object.has("start_time")
                 ? object.text("start_time").substr(0, 10)
                 : given.date;
  if (object.has("nccl_version")) {
    run.versions.push_back("NCCL " +
                           nccl_version(object.integer("nccl_version", 1000, 10'000'000)));
  }
}

}  // namespace

std::vector<NcclRun> parse_nccl_json(std::string_view text, const std::string& file,
                                     const NcclGiven& given) {
  NcclRun run;
  run.file = file;
  run.where = "/results";
  const std::string mended = closed(text);
  const Json value = parse_json(mended.empty() ? text : std::string_view(mended), file);
  // The environment and what else is in there is not looked at: no finish().
  JsonObject object(value, file);
  read_header(run, object, given);
  JsonObject config = object.object("config");
  constexpr std::int64_t kMostIterations = 1'000'000'000;
  run.iterations =
      std::min(kMostIterations, config.integer("iterations", 1, 1 << 30) *
                                    config.integer("aggregated_iterations", 1, 1 << 30));
  place_ranks(run, devices_from(config), given);
  if (!mended.empty()) {
    run.notes.push_back(
        fmt::format("the file ends early: read up to byte {}", mended.find_last_not_of("]}") + 2));
  }
  for (JsonObject& row : object.objects("results")) run.rows.push_back(row_from(run, row));
  return {std::move(run)};
}

}  // namespace plimsoll
