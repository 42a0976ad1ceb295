// Pipeline charts: replaces each static drawing by a canvas that can be zoomed, moved and searched.
// Without this script the drawing stays. The data is described in reports/timeline_data.h.
'use strict';
(() => {
  const GUTTER = 214, AXIS = 24, TALL = 20, LOW = 11, GAP = 2, RANK_GAP = 10, TOP = 30;
  const LEAST_SPAN = 40;  // units of time across the chart, at the strongest zoom
  const SEARCHED_AT_MOST = 200;  // characters
  const LEAST_PINCH = 8;  // pixels between two fingers

  const make = (tag, attributes, text) => {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };

  // Turns gaps and lengths into begins and ends.
  const unpack = (lane) => {
    const count = lane.gap.length;
    lane.begin = new Float64Array(count);
    lane.end = new Float64Array(count);
    let at = 0;
    for (let i = 0; i < count; ++i) {
      lane.begin[i] = at + lane.gap[i];
      at = lane.begin[i] + lane.length[i];
      lane.end[i] = at;
    }
    // Intervals of a lane may overlap, so ends need not ascend; latest[i] does.
    lane.latest = new Float64Array(count);
    let latest = -Infinity;
    for (let i = 0; i < count; ++i) lane.latest[i] = latest = Math.max(latest, lane.end[i]);
    return lane;
  };

  // The first index whose value is above the bound, in ascending values.
  const firstAbove = (values, bound) => {
    let low = 0, high = values.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] > bound) high = middle; else low = middle + 1;
    }
    return low;
  };

  const roundSteps = (most, count) => {
    const wanted = most / count, power = 10 ** Math.floor(Math.log10(wanted));
    return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= wanted * (1 - 1e-9));
  };

  const timeText = (seconds, digits = 6) => {
    const size = Math.abs(seconds);
    for (const [unit, length] of [['s', 1], ['ms', 1e-3], ['\u00b5s', 1e-6], ['ns', 1e-9]]) {
      if (size >= length) return `${Number((seconds / length).toPrecision(digits))} ${unit}`;
    }
    return seconds === 0 ? '0' : `${Number((seconds * 1e12).toPrecision(4))} ps`;
  };

  class Pipeline {
    constructor(box) {
      this.box = box;
      this.data = JSON.parse(document.getElementById(box.dataset.timeline).textContent);
      this.lanes = this.data.lanes.map(unpack);
      this.from = 0;
      this.to = this.data.span;
      this.matches = null;  // by lane: whether each interval matches the search
      this.chosen = null;   // [lane, index]
      this.fingers = new Map();  // of pointers that are down: x, and the time that was there
      this.layOut();
      this.build();
      this.readColours();
      this.paint();
    }

    layOut() {
      let y = TOP, before = null;
      for (const lane of this.lanes) {
        if (before !== null) y += before.rank === lane.rank ? GAP : RANK_GAP;
        lane.y = y;
        lane.height = lane.tall ? TALL : LOW;
        y += lane.height;
        before = lane;
      }
      this.height = y + AXIS;
    }

    build() {
      const drawing = this.box.querySelector('.wide');
      const title = this.box.querySelector('figcaption').textContent;
      drawing.classList.add('static');
      const panel = make('div', {class: 'zoomed'});
      const bar = make('div', {class: 'tools', role: 'toolbar', 'aria-label': `${title}: what is shown`});
      const button = (label, name, act) => {
        const one = make('button', {type: 'button', title: name, 'aria-label': name}, label);
        one.addEventListener('click', act);
        bar.append(one);
      };
      button('+', 'Zoom in', () => this.zoom(0.5));
      button('\u2212', 'Zoom out', () => this.zoom(2));
      button('\u2190', 'Earlier', () => this.move(-0.25));
      button('\u2192', 'Later', () => this.move(0.25));
      button('whole step', 'Show the whole step', () => this.show(0, this.data.span));
      const label = make('label', {}, 'Find ');
      this.field = make('input', {type: 'search', placeholder: 'matmul, layer 3, micro-batch 0 \u2026',
                                  maxlength: SEARCHED_AT_MOST, autocomplete: 'off', spellcheck: 'false'});
      this.field.addEventListener('input', () => this.search());
      this.field.addEventListener('keydown', (event) => {
        if (event.key !== 'Enter') return;
        event.preventDefault();
        this.next(event.shiftKey ? -1 : 1);
      });
      label.append(this.field);
      bar.append(label);
      button('next', 'Show the next interval that was found', () => this.next(1));
      button('CSV', 'Save all intervals as CSV', () => this.save());
      this.canvas = make('canvas', {tabindex: 0, role: 'application', 'aria-label':
          `${title}. Plus and minus zoom, left and right move, up and down change the lane, ` +
          'N and P choose the next and the previous interval, Home shows the whole step.'});
      this.state = make('p', {class: 'note state', role: 'status'});
      this.details = make('p', {class: 'note details', 'aria-live': 'polite'},
                          'Choose an interval to see what it is: with the pointer, or with the keys N and P. ' +
                          'Ctrl and the wheel or two fingers zoom, dragging moves.');
      panel.append(bar, this.canvas, this.state, this.details);
      drawing.after(panel);
      this.listen();
    }

    listen() {
      const canvas = this.canvas;
      new ResizeObserver(() => this.paint()).observe(canvas.parentElement);
      const dark = matchMedia('(prefers-color-scheme: dark)');
      dark.addEventListener('change', () => { this.readColours(); this.paint(); });
      canvas.addEventListener('wheel', (event) => this.wheel(event), {passive: false});
      canvas.addEventListener('keydown', (event) => this.key(event));
      canvas.addEventListener('pointerdown', (event) => {
        canvas.setPointerCapture(event.pointerId);
        this.fingers.set(event.pointerId, {x: event.offsetX});
        for (const finger of this.fingers.values()) finger.time = this.time(finger.x);
        this.drag = {x: event.offsetX, from: this.from, to: this.to, moved: this.fingers.size > 1};
      });
      canvas.addEventListener('pointermove', (event) => this.pointer(event));
      canvas.addEventListener('pointerup', (event) => {
        if (this.drag && !this.drag.moved) this.choose(this.at(event.offsetX, event.offsetY), false);
        this.release(event);
      });
      canvas.addEventListener('pointercancel', (event) => this.release(event));
      canvas.addEventListener('dblclick', (event) => {
        const found = this.at(event.offsetX, event.offsetY);
        if (found) this.choose(found, true);
      });
    }

    readColours() {
      const style = getComputedStyle(document.documentElement);
      const colour = (name) => style.getPropertyValue(`--${name}`).trim();
      this.phases = this.data.phases.map(colour);
      for (const name of ['ink', 'soft', 'line', 'faint', 'wait', 'raised', 'focus']) this[name] = colour(name);
    }

    get gutter() { return this.width < 640 ? 92 : GUTTER; }
    get plot() { return Math.max(this.width - this.gutter - 8, 10); }
    x(time) { return this.gutter + (time - this.from) / (this.to - this.from) * this.plot; }
    time(x) { return this.from + (x - this.gutter) / this.plot * (this.to - this.from); }

    show(from, to) {
      const span = Math.min(Math.max(to - from, LEAST_SPAN), this.data.span);
      from = Math.min(Math.max(from, 0), this.data.span - span);
      this.from = from;
      this.to = from + span;
      this.paint();
    }
    zoom(factor, around = (this.from + this.to) / 2) {
      this.show(around - (around - this.from) * factor, around + (this.to - around) * factor);
    }
    move(share) {
      const by = share * (this.to - this.from);
      this.show(this.from + by, this.to + by);
    }

    wheel(event) {
      const sideways = event.shiftKey ? event.deltaY : event.deltaX;
      if (event.ctrlKey || event.metaKey || (document.activeElement === this.canvas && !event.shiftKey &&
                                             Math.abs(event.deltaY) > Math.abs(event.deltaX))) {
        event.preventDefault();
        this.zoom(Math.exp(Math.min(Math.max(event.deltaY, -200), 200) * 0.003), this.time(event.offsetX));
      } else if (sideways !== 0) {
        event.preventDefault();
        this.move(sideways / this.plot);
      }
    }

    // A finger that stays goes on dragging.
    release(event) {
      this.fingers.delete(event.pointerId);
      const [left] = this.fingers.values();
      this.drag = left ? {x: left.x, from: this.from, to: this.to, moved: true} : null;
    }

    // Keeps below each of two fingers the time that was there when they touched.
    pinch() {
      const [a, b] = this.fingers.values(), span = (b.time - a.time) / (b.x - a.x) * this.plot;
      if (Math.abs(b.x - a.x) < LEAST_PINCH || !(span > 0)) return;
      const from = a.time - (a.x - this.gutter) / this.plot * span;
      this.show(from, from + span);
    }

    pointer(event) {
      const finger = this.fingers.get(event.pointerId);
      if (finger) finger.x = event.offsetX;
      if (this.fingers.size > 1) {
        this.pinch();
        return;
      }
      if (!this.drag) {
        const found = this.at(event.offsetX, event.offsetY);
        this.canvas.title = found ? this.words(found) : '';
        return;
      }
      const by = (event.offsetX - this.drag.x) / this.plot * (this.drag.to - this.drag.from);
      if (Math.abs(event.offsetX - this.drag.x) > 3) this.drag.moved = true;
      if (this.drag.moved) this.show(this.drag.from - by, this.drag.to - by);
    }

    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const acts = {
        '+': () => this.zoom(0.5), '=': () => this.zoom(0.5), '-': () => this.zoom(2),
        ArrowLeft: () => this.move(-0.1), ArrowRight: () => this.move(0.1),
        PageUp: () => this.move(-0.9), PageDown: () => this.move(0.9),
        ArrowUp: () => this.changeLane(-1), ArrowDown: () => this.changeLane(1),
        n: () => this.step(1), p: () => this.step(-1),
        Home: () => this.show(0, this.data.span), Enter: () => this.chosen && this.choose(this.chosen, true),
        Escape: () => { this.field.value = ''; this.search(); },
      };
      const act = acts[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    }

    // The interval at a place of the canvas: the last one drawn there.
    at(x, y) {
      const lane = this.lanes.findIndex((one) => y >= one.y - 1 && y <= one.y + one.height + 1);
      if (lane < 0 || x < this.gutter) return null;
      const one = this.lanes[lane], slack = 2 * (this.to - this.from) / this.plot, time = this.time(x);
      const until = firstAbove(one.begin, time + slack);
      for (let i = until - 1; i >= firstAbove(one.latest, time - slack); --i) {
        if (one.end[i] >= time - slack) return [lane, i];
      }
      return null;
    }

    name([laneIndex, i]) {
      const lane = this.lanes[laneIndex];
      let text = this.data.names[lane.name[i]];
      const ops = lane.ops ? lane.ops[i] : 1;
      if (ops > 1) text += `${text ? ' \u00b7 ' : ''}${ops} together`;
      text += ` \u00b7 ${this.data.phases[lane.phase[i]].replace('_', ' ')}`;
      if (lane.layer && lane.layer[i] > 0) text += ` \u00b7 layer ${lane.layer[i] - 1}`;
      if (lane.micro_batch && lane.micro_batch[i] > 0) text += ` \u00b7 micro-batch ${lane.micro_batch[i] - 1}`;
      return text;
    }
    words(found) {
      const [laneIndex, i] = found, lane = this.lanes[laneIndex], unit = this.data.unit_s;
      const wait = lane.wait && lane.wait[i] > 0 ? `, after waiting ${timeText(lane.wait[i] * unit)}` : '';
      return `${lane.rank}, ${lane.stream}: ${this.name(found)}; ${timeText(lane.length[i] * unit)} from ` +
          `${timeText(lane.begin[i] * unit)}${wait}`;
    }

    choose(found, zooms) {
      this.chosen = found;
      if (found) {
        const lane = this.lanes[found[0]], begin = lane.begin[found[1]], end = lane.end[found[1]];
        this.details.textContent = this.words(found);
        const span = zooms ? Math.max(8 * (end - begin), LEAST_SPAN) : this.to - this.from;
        if (zooms || begin < this.from || end > this.to) {
          this.show((begin + end - span) / 2, (begin + end + span) / 2);
          return;
        }
      }
      this.paint();
    }
    step(by) {
      const [lane, i] = this.chosen || [0, -1], count = this.lanes[lane].gap.length;
      this.choose([lane, Math.min(Math.max(i + by, 0), count - 1)], false);
    }
    changeLane(by) {
      const [before, i] = this.chosen || [by > 0 ? -1 : this.lanes.length, 0];
      const lane = Math.min(Math.max(before + by, 0), this.lanes.length - 1);
      const time = this.chosen ? this.lanes[before].begin[i] : this.from;
      const index = firstAbove(this.lanes[lane].begin, time) - 1;
      this.choose([lane, Math.max(index, 0)], false);
    }

    search() {
      const words = this.field.value.trim().toLowerCase().split(/\s*[,;]\s*/).filter((word) => word);
      this.matches = null;
      this.found = [];
      if (words.length) {
        // "layer 1" is not to find layer 12.
        const matches = (text, word) => {
          for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + 1)) {
            if (!/\d$/.test(word) || !/\d/.test(text[at + word.length] || '')) return true;
          }
          return false;
        };
        this.matches = this.lanes.map((lane, l) => lane.gap.map((_, i) => {
          const text = this.name([l, i]).toLowerCase();
          const hit = words.every((word) => matches(text, word));
          if (hit) this.found.push([l, i]);
          return hit;
        }));
        this.found.sort((a, b) => this.lanes[a[0]].begin[a[1]] - this.lanes[b[0]].begin[b[1]]);
      }
      this.position = -1;
      this.paint();
    }
    next(by) {
      if (!this.found || !this.found.length) return;
      this.position = this.position < 0 && by < 0 ? this.found.length - 1
          : (this.position + by + this.found.length) % this.found.length;
      this.choose(this.found[this.position], false);
    }

    save() {
      const unit = this.data.unit_s, rows = [['rank', 'stream', 'what', 'phase', 'layer', 'micro_batch', 'ops',
                                             'begin [s]', 'length [s]', 'wait [s]']];
      const optional = (column, i) => column && column[i] > 0 ? column[i] - 1 : '';
      for (const lane of this.lanes) {
        for (let i = 0; i < lane.gap.length; ++i) {
          rows.push([lane.rank, lane.stream, this.data.names[lane.name[i]], this.data.phases[lane.phase[i]],
                     optional(lane.layer, i), optional(lane.micro_batch, i), lane.ops ? lane.ops[i] : 1,
                     lane.begin[i] * unit, lane.length[i] * unit, lane.wait ? lane.wait[i] * unit : 0]);
        }
      }
      plimsollSave(this.box.dataset.timeline.replace(/-data$/, ''), rows);
    }

    paint() {
      if (this.scheduled) return;
      this.scheduled = true;
      requestAnimationFrame(() => { this.scheduled = false; this.draw(); });
    }

    draw() {
      const canvas = this.canvas, scale = devicePixelRatio || 1;
      this.width = canvas.parentElement.clientWidth;
      if (!this.width) return;
      const wide = Math.round(this.width * scale), high = Math.round(this.height * scale);
      if (canvas.width !== wide || canvas.height !== high) {
        canvas.width = wide;
        canvas.height = high;
        canvas.style.width = `${this.width}px`;
        canvas.style.height = `${this.height}px`;
      }
      const pen = canvas.getContext('2d', {alpha: false});
      pen.setTransform(scale, 0, 0, scale, 0, 0);
      pen.fillStyle = this.raised;
      pen.fillRect(0, 0, this.width, this.height);
      pen.font = '11px system-ui, "DejaVu Sans", sans-serif';
      this.drawAxis(pen);
      let drawn = 0;
      pen.save();
      pen.beginPath();
      pen.rect(this.gutter, 0, this.plot, this.height);
      pen.clip();
      this.lanes.forEach((lane, l) => { drawn += this.drawLane(pen, lane, l); });
      this.drawChosen(pen);
      pen.restore();
      this.drawLabels(pen);
      this.say(drawn);
    }

    drawAxis(pen) {
      const bottom = this.height - AXIS + 4, unit = this.data.unit_s, span = (this.to - this.from) * unit;
      const step = roundSteps(span, Math.max(this.plot / 90, 2));
      pen.textAlign = 'center';
      pen.textBaseline = 'alphabetic';
      for (let i = Math.ceil(this.from * unit / step - 1e-9); i * step <= this.to * unit * (1 + 1e-9); ++i) {
        const x = this.x(i * step / unit);
        pen.fillStyle = this.line;
        pen.fillRect(Math.round(x), TOP - 4, 1, bottom - TOP + 4);
        pen.fillStyle = this.soft;
        if (x > this.gutter + 12 && x < this.width - 20) {
          pen.fillText(timeText(i * step), x, 10);
          pen.fillText(timeText(i * step), x, bottom + 14);
        }
      }
      for (const lane of this.lanes) {
        pen.fillStyle = this.faint;
        pen.fillRect(this.gutter, lane.y, this.plot, lane.height);
      }
      const end = this.x(this.data.step);
      if (this.data.step > 0 && end >= this.gutter && end <= this.gutter + this.plot + 1) {
        pen.fillStyle = this.ink;
        for (let y = TOP - 4; y < bottom; y += 7) pen.fillRect(Math.round(end), y, 1, 4);
        pen.textAlign = 'right';
        pen.fillText(`step time ${timeText(this.data.step * unit, 3)}`, Math.min(end, this.width - 4), 22);
      }
    }

    // Bars that fall on one column of pixels are drawn once.
    drawLane(pen, lane, l) {
      const first = firstAbove(lane.latest, this.from), last = firstAbove(lane.begin, this.to);
      const perUnit = this.plot / (this.to - this.from), hits = this.matches && this.matches[l];
      if (lane.wait) {
        pen.fillStyle = this.wait;
        for (let i = first; i < last; ++i) {
          if (lane.wait[i] > 0) {
            pen.fillRect(this.x(lane.begin[i] - lane.wait[i]), lane.y + lane.height / 2 - 1,
                         lane.wait[i] * perUnit, 2);
          }
        }
      }
      const filled = this.phases.map(() => -1);  // by colour: the column up to which it is filled
      let colour = -1, faded = false;
      pen.globalAlpha = 1;
      for (let i = first; i < last; ++i) {
        const phase = lane.phase[i], x = this.x(lane.begin[i]), width = Math.max(lane.length[i] * perUnit, 0.6);
        const miss = hits && !hits[i];
        if (!hits && x + width <= filled[phase] + 0.35) continue;
        filled[phase] = x + width;
        if (phase !== colour) pen.fillStyle = this.phases[colour = phase];
        if (hits && miss !== faded) pen.globalAlpha = (faded = miss) ? 0.14 : 1;
        pen.fillRect(x, lane.y, width > 4 ? width - 0.5 : width, lane.height);
      }
      pen.globalAlpha = 1;
      return Math.max(last - first, 0);
    }

    drawChosen(pen) {
      if (!this.chosen) return;
      const lane = this.lanes[this.chosen[0]], i = this.chosen[1];
      const x = this.x(lane.begin[i]), width = Math.max(this.x(lane.end[i]) - x, 3);
      pen.strokeStyle = this.ink;
      pen.lineWidth = 2;
      pen.strokeRect(x - 1, lane.y - 1, width + 2, lane.height + 2);
    }

    drawLabels(pen) {
      const narrow = this.gutter < GUTTER;
      let before = null;
      pen.textBaseline = 'middle';
      for (const lane of this.lanes) {
        const middle = lane.y + lane.height / 2;
        if (lane.rank !== before) {
          pen.fillStyle = this.ink;
          pen.textAlign = 'left';
          pen.font = `600 ${narrow ? 9.5 : 11}px system-ui, "DejaVu Sans", sans-serif`;
          pen.fillText(narrow ? lane.rank.replace(/ \u00b7 stage \d+/, '').replace(', op by op', ', ops') : lane.rank,
                       2, middle, this.gutter - 4);
          before = lane.rank;
        }
        if (narrow) continue;
        pen.fillStyle = this.soft;
        pen.textAlign = 'right';
        pen.font = '9.5px system-ui, "DejaVu Sans", sans-serif';
        if (!lane.tall || !lane.rank.endsWith('op by op')) pen.fillText(lane.stream, this.gutter - 6, middle);
      }
    }

    say(drawn) {
      const unit = this.data.unit_s;
      const found = this.matches ? ` ${this.found.length.toLocaleString('en')} found.` : '';
      this.state.textContent = `${timeText(this.from * unit)} to ${timeText(this.to * unit)}: ` +
          `${drawn.toLocaleString('en')} intervals.${found}`;
    }
  }

  for (const box of document.querySelectorAll('[data-timeline]')) new Pipeline(box);
})();
