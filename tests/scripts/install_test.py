"""A program outside the tree is served by what `cmake --install` puts into a prefix. find_package(plimsoll) configures it, and it
predicts and plans as `planner` does."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from programs import BIN, CLUSTER, NANO, SOURCE, planner, write_json

BUILD = BIN.parent


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def cache():
    """Variables of the build's CMake cache."""
    lines = (BUILD / "CMakeCache.txt").read_text().splitlines()
    return {line.split(":")[0]: line.partition("=")[2] for line in lines if ":" in line and "=" in line}


def main():
    variables = cache()
    version = variables["CMAKE_PROJECT_VERSION"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prefix, build = folder / "prefix", folder / "build"
        for component in ("planner", "development"):
            run("cmake", "--install", BUILD, "--prefix", prefix, "--component", component)
        configure = ["cmake", "-G", "Ninja", "-S", SOURCE / "tests" / "consumer", "-B", build,
                     f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Debug",
                     f"-DCMAKE_CXX_COMPILER_LAUNCHER={variables.get('CCACHE', '')}"]
        newer = "{}.{}".format(version.split(".")[0], int(version.split(".")[1]) + 1)
        refused = subprocess.run([str(word) for word in [*configure, f"-DWANTED={newer}"]],
                                 capture_output=True, text=True)
        words = " ".join(refused.stderr.split())  # CMake wraps its lines
        assert refused.returncode != 0 and "compatible with requested version" in words, words
        run(*configure, f"-DWANTED={version}")
        run("cmake", "--build", build)
        cluster = write_json(folder / "cluster.json", CLUSTER)
        answer = run(build / "consumer", NANO, cluster).split(maxsplit=3)

        # The installed program says the same. It runs wherever it lies.
        installed = prefix / "bin" / "planner"
        assert run(installed, "--version") == f"planner {version}\n"
        asked = [cluster, "--calibration", "none", "--devices", "2"]
        simulated = json.loads(planner("simulate", NANO, "pp=2", "--cluster", *asked, "--json").stdout)
        plan = json.loads(run(installed, "plan", NANO, "--reserve", "0 B", "--cluster", *asked, "--json"))
        times = [f"{result['prediction']['step_time_s']:.9g}" for result in (simulated, plan)]
        assert answer[:3] == [version, *times], (answer, times)
        assert f"mp={plan['strategy']['mp']} " in answer[3], answer
    print("installed libraries and the installed program agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
