"""The archive of scripts/packages has a planner that needs nothing else: on a root that holds the program and an empty /tmp it
plans a real job, with the same bytes as the planner that shares libraries."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

from programs import BAD_INPUT, BIN, OK, planner

BUILD = BIN.parent
SKIP = 77
JOB = ["plan", "llama2-13b", "--cluster", "dgx-a100-80gb", "--devices", "32", "--global-batch", "256", "--json"]


def bare(root, *arguments):
    """Runs the program on the bare root, with an environment as bare."""
    return subprocess.run([shutil.which("chroot"), root, "/planner", *arguments], capture_output=True, text=True, check=False, env={"HOME": "/"})


def main():
    if not (BUILD / "CPackConfig.cmake").exists() or not (BUILD / "relocatable/planner").exists():
        print("skipped: this build has no packages, or no relocatable planner")
        return SKIP
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run(["cpack", "--config", BUILD / "CPackConfig.cmake", "-G", "TGZ", "-B", folder], check=True, capture_output=True)
        [archive] = folder.glob("*.tar.gz")
        version = re.search(r"^CMAKE_PROJECT_VERSION:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.M)[1]
        top = archive.name.removesuffix(".tar.gz")
        assert re.fullmatch(rf"plimsoll-{re.escape(version)}-linux-\w+", top), archive
        with tarfile.open(archive) as opened:
            names = [member.name for member in opened.getmembers() if member.isfile()]
            assert all(member.startswith(f"{top}/") for member in names), names
            assert {f"{top}/bin/planner", f"{top}/share/doc/plimsoll/LICENSE"} <= set(names), names
            opened.extract(f"{top}/bin/planner", folder, filter="data")
        program = folder / top / "bin/planner"
        headers = subprocess.run(["readelf", "-lS", program], capture_output=True, text=True, check=True).stdout
        assert "INTERP" not in headers and ".debug" not in headers, headers

        root = folder / "root"
        (root / "tmp").mkdir(parents=True)
        shutil.copy(program, root / "planner")
        here = planner(*JOB)
        assert here.returncode == OK, here
        if os.geteuid() != 0 or subprocess.run(["chroot", root, "/planner", "--version"], capture_output=True, check=False).returncode:
            print("skipped: chroot is not permitted")
            return SKIP
        assert bare(root, "--version").stdout == f"planner {version}\n"
        there = bare(root, *JOB, "-o", "/tmp/plan.json")
        assert there.returncode == OK and there.stdout == here.stdout, there.stderr
        # Files, digests (OpenSSL), YAML (yaml-cpp) and XML (expat) work, too.
        assert bare(root, "check", "/tmp/plan.json").returncode == OK
        assert bare(root, "report", "/tmp/plan.json", "-o", "/tmp/plan.html").returncode == OK
        (root / "tmp/broken.yaml").write_text("a: [1")
        refused = bare(root, "import", "/tmp/broken.yaml")
        assert refused.returncode == BAD_INPUT and "/tmp/broken.yaml" in refused.stderr, refused
        (root / "tmp/topology.xml").write_text("<system version=\"1\"><cpu")
        refused = bare(root, "import", "topology", "/tmp/topology.xml", "--device", "dgx-h100-80gb", "--date", "2026-11-20")
        assert refused.returncode == BAD_INPUT and "/tmp/topology.xml" in refused.stderr, refused
    print(f"{archive.name} plans on a root without libraries")
    return 0


if __name__ == "__main__":
    sys.exit(main())
