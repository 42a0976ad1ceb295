"""Builds programs of tests with all mutants of sources in them, as lab/mutants runs them.

Each source with places is compiled by the command of the build, after its text was changed (mutant_places). Places that do not
compile are left out. The objects are linked before the build's libraries: the first definition counts. A source that is not
mutated, but which the build compiles in one batch with such sources, goes on calling what they were.
"""

import concurrent.futures
import hashlib
import json
import pathlib
import re
import shlex
import subprocess

import mutant_places

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOST_ATTEMPTS = 30
ERROR = re.compile(r"^(\S+?):(\d+):(\d+): +(?:error|required from here|fatal error|in .constexpr. expansion)", re.MULTILINE)


class Build:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        self.made = self.folder / "mutants"
        self.made.mkdir(exist_ok=True)
        database = subprocess.run(["ninja", "-C", self.folder, "-t", "compdb"], capture_output=True, text=True, check=True).stdout
        self.commands = {}
        for entry in json.loads(database):
            path = pathlib.Path(entry["file"])
            if " -c " not in entry["command"] or path.suffix not in (".cpp", ".cxx"):
                continue
            words = shlex.split(entry["command"])
            words = words[next(i for i, word in enumerate(words) if re.search(r"(c|g|clang)\+\+[-\d]*$", word)):]  # behind ccache
            sources = re.findall(r'#include "(.*)"', path.read_text()) if "Unity" in path.parts and path.exists() else [str(path)]
            for source in sources:
                if source.startswith(f"{ROOT}/"):
                    self.commands[str(pathlib.Path(source).relative_to(ROOT))] = words

    def for_libclang(self, source):
        words = self.commands[source]
        kept = [word for word in words if re.match(r"-(I|D|std=)", word)]
        return kept + [word for at, name in enumerate(words) if name == "-isystem" for word in words[at:at + 2]]

    def digest(self, source, file_number):
        text = (ROOT / source).read_bytes()
        parts = [text, str(file_number).encode(), pathlib.Path(mutant_places.__file__).read_bytes(),
                 (ROOT / "tests/mutants/mutant.h").read_bytes(), " ".join(self.commands[source]).encode()]
        return hashlib.sha256(b"\0".join(parts)).hexdigest()

    def compile(self, source, path, output):
        """Returns what the compiler says, or nothing."""
        words = list(self.commands[source])
        words[words.index("-o") + 1] = str(output)
        words[words.index("-MF") + 1] = str(output.with_suffix(".d"))
        words[words.index("-c") + 1] = str(path)
        words += ["-include", str(ROOT / "tests/mutants/mutant.h"), "-w", "-O1", "-fdiagnostics-column-unit=byte"]
        done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, errors="replace")
        return done.stderr if done.returncode else None

    def mutate(self, source, file_number):
        """Makes the object of a source with all its mutants, and returns their places."""
        output = self.made / (source + ".o")
        record = self.made / (source + ".json")
        output.parent.mkdir(parents=True, exist_ok=True)
        digest = self.digest(source, file_number)
        if output.exists() and record.exists():
            known = json.loads(record.read_text())
            if known["digest"] == digest:
                return [mutant_places.Place(**place) for place in known["places"]]
        text = (ROOT / source).read_bytes()
        finder = mutant_places.Finder(ROOT / source, self.for_libclang(source), text)
        if finder.errors:
            raise SystemExit(f"{source}: libclang cannot read it: {finder.errors[0]}")
        places = mutant_places.numbered(finder.places, file_number)
        path = self.made / source
        for _ in range(MOST_ATTEMPTS):
            result, where = mutant_places.changed(text, places)
            path.write_bytes(result)
            said = self.compile(source, path, output)
            if said is None:
                break
            errors = {(int(line), int(column)) for file, line, column in ERROR.findall(said) if file == str(path)}
            wrong = [id(place) for line, column in errors for place in mutant_places.at_fault(result, where, places, line, column)]
            if not wrong:
                raise SystemExit(f"{source}: {said[:2000]}")
            places = [place for place in places if id(place) not in wrong]
        else:
            raise SystemExit(f"{source}: still does not compile: {said[:2000]}")
        record.write_text(json.dumps({"digest": digest, "places": [vars(place) for place in places]}))
        return places

    def objects(self, sources, jobs):
        """Makes the objects of sources, which have numbers. Returns paths of the objects, and the places of each source."""
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            places = dict(zip(sources, pool.map(self.mutate, sources, sources.values())))
        return [self.made / (source + ".o") for source in sources], places

    def program(self, area, name, objects):
        """Links the tests of a folder with the mutants of an area."""
        program = self.made / f"tests-{area}" / name
        program.parent.mkdir(exist_ok=True)
        own = self.made / "mutant.o"
        source = ROOT / "tests/mutants/mutant.cpp"
        if not own.exists() or own.stat().st_mtime < source.stat().st_mtime:
            subprocess.run(["c++", "-std=c++20", "-O2", f"-I{ROOT}", "-c", source, "-o", own], check=True)
        tests = self.folder / "tests" / name
        if program.exists() and all(program.stat().st_mtime > path.stat().st_mtime for path in [tests, own, *objects]):
            return program
        done = subprocess.run(["ninja", "-C", self.folder, "-t", "commands", "-s", f"tests/{name}"], capture_output=True,
                              text=True, check=True)
        words = shlex.split(done.stdout.strip().splitlines()[-1].removeprefix(": && ").removesuffix(" && :"))
        at = words.index("-o")
        # The first definition counts: that with mutants.
        words[at:at + 2] = ["-Wl,-z,muldefs", "-Wl,-S", *map(str, objects), str(own), "-o", str(program)]
        subprocess.run(words, cwd=self.folder, check=True)
        return program
