"""The code of docs/guide/python.md runs, block after block, and each block prints what the page shows below it."""

import contextlib
import io
import os
import re
import tempfile
import unittest
from pathlib import Path

PAGE = Path(os.environ["PLIMSOLL_SOURCE_DIR"]) / "docs/guide/python.md"
BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n((?:    [^\n]*\n)+))?", re.S)
# Predicted numbers move with the rates that are built in: they are compared by their shape.
NUMBER = re.compile(r"\d+(\.\d+)?")


class Page(unittest.TestCase):
    def test_blocks_run(self):
        blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
        self.assertGreater(len(blocks), 4)
        names, here = {}, Path.cwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            self.addCleanup(os.chdir, here)
            for code, shown in blocks:
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed):
                    exec(compile(code, str(PAGE), "exec"), names)  # the page is ours
                wanted = re.sub("^    ", "", shown, flags=re.M)
                self.assertEqual(NUMBER.sub("N", printed.getvalue().strip()), NUMBER.sub("N", wanted.strip()), code)


if __name__ == "__main__":
    unittest.main()
