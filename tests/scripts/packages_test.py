"""The packages of Debian install on a bare system without a network, and what is installed there works. A bare system is a
folder with the packages that ours depend on, copied from this machine, and nothing else. The planner's has neither MPI nor CUDA.
The Python module is imported in such a system. A program is compiled against the headers and libraries of one; the compiler is
this machine's, and sees nothing but that system.

Also: the container file runs scripts that exist, and takes the packages that it installs from scripts/dependencies."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from programs import BIN, CLUSTER, NANO, SOURCE, write_json

BUILD = BIN.parent
SKIP = 77
# Every system of Debian has these, and ours need them: the interpreter of maintainer scripts, and files that packages share.
BASE = ("base-files", "base-passwd", "bash", "coreutils", "dash", "dpkg", "libc-bin")
COMPILED = ("libc6-dev", "libstdc++-12-dev")  # every C++ program needs these; ours need not ask for them
MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
SUMMARY = re.compile(r"(?m)^step +\S+ (ms|s)")


def run(*command, ok=True, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    assert not ok or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def fields_of(deb):
    text = run("dpkg-deb", "-f", deb)
    return dict(line.split(": ", 1) for line in text.splitlines() if ": " in line and line[0] != " ")


def names_in(relation):
    """The first alternative of each relation: "libc6 (>= 2.36), a | b" has libc6 and a."""
    return [re.match(r"\s*([a-z0-9.+-]+)", part)[1] for part in relation.split(",") if part.strip()]


def closure_of(names):
    """All packages that some need, as installed on this machine. A name may be provided by another package."""
    installed, providers = {}, {}
    for line in run("dpkg-query", "-W", "-f",
                    "${db:Status-Status}\t${Package}\t${Depends}\t${Pre-Depends}\t${Provides}\n").splitlines():
        status, name, depends, before, provides = line.split("\t")
        if status == "installed":
            installed[name] = [*depends.split(","), *before.split(",")]
            for other in names_in(provides):
                providers.setdefault(other, name)
    found, left = set(), list(names)
    while left:
        name = left.pop()
        name = name if name in installed else providers[name]
        if name in found:
            continue
        found.add(name)
        for relation in filter(str.strip, installed[name]):
            choices = [re.match(r"\s*([a-z0-9.+-]+)", part)[1] for part in relation.split("|")]
            left.append(next(one for one in choices if one in installed or one in providers))
    return sorted(found)


def merged(path):
    """The path where /bin is a link to /usr/bin, as on Debian 12."""
    return f"/usr{path}" if path.split("/")[1] in MERGED else path


def make_root(root, names, place=lambda source, target: shutil.copy2(source, target, follow_symlinks=False)):
    """A bare system of these packages: their files, and their entries in the database of dpkg."""
    for name in MERGED:
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(f"usr/{name}")
    files = {merged(line) for line in run("dpkg", "-L", *names).splitlines()
             if line.startswith("/") and not line.startswith(("/.", "/usr/share/doc", "/usr/share/man", "/usr/share/locale"))}
    for path in sorted(files):
        source, target = Path(path), root / path[1:]
        if source.is_symlink() or source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.is_symlink() and not target.exists():
                place(source, target)
        elif source.is_dir() and not target.exists():
            target.mkdir(parents=True)
    database = root / "var/lib/dpkg"
    for folder in ("info", "updates", "triggers"):
        (database / folder).mkdir(parents=True, exist_ok=True)
    (root / "tmp").mkdir(exist_ok=True)
    (database / "status").write_text(run("dpkg", "-s", *names))


def install(root, debs):
    done = subprocess.run(["dpkg", f"--root={root}", "-i", *map(str, debs)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def check_control(debs, version):
    for deb in debs:
        fields = fields_of(deb)
        assert fields["Version"].split("-")[0] == version, fields
        listed = run("dpkg-deb", "-c", deb)
        for file in ("copyright", "changelog.gz", "changelog.Debian.gz"):
            assert f"./usr/share/doc/{fields['Package']}/{file}" in listed, (deb, file)
        assert " ./usr/local" not in listed
        assert fields["Package"].startswith("python3-") or "/lib/python3/" not in listed


def check_planner(root, folder):
    """The planner plans a job, knows its presets and writes the same as the one that was built."""
    shutil.copy(NANO, root / "tmp/job.json")
    write_json(root / "tmp/cluster.json", CLUSTER)
    asked = ["plan", "/tmp/job.json", "--cluster", "/tmp/cluster.json", "--devices", "2", "--json"]
    plan = run("chroot", root, "/usr/bin/planner", *asked)
    here = run(BIN / "planner", "plan", NANO, "--cluster", root / "tmp/cluster.json", "--devices", "2", "--json")
    assert json.loads(plan)["prediction"] == json.loads(here)["prediction"]
    assert SUMMARY.search(run("chroot", root, "/usr/bin/planner", "simulate", "gpt-mini", "pp=2",
                              "--cluster", "dgx-a100-80gb", "--devices", "2"))
    (root / "tmp/plan.json").write_text(plan)


def check_runtime(root):
    """A plan is trained by in the bare system, with threads and as one process of MPI."""
    (root / "tmp/text.txt").write_text("to be or not to be, that is the question. " * 200)
    run("chroot", root, "/usr/bin/planner-run", "/tmp/plan.json", "--data", "/tmp/text.txt", "--steps", "4",
        "-o", "/tmp/measured.json")
    assert json.loads((root / "tmp/measured.json").read_text())["version"] > 0
    for program in ("planner-calibrate", "planner-run-mpi", "planner-calibrate-mpi"):
        if (root / "usr/bin" / program).exists():
            assert "--help" in run("chroot", root, f"/usr/bin/{program}", "--help")


def check_python(root):
    """The module plans as the planner that is installed beside it."""
    (root / "tmp/ask.py").write_text("import json, plimsoll\n"
                                     "plan = plimsoll.plan('/tmp/job.json', '/tmp/cluster.json', devices=2)\n"
                                     "print(json.dumps([plimsoll.__file__, plan['prediction']]))\n")
    file, prediction = json.loads(run("chroot", root, "/usr/bin/python3", "/tmp/ask.py"))
    assert file.startswith("/usr/lib/python3/dist-packages/"), file
    assert prediction == json.loads((root / "tmp/plan.json").read_text())["prediction"]


def check_development(root, bare, folder, version):
    """A program that uses the packaged libraries is compiled against one system and runs in another, which has the planner."""
    build = folder / "consumer"
    cache = (BUILD / "CMakeCache.txt").read_text()
    launcher = re.search(r"^CCACHE:\w+=(.*)$", cache, re.M)
    # The folder has another name each time: ccache is told to leave it out.
    environment = {**os.environ, "CCACHE_BASEDIR": str(folder), "CCACHE_NOHASHDIR": "1"}
    run("cmake", "-G", "Ninja", "-S", SOURCE / "tests/consumer", "-B", build, f"-DCMAKE_SYSROOT={root}", f"-DWANTED={version}",
        "-DCMAKE_BUILD_TYPE=Debug", f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher[1] if launcher else ''}",
        *(f"-DCMAKE_FIND_ROOT_PATH_MODE_{kind}=ONLY" for kind in ("PACKAGE", "LIBRARY", "INCLUDE")), env=environment)
    by_name = re.findall(r"LINK_LIBRARIES = .*(?<= )(-l\S+)", (build / "build.ninja").read_text())
    assert not by_name, f"{by_name}: the linker would look for these on this machine, and no package names them"
    run("cmake", "--build", build, env=environment)
    shutil.copy(build / "consumer", bare / "tmp/consumer")
    answer = run("chroot", bare, "/tmp/consumer", "/tmp/job.json", "/tmp/cluster.json").split(maxsplit=3)
    asked = ["plan", "/tmp/job.json", "--cluster", "/tmp/cluster.json", "--calibration", "none", "--devices", "2", "--reserve", "0 B"]
    plan = json.loads(run("chroot", bare, "/usr/bin/planner", *asked, "--json"))
    assert answer[0] == version and answer[2] == f"{plan['prediction']['step_time_s']:.9g}", (answer, plan["prediction"])


def check_container_file():
    text = (SOURCE / "packages/Containerfile").read_text()
    scripts = re.findall(r"^RUN (scripts/\S+)", text, re.M)
    assert scripts == ["scripts/setup", "scripts/packages"], scripts
    assert all(os.access(SOURCE / script, os.X_OK) for script in scripts)
    # scripts/setup installs scripts/dependencies: the stage that builds names no package itself.
    build = text.split("FROM ")[1]
    assert "apt-get" not in build and "COPY . " in build, build
    assert "debian:12" in text.split("FROM ")[1] and "debian:12" in text.split("FROM ")[2]


def main():
    check_container_file()
    if not shutil.which("dpkg-shlibdeps") or not (BUILD / "CPackConfig.cmake").exists():
        print("skipped: dpkg-shlibdeps is missing, or the build has no packages")
        return SKIP
    version = re.search(r"^CMAKE_PROJECT_VERSION:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.M)[1]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run("cpack", "--config", BUILD / "CPackConfig.cmake", "-G", "DEB", "-B", folder / "debs")
        debs = {fields_of(deb)["Package"]: deb for deb in (folder / "debs").glob("*.deb")}
        assert {"plimsoll", "plimsoll-runtime", "plimsoll-dev"} <= set(debs), debs
        check_control(debs.values(), version)
        depends = {package: names_in(fields_of(deb)["Depends"]) for package, deb in debs.items()}
        print({package: fields_of(deb)["Depends"] for package, deb in debs.items()})
        assert "plimsoll" in depends["plimsoll-runtime"] and "libc6" in depends["plimsoll"]
        if "ASAN_OPTIONS" in os.environ or "TSAN_OPTIONS" in os.environ:
            print("skipped: a sanitizer reads its options and a process's threads in /proc, which a bare system lacks")
            return SKIP
        if os.geteuid() != 0:
            print("skipped: only root can install into a bare system")
            return SKIP

        bare = folder / "bare"
        needed = closure_of([*BASE, *depends["plimsoll"]])
        assert not [one for one in needed if re.search("mpi|cuda|nvidia|dnnl", one)], needed
        make_root(bare, needed)
        if subprocess.run(["chroot", str(bare), "/bin/true"], check=False).returncode != 0:
            print("skipped: chroot is not permitted")
            return SKIP
        install(bare, [debs["plimsoll"]])
        check_planner(bare, folder)

        more = set(depends["plimsoll-runtime"]) - {"plimsoll"}
        runtime = folder / "runtime"
        make_root(runtime, closure_of([*BASE, *depends["plimsoll"], *more]))
        install(runtime, [debs["plimsoll"], debs["plimsoll-runtime"]])
        shutil.copytree(bare / "tmp", runtime / "tmp", dirs_exist_ok=True)
        check_runtime(runtime)

        if "python3-plimsoll" in debs:
            python = folder / "python"
            make_root(python, closure_of([*BASE, *depends["python3-plimsoll"]]))
            install(python, [debs["python3-plimsoll"]])
            shutil.copytree(bare / "tmp", python / "tmp", dirs_exist_ok=True)
            check_python(python)

        # Links are enough where nothing runs, and tens of thousands of headers are not copied.
        development = folder / "development"
        make_root(development, closure_of([*BASE, *COMPILED, *depends["plimsoll-dev"]]),
                  lambda source, target: target.symlink_to(source))
        install(development, [debs["plimsoll-dev"]])
        check_development(development, bare, folder, version)
    print("packages install on bare systems and work there")
    return 0


if __name__ == "__main__":
    sys.exit(main())
