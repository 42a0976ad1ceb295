// The memory curve of a rank, stacked by class.
#include "reports/memory_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>

#include "plan/timeline_detail.h"
#include "reports/markup.h"
#include "reports/numbers.h"

namespace plimsoll {
namespace {

constexpr double kChartWidth = 552, kChartHeight = 190;
constexpr double kChartLeft = 70, kChartRight = 8, kChartTop = 22, kChartBottom = 24;

/// Bottom of the stack first: what lives longest.
constexpr std::array<TensorRole, kTensorRoles> kStack = {
    TensorRole::parameter,       TensorRole::master_parameter, TensorRole::gradient,
    TensorRole::optimizer_state, TensorRole::workspace,        TensorRole::scalar,
    TensorRole::saved,           TensorRole::communication,    TensorRole::activation};

Bytes total(const BytesByRole& by_role) {
  return std::accumulate(by_role.begin(), by_role.end(), Bytes());
}

struct Axes {
  const MemoryChartOptions& options;
  double x(Picoseconds time) const {
    const double span = std::max(1.0, static_cast<double>(options.span.count()));
    const double share = static_cast<double>((time - options.begin).count()) / span;
    return kChartLeft + std::clamp(share, 0.0, 1.0) * (kChartWidth - kChartLeft - kChartRight);
  }
  double y(Bytes bytes) const {
    const double most = std::max(1.0, static_cast<double>(options.most.count()));
    return kChartHeight - kChartBottom -
           static_cast<double>(bytes.count()) / most * (kChartHeight - kChartTop - kChartBottom);
  }
};

/// Bytes of the stack below `layer` at a point; layer == kTensorRoles is the whole stack.
Bytes below(const MemoryPoint& point, std::size_t layer) {
  Bytes sum;
  for (std::size_t i = 0; i < layer; ++i) sum += point.by_role[std::size_t(kStack[i])];
  return sum;
}

/// One layer: its upper edge forward in time, its lower edge back. Values hold until the next
/// point.
void append_layer(std::string& svg, const std::vector<MemoryPoint>& curve, std::size_t layer,
                  const Axes& axes) {
  const auto role = std::size_t(kStack[layer]);
  if (std::all_of(curve.begin(), curve.end(),
                  [&](const MemoryPoint& point) { return point.by_role[role] == Bytes(); })) {
    return;
  }
  const double end = axes.x(axes.options.end);
  const auto until = [&](std::size_t i) {
    return i + 1 < curve.size() ? axes.x(curve[i + 1].time) : end;
  };
  svg += fmt::format("<path class=\"{}\" d=\"M{:.2f} {:.2f}", to_text(kStack[layer]),
                     axes.x(curve.front().time), axes.y(below(curve.front(), layer + 1)));
  const auto out = std::back_inserter(svg);
  for (std::size_t i = 0; i < curve.size(); ++i) {
    fmt::format_to(out, "V{:.2f}H{:.2f}", axes.y(below(curve[i], layer + 1)), until(i));
  }
  for (std::size_t i = curve.size(); i-- > 0;) {
    fmt::format_to(out, "V{:.2f}H{:.2f}", axes.y(below(curve[i], layer)), axes.x(curve[i].time));
  }
  svg += "Z\"/>\n";
}

/// Round positions on a byte axis: about four of them, a power of two apart.
std::vector<Bytes> byte_ticks(Bytes most) {
  Bytes step(1);
  while (step * 5 < most) step = step * 2;
  std::vector<Bytes> positions;
  for (Bytes at; at <= most; at += step) positions.push_back(at);
  return positions;
}

void append_axes(std::string& svg, const Axes& axes) {
  const MemoryChartOptions& options = axes.options;
  for (Bytes bytes : byte_ticks(options.most)) {
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.2f}\" y2=\"{2:.2f}\"/>"
        "<text class=\"bytes\" x=\"{3}\" y=\"{2:.2f}\">{4}</text>\n",
        kChartLeft, kChartWidth - kChartRight, axes.y(bytes), kChartLeft - 6,
        bytes == Bytes() ? "0" : to_text(bytes));
  }
  for (double tick : ticks(static_cast<double>(options.span.count()), 5)) {
    const auto time = Picoseconds(static_cast<std::int64_t>(tick));
    svg += fmt::format("<text class=\"tick\" x=\"{:.2f}\" y=\"{}\">{}</text>\n",
                       axes.x(options.begin + time), kChartHeight - 8,
                       tick == 0 ? "0" : to_text(time.seconds()));
  }
}

