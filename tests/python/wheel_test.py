"""The wheel installs without a network, and what is installed plans."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

SOURCE = Path(os.environ["PLIMSOLL_SOURCE_DIR"])
BUILD = Path(os.environ["PLIMSOLL_BIN_DIR"]).parent
ASK = ("import json, plimsoll; plan = plimsoll.plan('gpt-mini', 'dgx-a100-80gb', devices=2);"
       "print(json.dumps([plimsoll.__file__, plimsoll.__version__, plan['prediction']['step_time_s']]))")


class Wheel(unittest.TestCase):
    def write(self, folder):
        command = [sys.executable, SOURCE / "scripts/wheel.py", "--build", BUILD, "--out", folder]
        return Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())

    def installed(self, wheel, target):
        """Installs by pip where there is one, else as pip would: a wheel without scripts is unpacked."""
        pip = [sys.executable, "-m", "pip"]
        if subprocess.run([*pip, "--version"], capture_output=True, check=False).returncode == 0:
            command = [*pip, "install", "--no-index", "--no-deps", "--no-cache-dir", "--target", target, wheel]
            subprocess.run(command, capture_output=True, text=True, check=True)
        else:
            zipfile.ZipFile(wheel).extractall(target)

    def test_installs_and_plans(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            wheel = self.write(folder / "first")
            self.assertEqual(wheel.read_bytes(), self.write(folder / "second").read_bytes())
            self.installed(wheel, folder / "site")
            environment = {**os.environ, "PYTHONPATH": str(folder / "site")}
            answer = subprocess.run([sys.executable, "-c", ASK], env=environment, cwd=folder, capture_output=True,
                                    text=True, check=False)
            self.assertEqual(answer.returncode, 0, answer.stderr)
            file, version, seconds = json.loads(answer.stdout)
            self.assertTrue(file.startswith(str(folder / "site")), file)
            self.assertEqual(wheel.name.split("-")[1], version)
            self.assertGreater(seconds, 0)


if __name__ == "__main__":
    unittest.main()
