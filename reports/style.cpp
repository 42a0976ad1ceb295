// The style sheet of the report and of other pages.
#include "reports/page.h"

namespace plimsoll {

std::string_view report_style() {
  return R"css(
:root {
  --paper: #fbfbfa; --raised: #ffffff; --ink: #1d2430; --soft: #5c6675; --line: #dfe3e8; --faint: #eff1f4;
  --good: #1b7a4b; --good-paper: #e8f5ee; --bad: #b3261e; --bad-paper: #fcecea;
  --open: #3b5b92; --open-paper: #ebf0f9; --tight: #9a5b00;
  --forward: #3f74b8; --recompute: #8ab4dd; --backward: #e08a2e; --backward_weight: #f0c28a; --optimizer: #7c55a6;
  --transfer: #2b9a7a; --wait: #a3adb9; --bubble: #c9cfd7; --dispatch: #8a93a0;
  --parameter: #3f74b8; --master_parameter: #24507f; --gradient: #e08a2e; --optimizer_state: #7c55a6;
  --activation: #2b9a7a; --saved: #93cdb8; --workspace: #b5bcc6; --communication: #cf5b7c; --scalar: #6d7683;
  --measured: #2b9a7a; --interpolated: #3f74b8; --fitted: #7c55a6; --extrapolated: #e08a2e; --typical: #cf5b7c;
  --datasheet: #b5bcc6; --focus: #1f5fd0; --hidden: #cfe6dd; --button: #ffffff;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14181e; --raised: #1b2027; --ink: #e6e9ee; --soft: #9aa5b3; --line: #313843; --faint: #232932;
    --good: #6fd3a1; --good-paper: #16291f; --bad: #ff9d94; --bad-paper: #331a18;
    --open: #a9c4f5; --open-paper: #1a2436; --tight: #f0b35c;
    --forward: #6c9fe0; --recompute: #3f658f; --backward: #eda55a; --backward_weight: #a06a2c; --optimizer: #ab87d6;
    --transfer: #4fbf9d; --wait: #66717f; --bubble: #46505c; --dispatch: #78828f;
    --parameter: #6c9fe0; --master_parameter: #9cc1f0; --gradient: #eda55a; --optimizer_state: #ab87d6;
    --activation: #4fbf9d; --saved: #2f6f5c; --workspace: #5f6874; --communication: #e27f9b; --scalar: #8e98a5;
    --measured: #4fbf9d; --interpolated: #6c9fe0; --fitted: #ab87d6; --extrapolated: #eda55a; --typical: #e27f9b;
    --datasheet: #5f6874; --focus: #8fb8ff; --hidden: #23453b; --button: #262d37;
  }
}
* { box-sizing: border-box; }
html { background: var(--paper); color: var(--ink); -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; max-width: 1184px; padding: 40px 32px 56px;
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 29px; line-height: 1.2; font-weight: 650; letter-spacing: -0.01em; margin: 0 0 18px; }
h2 { font-size: 20px; font-weight: 640; letter-spacing: -0.005em; margin: 0 0 14px; padding-top: 26px;
  border-top: 1px solid var(--line); }
h3 { font-size: 15.5px; font-weight: 640; margin: 22px 0 8px; }
section { margin-top: 34px; }
:focus-visible { outline: 2px solid var(--focus); outline-offset: 2px; }
.skip { position: absolute; left: -999px; }
.skip:focus { left: 12px; top: 8px; padding: 6px 12px; background: var(--raised); color: var(--ink); }
p { margin: 0 0 14px; max-width: 76ch; }
.eyebrow { color: var(--soft); font-size: 12.5px; font-weight: 600; letter-spacing: 0.08em;
  text-transform: uppercase; margin: 0 0 6px; }
.verdict { font-size: 17px; line-height: 1.5; font-weight: 500; max-width: none; margin: 0 0 22px;
  padding: 14px 18px; border-radius: 6px; border-left: 5px solid; }
.verdict.holds { color: var(--good); background: var(--good-paper); }
.verdict.fails { color: var(--bad); background: var(--bad-paper); }
.verdict.open { color: var(--open); background: var(--open-paper); }
.verdict span { display: block; font-size: 13px; font-weight: 400; margin-top: 4px; }
.figures { display: grid; grid-template-columns: repeat(4, 1fr); gap: 14px; margin: 0; }
.figures div { background: var(--raised); border: 1px solid var(--line); border-radius: 6px; padding: 12px 16px 13px; }
.figures dt { color: var(--soft); font-size: 13px; }
.figures dd { margin: 2px 0 0; font-size: 24px; font-weight: 620; font-variant-numeric: tabular-nums;
  letter-spacing: -0.01em; }
.figures span { display: block; font-size: 12.5px; line-height: 1.4; font-weight: 400; letter-spacing: 0;
  color: var(--soft); margin-top: 3px; }
.figures .tight dd { color: var(--tight); }
.figures .unfit dd { color: var(--bad); }
.columns > * { min-width: 0; }
.columns { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 12px 32px; align-items: start; }
.columns.narrow { grid-template-columns: minmax(0, 1fr) minmax(0, 2fr); }
.scroll { overflow-x: auto; margin: 0 0 20px; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; line-height: 1.4; }
caption { text-align: left; font-weight: 600; padding: 0 0 7px; }
th, td { text-align: left; padding: 5px 14px 5px 0; border-bottom: 1px solid var(--faint); vertical-align: baseline; }
th:last-child, td:last-child { padding-right: 0; }
thead th { color: var(--soft); font-weight: 500; font-size: 12.5px; border-bottom: 1px solid var(--line);
  vertical-align: bottom; }
tbody th { font-weight: 500; white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.key, code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 12.5px; }
td.key { overflow-wrap: anywhere; min-width: 16em; }
thead th.key { font-size: 11.5px; }
.label { width: 30%; }
.value { overflow-wrap: anywhere; min-width: 7em; }
.bars { width: 38%; vertical-align: middle; }
thead th.bars { vertical-align: bottom; }
.pair-of-bars { display: block; width: 100%; height: 11px; }
.equal { color: var(--good); white-space: nowrap; }
.differs { color: var(--bad); font-weight: 600; white-space: nowrap; }
.pair { display: block; }
tr.group th { padding-top: 14px; color: var(--soft); font-size: 12.5px; font-weight: 500; }
.note { color: var(--soft); font-size: 13px; max-width: 92ch; }
.stack { display: block; width: 100%; height: 20px; border-radius: 4px; margin: 4px 0 16px; background: var(--faint); }
td .stack { height: 9px; margin: 0; border-radius: 2px; min-width: 60px; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 4px 20px; margin: 0 0 12px; padding: 0; font-size: 13px; color: var(--soft); }
.swatch { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin-right: 7px; vertical-align: -1px; }
figure { margin: 0 0 20px; }
figcaption { font-weight: 600; font-size: 13.5px; margin-bottom: 4px; }
details { margin: 0 0 16px; }
summary { cursor: pointer; color: var(--soft); font-size: 13.5px; margin-bottom: 10px; }
footer { margin-top: 40px; color: var(--soft); font-size: 13px; }
.forward { background: var(--forward); fill: var(--forward); }
.recompute { background: var(--recompute); fill: var(--recompute); }
.backward { background: var(--backward); fill: var(--backward); }
.backward_weight { background: var(--backward_weight); fill: var(--backward_weight); }
.optimizer { background: var(--optimizer); fill: var(--optimizer); }
.transfer { background: var(--transfer); fill: var(--transfer); }
.wait { background: var(--wait); fill: var(--wait); }
.hidden { background: var(--hidden); fill: var(--hidden); }
.bubble { background: var(--bubble); fill: var(--bubble); }
.dispatch { background: var(--dispatch); fill: var(--dispatch); }
.swatch.measured { background: var(--measured); }
rect.measured { fill: var(--measured); }
.interpolated { background: var(--interpolated); fill: var(--interpolated); }
.fitted { background: var(--fitted); fill: var(--fitted); }
.extrapolated { background: var(--extrapolated); fill: var(--extrapolated); }
.typical { background: var(--typical); fill: var(--typical); }
.datasheet { background: var(--datasheet); fill: var(--datasheet); }
.slower { background: var(--backward); fill: var(--backward); }
.faster { background: var(--forward); fill: var(--forward); }
.doubled { background: var(--optimizer); fill: var(--optimizer); }
.chosen { background: var(--ink); fill: var(--ink); }
.front { background: var(--transfer); fill: var(--transfer); }
.loser { background: var(--backward); fill: var(--backward); }
.neighbour { background: var(--wait); fill: var(--wait); }
.misfit { background: var(--bad); fill: none; stroke: var(--bad); stroke-width: 1.6; }
.point { stroke: var(--raised); stroke-width: 1; cursor: pointer; }
.point.misfit { stroke: var(--bad); stroke-width: 1.6; }
.point.marked { stroke: var(--focus); stroke-width: 3; }
.parameter { background: var(--parameter); fill: var(--parameter); }
.master_parameter { background: var(--master_parameter); fill: var(--master_parameter); }
.gradient { background: var(--gradient); fill: var(--gradient); }
.optimizer_state { background: var(--optimizer_state); fill: var(--optimizer_state); }
.activation { background: var(--activation); fill: var(--activation); }
.saved { background: var(--saved); fill: var(--saved); }
.workspace { background: var(--workspace); fill: var(--workspace); }
.communication { background: var(--communication); fill: var(--communication); }
.scalar { background: var(--scalar); fill: var(--scalar); }
.chart { display: block; width: 100%; height: auto; background: var(--raised); border: 1px solid var(--line);
  border-radius: 6px; padding: 8px 10px; margin: 0 0 12px; font: 11px system-ui, "DejaVu Sans", sans-serif; }
.chart text { fill: var(--soft); }
.chart .title { fill: var(--ink); font-size: 11.5px; font-weight: 600; }
.chart .rank { fill: var(--ink); font-weight: 600; dominant-baseline: central; }
.chart .stream { text-anchor: end; font-size: 9.5px; dominant-baseline: central; }
.chart .tick { text-anchor: middle; }
.chart .bytes { text-anchor: end; dominant-baseline: central; }
.chart .lane { fill: var(--faint); }
.chart .grid { stroke: var(--line); stroke-width: 1; }
.chart line.step { stroke: var(--ink); stroke-width: 1.2; stroke-dasharray: 4 3; }
.chart text.step { fill: var(--ink); text-anchor: end; }
.chart line.capacity { stroke: var(--bad); stroke-width: 1.4; stroke-dasharray: 6 4; }
.chart text.capacity { fill: var(--bad); text-anchor: end; }
.chart line.reserved { stroke: var(--ink); stroke-width: 1.1; stroke-dasharray: 2 3; }
.chart text.reserved { fill: var(--ink); }
.chart text.reserved, .chart text.capacity { paint-order: stroke; stroke: var(--raised); stroke-width: 3px; stroke-linejoin: round; }
.chart line.axis { stroke: var(--soft); stroke-width: 1; }
.chart line.whisker { stroke: var(--soft); stroke-width: 1.5; }
.chart .front-line { fill: none; stroke: var(--transfer); stroke-width: 1.2; stroke-dasharray: 3 3; }
.chart .peak { fill: var(--ink); }
.wide { overflow-x: auto; }
.wide .chart { min-width: 780px; }
.chart .loss { fill: none; stroke: var(--forward); stroke-width: 2; stroke-linejoin: round; }
.wide.static { display: none; }
.zoomed canvas { display: block; border: 1px solid var(--line); border-radius: 6px; margin: 0 0 6px; touch-action: pan-y;
  max-width: 100%; cursor: grab; box-sizing: content-box; }
.zoomed canvas:active { cursor: grabbing; }
.tools { display: flex; flex-wrap: wrap; gap: 6px; align-items: center; margin: 0 0 8px; font-size: 13px; color: var(--soft); }
.tools input { width: 250px; max-width: 60vw; }
button, input { font: inherit; font-size: 13px; color: var(--ink); background: var(--button); border: 1px solid var(--line);
  border-radius: 5px; padding: 3px 9px; }
button { cursor: pointer; }
button:hover { border-color: var(--soft); }
.state { margin: 0 0 2px; font-variant-numeric: tabular-nums; }
.chosen-point { min-height: 6em; overflow-wrap: anywhere; }
.details { min-height: 3em; overflow-wrap: anywhere; }
th .sort { font: inherit; color: inherit; background: none; border: 0; padding: 0; text-align: inherit; }
th .sort:hover { color: var(--ink); text-decoration: underline; }
th[aria-sort="ascending"] .sort::after { content: " \2191"; }
th[aria-sort="descending"] .sort::after { content: " \2193"; }
.series-0 { color: var(--forward); }
.series-1 { color: var(--backward); }
.series-2 { color: var(--transfer); }
.series-3 { color: var(--optimizer); }
.series-4 { color: var(--communication); }
.series-5 { color: var(--dispatch); }
.swatch[class*="series-"] { background: currentColor; }
.chart .run { fill: none; stroke: currentColor; stroke-width: 2; stroke-linejoin: round; }
.chart .run.dashes-1 { stroke-dasharray: 7 4; }
.chart .run.dashes-2 { stroke-dasharray: 2 4; }
.chart .whisker[class*="series-"] { stroke: currentColor; opacity: 0.55; }
.chart .dot { fill: currentColor; }
.columns.sweep .wide .chart { min-width: 0; }
.columns.sweep .details { min-height: 1.6em; margin: 0; }
#points table { font-size: 12.5px; }
#points th, #points td { padding-right: 9px; }
ul.answers { list-style: none; margin: 0; padding: 0; }
.command { overflow-wrap: anywhere; }
.half { max-width: 660px; }
.scroll { position: relative; }
.scroll > .over { position: absolute; right: 0; top: 0; }
.scroll > .over + table > caption { padding-right: 52px; }
.more { display: none; font-size: 12.5px; margin: 0 0 4px; }
.overflows > .more { display: block; position: sticky; left: 0; }
.overflows table { border-right: 3px solid var(--line); }
.overflows tbody th, .overflows tbody td:first-child { position: sticky; left: 0; background: var(--paper); }
.flags { position: relative; }
.flags pre { max-height: 420px; overflow: auto; margin: 0 0 8px; padding: 12px 14px; background: var(--raised);
  border: 1px solid var(--line); border-radius: 6px; font-size: 12px; line-height: 1.45;
  font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.copy { position: absolute; right: 10px; top: 8px; }
.save { float: right; font-size: 11.5px; padding: 0 7px; margin: 0 0 3px 8px; color: var(--soft); }
@media (max-width: 860px) {
  body { padding: 24px 16px 40px; }
  .figures { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .columns, .columns.narrow { grid-template-columns: minmax(0, 1fr); }
  .columns.sweep .chart { font-size: 15px; }
  #points .overflows td.key { white-space: nowrap; }
}
@media print {
  :root { --paper: #fff; --raised: #fff; --ink: #111; --soft: #444; --line: #bbb; --faint: #eee; }
  body { max-width: none; padding: 0; font-size: 11px; }
  section, figure, .figures, tr { break-inside: avoid; }
  section { margin-top: 18px; }
  .zoomed, .save, .skip, .tools, .copy { display: none; }
  .flags pre { max-height: none; white-space: pre-wrap; }
  .wide.static { display: block; }
  .scroll, .wide { overflow: visible; }
  .wide .chart { min-width: 0; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
}
)css";
}

}  // namespace plimsoll
