// Points of a chart: the pointer and the arrow keys choose one, and a line below says what it is.
'use strict';
(() => {
  for (const details of document.querySelectorAll('[data-details]')) {
    const chart = document.getElementById(details.dataset.details);
    const points = [...chart.querySelectorAll('.point')];
    if (!points.length) continue;
    const text = (point) => point.querySelector('title').textContent;
    // From left to right, as the keys go.
    points.sort((a, b) => a.getBBox().x - b.getBBox().x);
    let chosen = -1;
    const choose = (index) => {
      if (points[chosen]) points[chosen].classList.remove('marked');
      chosen = Math.min(Math.max(index, 0), points.length - 1);
      points[chosen].classList.add('marked');
      details.textContent = text(points[chosen]);
    };
    chart.setAttribute('tabindex', '0');
    chart.setAttribute('aria-label', `${chart.getAttribute('aria-label')}. Left and right choose a point.`);
    chart.addEventListener('keydown', (event) => {
      const by = {ArrowLeft: -1, ArrowRight: 1}[event.key];
      if (by === undefined) return;
      event.preventDefault();
      choose(chosen + by);
    });
    points.forEach((point, index) => {
      point.addEventListener('pointerenter', () => choose(index));
      point.addEventListener('click', () => choose(index));
    });
  }
})();
