"""Cost of searches of one job as its devices and layers grow, as an SVG of four panels and a page with its table.
Used by scripts/search-speed --growth."""

import math

WIDTH, HEIGHT = 380, 240  # of a panel
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 34, 44
# Text and lines take the colours of the reader's page: an SVG follows prefers-color-scheme by itself.
STYLE = """
text { font: 12px sans-serif; fill: #24292f; }
.title { font-weight: bold; }
.grid { stroke: #d0d7de; stroke-width: 1; }
.line { fill: none; stroke: #0969da; stroke-width: 2; }
.point { fill: #0969da; }
.open { fill: #ffffff; stroke: #0969da; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .grid { stroke: #3d444d; }
  .line { stroke: #58a6ff; }
  .point { fill: #58a6ff; }
  .open { fill: #0d1117; stroke: #58a6ff; }
}
"""


class LogAxis:
    """From values to places between `begin` and `end`; marks are powers of `base`, which all values lie within."""

    def __init__(self, values, base, begin, end):
        self.low = math.floor(math.log(min(values), base) + 1e-9)
        self.high = max(math.ceil(math.log(max(values), base) - 1e-9), self.low + 1)
        self.base, self.begin, self.end = base, begin, end

    def place(self, value):
        share = (math.log(value, self.base) - self.low) / (self.high - self.low)
        return self.begin + share * (self.end - self.begin)

    def marks(self, most):
        step = -(-(self.high - self.low) // most)
        return [self.base**power for power in range(self.low, self.high + 1, step)]


def text_of(value):
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def panel(title, x_name, points, left, top):
    """`points`: x, y, whether the search ended. Both axes are logarithmic."""
    x = LogAxis([p[0] for p in points], 2, left + LEFT, left + WIDTH - RIGHT)
    y = LogAxis([p[1] for p in points], 10, top + HEIGHT - BOTTOM, top + TOP)
    lines = [f'<text class="title" x="{left + LEFT}" y="{top + 18}">{title}</text>',
             f'<text x="{(x.begin + x.end) / 2:.0f}" y="{top + HEIGHT - 8}" text-anchor="middle">{x_name}</text>']
    for mark in y.marks(5):
        at = y.place(mark)
        lines.append(f'<line class="grid" x1="{x.begin}" x2="{x.end}" y1="{at:.1f}" y2="{at:.1f}"/>')
        lines.append(f'<text x="{x.begin - 6}" y="{at + 4:.1f}" text-anchor="end">{text_of(mark)}</text>')
    for mark in x.marks(5):
        at = x.place(mark)
        lines.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{y.begin}" y2="{y.end}"/>')
        lines.append(f'<text x="{at:.1f}" y="{y.begin + 16}" text-anchor="middle">{text_of(mark)}</text>')
    places = [(x.place(p[0]), y.place(p[1]), p) for p in points]
    lines.append('<polyline class="line" points="' + " ".join(f"{a:.1f},{b:.1f}" for a, b, _ in places) + '"/>')
    for a, b, (at, value, ended) in places:
        lines.append(f'<circle class="{"point" if ended else "open"}" cx="{a:.1f}" cy="{b:.1f}" r="4">'
                     f"<title>{text_of(at)}: {value:,.1f}</title></circle>")
    return lines


def svg(series):
    """`series`: (name of x, [(x, measured)]), where `measured` has cpu, memory (MiB) and proven."""
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {len(series) * HEIGHT}" role="img">',
             "<title>CPU seconds and memory of searches as devices and layers grow</title>",
             f"<style>{STYLE}</style>"]
    for row, (name, points) in enumerate(series):
        for column, (title, key) in enumerate([("CPU seconds", "cpu"), ("memory, MiB", "memory")]):
            values = [(x, max(measured[key], 0.1), measured["proven"]) for x, measured in points]
            lines += panel(title, name, values, column * WIDTH, row * HEIGHT)
    return "\n".join(lines + ["</svg>", ""])
