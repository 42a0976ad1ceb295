#!/usr/bin/env python3
"""scripts/wheel.py --build BUILD --out FOLDER: writes the Python package of a build as a wheel, and prints its path.

A wheel is a zip archive with three files of metadata (packaging.python.org, "Binary distribution format"). The standard library
writes it, so that nothing is fetched. The module needs the shared libraries of this distribution: the wheel's tag is that of
Linux in general, and it is meant for Debian 12.
"""

import argparse
import base64
import hashlib
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
EPOCH = (1980, 1, 1, 0, 0, 0)  # the same bytes whenever the wheel is written
METADATA = """Metadata-Version: 2.1
Name: plimsoll
Version: {version}
Summary: Plans the training of transformers on clusters, and predicts step time and memory
License: Apache-2.0
Requires-Python: =={python}.*
Provides-Extra: frames
Requires-Dist: pandas; extra == 'frames'
Description-Content-Type: text/markdown

{description}"""
WHEEL = "Wheel-Version: 1.0\nGenerator: plimsoll scripts/wheel.py\nRoot-Is-Purelib: false\nTag: {tag}\n"


def version_of(build):
    cache = (build / "CMakeCache.txt").read_text()
    return re.search(r"^CMAKE_PROJECT_VERSION:\w+=(.*)$", cache, re.M)[1]


def tag_of(module):
    """The tag of a module: _core.cpython-311-x86_64-linux-gnu.so is for cp311-cp311-linux_x86_64."""
    python, machine = re.fullmatch(r"_core\.cpython-(\d+)-(\w+)-linux-gnu\.so", module.name).groups()
    return f"cp{python}-cp{python}-linux_{machine}", f"{python[0]}.{python[1:]}"


def stripped(module):
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / module.name
        subprocess.run(["strip", "--strip-unneeded", "-o", copy, module], check=True)
        return copy.read_bytes()


def contents(build):
    """Every file of the wheel but RECORD, by its name, and the wheel's name."""
    package = build / "python" / "plimsoll"
    modules = sorted(package.glob("_core.*.so"))
    if len(modules) != 1:
        sys.exit(f"{package}: found {len(modules)} modules _core; one is required: build python_package")
    tag, python = tag_of(modules[0])
    version = version_of(build)
    files = {f"plimsoll/{path.name}": path.read_bytes()
             for path in sorted((ROOT / "python" / "plimsoll").iterdir()) if path.suffix in (".py", ".pyi", ".typed")}
    files["plimsoll/py.typed"] = b""
    files[f"plimsoll/{modules[0].name}"] = stripped(modules[0])
    about = f"plimsoll-{version}.dist-info"
    description = (ROOT / "docs/guide/python.md").read_text(encoding="utf-8")
    files[f"{about}/METADATA"] = METADATA.format(version=version, python=python, description=description).encode()
    files[f"{about}/WHEEL"] = WHEEL.format(tag=tag).encode()
    files[f"{about}/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    return files, about, f"plimsoll-{version}-{tag}.whl"


def record_of(files, about):
    lines = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}\n")
    return "".join(lines) + f"{about}/RECORD,,\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    files, about, name = contents(options.build)
    files[f"{about}/RECORD"] = record_of(files, about).encode()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / name
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for inside, data in files.items():
            info = zipfile.ZipInfo(inside, EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (0o755 if inside.endswith(".so") else 0o644) << 16
            wheel.writestr(info, data)
    print(path)


if __name__ == "__main__":
    main()
