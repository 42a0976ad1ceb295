// Runs of nccl-tests as points of a calibration.
#include "interop/hardware/nccl_tests.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "interop/hardware/nccl_rows.h"
#include "models/calibration/limits.h"

namespace plimsoll {
namespace {

/// The kind of op that a collective of nccl-tests is, where a Program has it.
std::optional<OpKind> kind_of(const NcclRun& run) {
  if (run.collective == "all_reduce") return OpKind::all_reduce;
  if (run.collective == "all_gather") return OpKind::all_gather;
  if (run.collective == "reduce_scatter") return OpKind::reduce_scatter;
  if (run.collective == "broadcast") return OpKind::broadcast;
  if (run.collective == "reduce") return OpKind::reduce;
  // Each rank to the next, around: with two ranks a transfer in each direction.
  if (run.collective == "sendrecv" && run.ranks == 2) return OpKind::send;
  return std::nullopt;
}

/// Rows of one size, and how many iterations they are the means of.
struct Rows {
  std::vector<double> times;  // s
  std::vector<double> spreads;
  std::int64_t iterations = 0;
};

double quantile(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  const double place = part * double(values.size() - 1);
  const std::size_t below = std::size_t(place);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - double(below)) * (values[above] - values[below]);
}

Sample sample_of(const Rows& rows) {
  Sample sample;
  sample.median = Seconds(quantile(rows.times, 0.5));
  const double between = quantile(rows.times, 0.75) - quantile(rows.times, 0.25);
  const double within = rows.spreads.empty() ? 0 : quantile(rows.spreads, 0.5);
  sample.spread = Seconds(std::max(between, within));
  sample.samples = rows.iterations;
  sample.unsteady = sample.spread.value() > 0.1 * sample.median.value();
  return sample;
}

/// The type that a collective adds up, as tensors have it.
std::optional<DType> dtype_of(OpKind kind, const std::string& type) {
  if (!adds_up(kind) || type == "float") return DType::f32;
  if (type == "half") return DType::f16;
  if (type == "bfloat16") return DType::bf16;
  return std::nullopt;
}

/// The rows of a run by type and size; what cannot be used is noted.
std::map<std::pair<DType, std::int64_t>, Rows> usable_rows(NcclRun& run) {
  std::map<std::pair<DType, std::int64_t>, Rows> by_size;
  std::map<std::string, std::int64_t> foreign;
  std::int64_t wrong = 0, unverified = 0, empty = 0;
  for (const NcclRow& row : run.rows) {
    // Transfers are not verified in place, where they would overwrite what they send.
    const bool in_place =
        row.in_place && (row.in_place->wrong || !row.out_of_place || !row.out_of_place->wrong);
    const auto& timing = in_place ? row.in_place : row.out_of_place;
    const auto is_wrong = [](const std::optional<NcclTiming>& one) {
      return one && one->wrong && *one->wrong > 0;
    };
    if (!timing || row.size == Bytes(0)) {
      ++empty;
    } else if (is_wrong(row.in_place) || is_wrong(row.out_of_place)) {
      ++wrong;
      run.notes.push_back(
          fmt::format("{}: {} B had wrong elements: left out", row.where, row.size.count()));
    } else if (const auto dtype = dtype_of(*kind_of(run), row.dtype); !dtype) {
      ++foreign[row.dtype];
    } else {
      if (!timing->wrong) ++unverified;
      Rows& rows = by_size[{*dtype, row.size.count()}];
      rows.times.push_back(timing->time.value());
      if (timing->spread) rows.spreads.push_back(timing->spread->value());
      rows.iterations += run.iterations;
    }
  }
  if (empty > 0)
    run.notes.push_back(fmt::format("rows of no bytes or no time: {}, left out", empty));
  for (const auto& [type, count] : foreign) {
    run.notes.push_back(
        fmt::format("rows that add up {}, as no Program does: {}, left out", type, count));
  }
  if (unverified > 0) {
    run.notes.push_back(fmt::format("rows whose results were not verified: {}", unverified));
  }
  return by_size;
}

/// Why a run yields no points; empty: it does.
std::string unusable(const NcclRun& run) {
  if (run.host_time) return "times of the host (-C 1), not of the collective";
  if (!kind_of(run)) {
    return run.collective == "sendrecv" ? "transfers around a ring of more than two"
                                        : "no Program has this collective";
  }
  return "";
}

}  // namespace

std::vector<NcclRun> parse_nccl_tests(std::string_view text, const std::string& file,
                                      const NcclGiven& given) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool json = first != text.npos && text[first] == '{';
  return json ? parse_nccl_json(text, file, given)
              : parse_nccl_text(without_escapes(text), file, given);
}

std::vector<NcclRun> read_nccl_tests(const std::filesystem::path& path, const NcclGiven& given) {
  return parse_nccl_tests(read_file(path), path.string(), given);
}

std::vector<CollectivePoint> nccl_points(std::vector<NcclRun>& runs) {
  using Key = std::tuple<OpKind, std::int64_t, std::int64_t, std::int64_t, DType, std::int64_t>;
  std::map<Key, CollectivePoint> points;
  for (NcclRun& run : runs) {
    if (const std::string reason = unusable(run); !reason.empty()) {
      run.notes.push_back(reason + ": no points");
      continue;
    }
    std::int64_t few = 0;
    for (const auto& [type_and_size, rows] : usable_rows(run)) {
      const auto [dtype, size] = type_and_size;
      CollectivePoint point;
      point.dtype = dtype;
      point.kind = *kind_of(run);
      point.ranks = run.ranks;
      point.payload = Bytes(size);
      point.time = sample_of(rows);
      point.nodes = run.nodes;
      point.groups_per_node = run.groups;
      point.communicator = CommunicatorKind::nccl;
      point.imported = ImportedFrom{std::filesystem::path(run.file).filename().string(), run.date};
      if (point.time.samples < kLeastSamples) {
        ++few;
        continue;
      }
      const Key key = {point.kind, point.ranks, point.nodes, point.groups_per_node, dtype, size};
      const auto [at, added] = points.emplace(key, point);
      if (!added) {
        run.notes.push_back(fmt::format("{} B are there from {} too: the faster counts", size,
                                        printable(at->second.imported->file)));
        if (point.time.median < at->second.time.median) at->second = point;
      }
    }
    if (few > 0) {
      run.notes.push_back(
          fmt::format("sizes with fewer than {1} iterations: {0}, left out", few, kLeastSamples));
    }
  }
  std::vector<CollectivePoint> result;
  for (const auto& [key, point] : points) result.push_back(point);
  return result;
}

}  // namespace plimsoll
