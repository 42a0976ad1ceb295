// Tables: headers sort, and a button saves a table as CSV. Without this script tables stay as they are.
'use strict';
(() => {
  const SORTED_FROM = 3;  // rows

  const isGroup = (row) => row.classList.contains('group');
  const exact = (cell) => {
    if (!cell) return '';
    if (cell.dataset.exact !== undefined) return cell.dataset.exact;
    const text = cell.textContent.trim();
    return cell.classList.contains('number') && /^-?[\d,]+$/.test(text) ? text.replaceAll(',', '') : text;
  };
  const number = (text) => {
    const found = /^[+-]?[\d.]+(e[+-]?\d+)?/i.exec(text);
    return found ? Number(found[0]) : NaN;
  };
  // Numbers before text, empty cells last.
  const compare = (a, b) => {
    const x = number(a), y = number(b);
    if (!Number.isNaN(x) && !Number.isNaN(y)) return x - y;
    if ((a === '') !== (b === '')) return a === '' ? 1 : -1;
    if (Number.isNaN(x) !== Number.isNaN(y)) return Number.isNaN(x) ? 1 : -1;
    return a.localeCompare(b, 'en');
  };

  const sort = (table, column, header) => {
    const ascending = header.getAttribute('aria-sort') !== 'ascending';
    for (const other of table.tHead.rows[0].cells) other.removeAttribute('aria-sort');
    header.setAttribute('aria-sort', ascending ? 'ascending' : 'descending');
    const body = table.tBodies[0], rows = [...body.rows].map((row) => [exact(row.cells[column]), row]);
    rows.sort((a, b) => (a[0] === '' || b[0] === '' || ascending ? 1 : -1) * compare(a[0], b[0]));
    body.append(...rows.map((pair) => pair[1]));
  };

  const title = (table) => {
    const section = table.closest('section'), summary = table.closest('details');
    const heading = section ? section.querySelector('h2').textContent : 'table';
    const words = table.caption ? table.caption.firstChild.textContent
        : summary ? summary.querySelector('summary').textContent : '';
    return `${heading} ${words}`.trim();
  };
  const rowsOf = (table) => {
    const head = [...table.tHead.rows[0].cells].map((cell) =>
        cell.textContent.trim() + (cell.dataset.unit ? ` [${cell.dataset.unit}]` : ''));
    const kept = head.map((_, i) => i).filter((i) => !table.tHead.rows[0].cells[i].classList.contains('bars'));
    return [head, ...[...table.tBodies[0].rows].filter((row) => !isGroup(row)).map((row) =>
        head.map((_, i) => exact(row.cells[i])))].map((row) => kept.map((i) => row[i]));
  };

  const equip = (table) => {
    const body = table.tBodies[0];
    if (!table.tHead || !body || body.rows.length < SORTED_FROM) return;
    const save = document.createElement('button');
    save.type = 'button';
    save.className = table.caption ? 'save over' : 'save';
    save.textContent = 'CSV';
    save.setAttribute('aria-label', `Save as CSV: ${title(table)}`);
    save.addEventListener('click', () => plimsollSave(title(table), rowsOf(table)));
    table.closest('.scroll').prepend(save);
    if ([...body.rows].some(isGroup)) return;
    [...table.tHead.rows[0].cells].forEach((header, column) => {
      if (!header.textContent.trim() || header.classList.contains('bars')) return;
      const button = document.createElement('button');
      button.type = 'button';
      button.className = 'sort';
      button.append(...header.childNodes);
      button.addEventListener('click', () => sort(table, column, header));
      header.append(button);
    });
  };

  // Tables that are wider than the window say so, keep their first column in sight, and can be moved by keys as well.
  const addKeys = (box) => {
    const more = document.createElement('p');
    more.className = 'more note';
    more.textContent = 'More columns to the right \u2192';
    box.prepend(more);
    box.classList.add('overflows');
    box.tabIndex = 0;
    box.setAttribute('role', 'region');
    box.setAttribute('aria-label', title(box.querySelector('table')));
  };

  // What is folded away waits until it is opened: most tables of a long page are, and no browser need lay them out.
  const equipAll = (root) => {
    const boxes = [...root.querySelectorAll('.scroll')].filter((box) => !box.closest('details:not([open])'));
    for (const box of boxes) equip(box.querySelector('table'));
    for (const box of boxes.filter((one) => one.scrollWidth > one.clientWidth)) addKeys(box);
  };
  equipAll(document);
  for (const details of document.querySelectorAll('details:not([open])'))
    details.addEventListener('toggle', () => equipAll(details), {once: true});
})();
