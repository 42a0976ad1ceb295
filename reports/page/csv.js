// Saves rows as a CSV file (RFC 4180). Other scripts of the page call it.
'use strict';
const plimsollSave = (name, rows) => {
  // Spreadsheets take text that begins like a formula for one; an apostrophe keeps it text.
  const field = (value) => {
    let text = String(value);
    if (/^[=+\-@\t\r]/.test(text) && !/^[+-]?[\d.,]+(e[+-]?\d+)?( ?%)?$/i.test(text)) text = `'${text}`;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const text = rows.map((row) => row.map(field).join(',')).join('\r\n') + '\r\n';
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], {type: 'text/csv'}));
  link.download = `${name.replace(/[^\w-]+/g, '-').slice(0, 80)}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  return text;
};
