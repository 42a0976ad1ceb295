"""scripts/demo builds only what it runs, from the packages of its group, and each of its steps says before how long it takes."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from programs import BIN, SOURCE

LARGE = re.compile("mpi|gtest|rapidcheck|benchmark|pybind|python|slurm|mkdocs|chromium|cuda")
CACHE = (BIN.parent / "CMakeCache.txt").read_text()


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


def check_groups(folder):
    """On a system without packages, scripts/setup names those of the group and of groups above."""
    program(folder / "dpkg-query", "exit 0\n")
    program(folder / "id", "echo 1000\n")
    found = {}
    for group in ("planner", "demo", "all"):
        done = subprocess.run([SOURCE / "scripts/setup", group], capture_output=True, text=True, check=False,
                              env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})
        assert done.returncode == 6, done
        found[group] = set(re.search(r"--no-install-recommends (.+)", done.stderr)[1].split())
    assert found["planner"] < found["demo"] < found["all"], found
    assert "g++" in found["planner"] and found["demo"] - found["planner"] >= {"libdnnl-dev"}, found
    assert not list(filter(LARGE.search, found["demo"])), found["demo"]
    # A name that is no group installs nothing.
    assert subprocess.run([SOURCE / "scripts/setup", "everything"], capture_output=True, check=False).returncode == 2


def configured(build, *without):
    """The targets and the commands of a build that lacks packages."""
    compiler = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", CACHE, re.M)[1]
    subprocess.run(["cmake", "-G", "Ninja", "-S", SOURCE, "-B", build, "-DPLIMSOLL_ALL=OFF", f"-DCMAKE_CXX_COMPILER={compiler}",
                    *(f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in without)],
                   check=True, capture_output=True)
    # Targets alone, without paths: the random letters of a folder's name may spell "mpi".
    targets = set(re.findall(r"^build ([^\s/]\S*): phony", (build / "build.ninja").read_text(), re.M))
    wanted = [name for name in ("planner", "planner-run", "planner-calibrate") if name in targets]
    commands = subprocess.run(["ninja", "-C", build, "-t", "commands", *wanted], check=True, capture_output=True, text=True).stdout
    return targets, commands


def check_builds(folder):
    """Neither tests, MPI, Python nor oneDNN are needed for the planner, and no kernel is compiled without a GPU."""
    targets, commands = configured(folder / "demo", "GTest", "rapidcheck", "benchmark", "MPI", "Python3")
    assert {"planner", "planner-run", "planner-calibrate"} <= targets, targets
    assert not [name for name in targets if name.startswith("tests.") or "mpi" in name], targets
    gpu = pathlib.Path("/dev/nvidiactl").exists() or pathlib.Path("/dev/dxg").exists()
    assert gpu or "runtime/cuda/" not in commands
    assert "/tests/" not in commands
    # scripts/build counts the objects of these commands.
    assert len(re.findall(r" -o (\S+/Unity/\S+\.o)( |$)", commands, re.M)) > 40, commands[:2000]
    targets, commands = configured(folder / "planner", "GTest", "rapidcheck", "benchmark", "MPI", "Python3", "dnnl")
    assert "planner" in targets and "planner-run" not in targets, targets
    assert "/runtime/" not in commands and "/calibrate/" not in commands


def run_build(folder, *targets):
    return subprocess.run([folder / "tree/scripts/build", *targets], capture_output=True, text=True, check=True,
                          env={**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"})


def check_one_folder(folder):
    """scripts/build on a cmake and a ninja that only write down what they are asked: programs alone need a part of the build, and
    what more is asked for joins the same folder."""
    (folder / "tree/scripts").mkdir(parents=True)
    shutil.copy(SOURCE / "scripts/build", folder / "tree/scripts/build")
    program(folder / "bin/cmake", f'echo "$*" >> {folder}/asked\n')
    program(folder / "bin/ninja", "for i in $(seq 30); do echo \"c++ -O2 -o Unity/$i.o -c $i.cpp\"; done\n")

    def asked(*targets):
        (folder / "asked").write_text("")
        done = run_build(folder, *targets)
        assert re.search(r"^compiling 30 objects: about \d+ (s|min)$", done.stderr, re.M), done
        return (folder / "asked").read_text().splitlines()

    assert asked("release", "planner", "planner-run")[0] == "--preset release -DPLIMSOLL_ALL=OFF"
    assert asked("release", "planner", "tests.passes")[0] == "--preset release -DPLIMSOLL_ALL=ON"
    assert asked("asan", "planner")[0] == "--preset asan -DPLIMSOLL_ALL=ON"
    (folder / "tree/build").mkdir()
    (folder / "tree/build/build.ninja").write_text("")
    (folder / "tree/build/CMakeCache.txt").write_text("PLIMSOLL_ALL:BOOL=OFF\n")
    assert asked("release", "planner") == ["--build --preset release --target planner"]
    assert asked() == ["--preset release -DPLIMSOLL_ALL=ON", "--build --preset release"]
    (folder / "tree/build/CMakeCache.txt").write_text("PLIMSOLL_ALL:BOOL=ON\n")
    assert asked("release", "tests.passes") == ["--build --preset release --target tests.passes"]
    for i in range(11, 31):
        (folder / "tree/build/Unity").mkdir(exist_ok=True)
        (folder / f"tree/build/Unity/{i}.o").write_text("")
    assert "compiling" not in run_build(folder, "release", "planner").stderr


def check_steps(folder):
    """The demo on programs that only write what the next step reads: every title has a time, and that of training is the plan's."""
    (folder / "scripts").mkdir()
    shutil.copy(SOURCE / "scripts/demo", folder / "scripts/demo")
    for name in ("setup", "build"):
        program(folder / "scripts" / name, "exit 0\n")
    program(folder / "build/bin/planner", """[ "$1" = plan ] && printf '{\\n    "step_time_s": 0.5,\\n    "step_time_s": 9\\n}\\n' > out/plan.json
exit 0
""")
    done = subprocess.run([folder / "scripts/demo"], capture_output=True, text=True, check=True)
    titles = [line for line in done.stderr.splitlines() if line.startswith("== ")]
    assert len(titles) == 7 and all(re.search(r" \(.*(second| s\b|estimate|apt ).*\)$", line) for line in titles), titles
    # The report explains the plan by what was calibrated: without, the page would show the plan alone.
    report = next(line for line in done.stderr.splitlines() if line.startswith("$ build/bin/planner report "))
    assert "--cluster out/cluster.json --calibration out/calibration.json" in report, report
    run = next(line for line in titles if "3/5" in line)
    assert 10 <= int(re.search(r"about (\d+) s", run)[1]) <= 15, run  # 20 steps of 0.5 s, and a start


with tempfile.TemporaryDirectory() as name:
    root = pathlib.Path(name)
    check_groups(root / "fakes")
    check_builds(root)
    check_one_folder(root / "one")
    check_steps(root)
print("the demo takes what it runs, and says how long")
