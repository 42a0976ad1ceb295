// Copy: a button puts the text that it is for on the clipboard.
'use strict';
(() => {
  for (const button of document.querySelectorAll('button[data-copy]')) {
    const source = document.getElementById(button.dataset.copy);
    button.hidden = false;
    button.addEventListener('click', () => {
      const range = document.createRange(), selection = getSelection();
      range.selectNodeContents(source);
      selection.removeAllRanges();
      selection.addRange(range);
      button.textContent = document.execCommand('copy') ? 'copied' : 'selected';
    });
  }
})();