void append_marks(std::string& svg, const RankMemory& memory, const Axes& axes) {
  const auto peak =
      std::find_if(memory.curve.begin(), memory.curve.end(),
                   [&](const MemoryPoint& point) { return total(point.by_role) == memory.peak; });
  if (peak != memory.curve.end()) {
    svg += fmt::format(
        "<circle class=\"peak\" cx=\"{:.2f}\" cy=\"{:.2f}\" r=\"3\"><title>first "
        "peak: {} bytes</title></circle>\n",
        axes.x(peak->time), axes.y(memory.peak), grouped(memory.peak.count()));
  }
  const MemoryChartOptions& options = axes.options;
  const auto line = [&](const char* style, Bytes bytes, const char* what, double x, double below) {
    svg += fmt::format(
        "<line class=\"{0}\" x1=\"{1}\" x2=\"{2}\" y1=\"{3:.2f}\" y2=\"{3:.2f}\"/>"
        "<text class=\"{0}\" x=\"{4}\" y=\"{5:.2f}\">{6} {7}</text>\n",
        style, kChartLeft, kChartWidth - kChartRight, axes.y(bytes), x, axes.y(bytes) + below, what,
        to_text(bytes));
  };
  // Labels are at the two ends of the chart. The lower line has its label below it, and the upper
  // line above, so that no line crosses a label.
  constexpr double kAbove = -4, kBelow = 11;
  const bool lower = options.reserved < options.room;
  line("reserved", options.reserved, "reserved", kChartLeft + 4, lower ? kBelow : kAbove);
  if (options.room <= options.most)
    line("capacity", options.room, "room", kChartWidth - kChartRight, lower ? kAbove : kBelow);
}

}  // namespace

std::string memory_svg(const RankMemory& memory, const MemoryChartOptions& options) {
  const Axes axes{options};
  std::string svg = fmt::format(
      "<svg class=\"chart memory\" role=\"img\" viewBox=\"0 0 {} {}\" aria-label=\"{}\">\n"
      "<text class=\"title\" x=\"{}\" y=\"12\">{}</text>\n",
      kChartWidth, kChartHeight, escaped(options.title), kChartLeft, escaped(options.title));
  append_axes(svg, axes);
  if (!memory.curve.empty()) {
    for (std::size_t layer = 0; layer < kTensorRoles; ++layer) {
      append_layer(svg, memory.curve, layer, axes);
    }
  }
  append_marks(svg, memory, axes);
  return svg + "</svg>\n";
}

std::string memory_table(const RankMemory& memory, Picoseconds begin) {
  Timeline thinned{{}, {memory}};
  thin_curves(thinned, kMostTablePoints);
  const std::vector<MemoryPoint>& curve = thinned.memory[0].curve;
  std::vector<TensorRole> roles;
  for (const TensorRole role : kStack) {
    const auto has = [&](const MemoryPoint& p) { return p.by_role[std::size_t(role)] > Bytes(); };
    if (std::ranges::any_of(curve, has)) roles.push_back(role);
  }
  std::vector<Column> columns = {{"From", "number", "s"}, {"all", "number", "bytes"}};
  for (const TensorRole role : roles) columns.push_back({to_text(role), "number", "bytes"});
  std::vector<std::vector<Cell>> rows;
  for (const MemoryPoint& point : curve) {
    rows.push_back({exact_cell((point.time - begin).seconds()), exact_cell(total(point.by_role))});
    for (const TensorRole role : roles)
      rows.back().push_back(exact_cell(point.by_role[std::size_t(role)]));
  }
  return table("Live bytes from an instant on", columns, rows);
}

std::string memory_legend(const Timeline& timeline) {
  std::array<bool, kTensorRoles> occurs = {};
  for (const RankMemory& memory : timeline.memory) {
    for (const MemoryPoint& point : memory.curve) {
      for (std::size_t role = 0; role < kTensorRoles; ++role) {
        occurs[role] = occurs[role] || point.by_role[role] > Bytes();
      }
    }
  }
  std::vector<std::string> labels(kTensorRoles);
  std::vector<LegendEntry> entries;
  for (TensorRole role : kStack) {
    if (!occurs[std::size_t(role)]) continue;
    std::string& label = labels[std::size_t(role)];
    label = to_text(role);
    std::replace(label.begin(), label.end(), '_', ' ');
    entries.push_back({to_text(role), label});
  }
  return legend(entries);
}

}  // namespace plimsoll
