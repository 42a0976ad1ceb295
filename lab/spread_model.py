"""How open a step time is: half widths of 90 % intervals for each basis, and what causes add to them (lab/spreads)."""

import dataclasses
import itertools
import math
import random
import statistics

MOST_RUNS = 60  # of a document with one basis that half widths are sought with, drawn evenly
# 0.95 quantiles of Student's t by degrees of freedom; 1.645 beyond.
STUDENT = {3: 2.353, 4: 2.132, 5: 2.015, 6: 1.943, 7: 1.895, 8: 1.860, 9: 1.833, 10: 1.812, 11: 1.796,
           12: 1.782, 13: 1.771, 14: 1.761, 15: 1.753, 16: 1.746, 18: 1.734, 20: 1.725, 22: 1.717,
           24: 1.711, 26: 1.706, 30: 1.697, 40: 1.684, 60: 1.671}
STUDENT_OF_MANY = 1.645
# A cause stays if the loss falls by this part: else it may describe the documents at hand alone.
LEAST_GAIN = 0.01
# From the basis with most knowledge on: less knowledge makes no step better known.
BY_KNOWLEDGE = ("fit_of_model", "fit", "typical")
FIRST, LEAST_STEP, MOST_SWEEPS = 0.1, 1.05, 40


def student(freedom):
    return next((value for known, value in STUDENT.items() if known >= freedom), STUDENT_OF_MANY)


def of_another(count):
    """The factor by which an interval that holds for another document is wider than what `count` documents need: Student's
    quantile over the normal one's, times the root of 1 + 1/n for the uncertainty of their mean."""
    return student(count - 1) / STUDENT_OF_MANY * math.sqrt(1 + 1 / count)


def quantile90(weighted):
    """The least of the values that nine tenths of the weights are not above."""
    weighted.sort()
    least = 0.9 * sum(weight for _, weight in weighted) - 1e-9
    sums = itertools.accumulate(weight for _, weight in weighted)
    return next(value for (value, _), held in zip(weighted, sums) if held >= least)


@dataclasses.dataclass
class Run:
    """A run and its prediction. `error` is the logarithm of measured over predicted, `own` the logarithm that the basis
    itself leaves open, `causes` the values of predict/step_interval.h, TimeCause."""
    document: str
    basis: str
    error: float
    own: float
    causes: list


@dataclasses.dataclass
class Spreads:
    """Logarithms. The half width of a step is the root of the sum of three squares: its fit's own, its basis', its causes'."""
    centres: dict
    halves: dict
    causes: list

    def half_width(self, run):
        return math.sqrt(run.own ** 2 + self.halves[run.basis] ** 2 +
                         sum((half * value) ** 2 for half, value in zip(self.causes, run.causes)))

    def holds(self, run):
        return abs(run.error - self.centres[run.basis]) <= self.half_width(run)


def by_document(runs):
    documents = {}
    for run in runs:
        documents.setdefault(run.document, []).append(run)
    return documents


def centre_of(runs):
    """The median over documents of their mean error. A median, since some programs take many times as long."""
    return statistics.median(statistics.mean(run.error for run in of) for of in by_document(runs).values())


class Search:
    """Half widths with the least loss: 0.9 of what a run is outside of its interval, 0.1 of what it is inside (Koenker and
    Bassett 1978, quantile regression). Each document counts as much as any other of its basis. A basis has the half width
    that nine in ten of its runs need in addition to their causes."""

    def __init__(self, runs, centred):
        """`runs`: by basis. `centred`: the bases whose errors are taken from their centre."""
        drawn = random.Random(1)
        self.centres = {basis: centre_of(of) if basis in centred else 0.0 for basis, of in runs.items()}
        self.samples = {}
        for basis, of in runs.items():
            samples = self.samples[basis] = []
            for _, own in sorted(by_document(of).items()):
                own = own if len(own) <= MOST_RUNS else drawn.sample(own, MOST_RUNS)
                samples += [((run.error - self.centres[basis]) ** 2, run.own ** 2,
                             [value ** 2 for value in run.causes], 1 / len(own)) for run in own]
        self.documents = {basis: len(by_document(of)) for basis, of in runs.items()}
        self.all_documents = len({run.document for of in runs.values() for run in of})

    def judged(self, squares):
        """The loss with these squares of the causes' half widths, and the square of each basis' half width."""
        loss, bases = 0.0, {}
        for basis, samples in self.samples.items():
            known = [(error, own + sum(map(float.__mul__, squares, causes)), weight)
                     for error, own, causes, weight in samples]
            base = bases[basis] = max(0.0, quantile90([(error - open_, weight) for error, open_, weight in known]))
            for error, open_, weight in known:
                outside = math.sqrt(error) - math.sqrt(open_ + base)
                loss += weight * (0.9 * outside if outside > 0 else -0.1 * outside)
        return loss * (1 + LEAST_GAIN * sum(square > 0 for square in squares)), bases

    def found(self, start):
        """Descends from the squares `start` along one cause after another."""
        squares, step = list(start), 4.0
        least, bases = self.judged(squares)
        for _ in range(MOST_SWEEPS):
            moved = False
            for i, square in enumerate(squares):
                for other in ([square * step, square / step, 0.0] if square else [FIRST]):
                    tried = [*squares[:i], other, *squares[i + 1:]]
                    loss, of = self.judged(tried)
                    if loss < least - 1e-12:
                        least, squares, bases, moved = loss, tried, of, True
            if not moved:
                step = math.sqrt(step)
            if step < LEAST_STEP:
                break
        return squares, bases

    def spreads(self, start):
        squares, bases = self.found(start)
        halves = {basis: math.sqrt(square) * of_another(self.documents[basis]) for basis, square in bases.items()}
        for known, other in itertools.pairwise(basis for basis in BY_KNOWLEDGE if basis in halves):
            halves[other] = max(halves[known], halves[other])
        return Spreads(self.centres, halves, [math.sqrt(square) * of_another(self.all_documents) for square in squares])


def spreads_of(runs, centred, start):
    """Spreads of runs by basis; `start`: squares of the causes' half widths to begin with."""
    return Search(runs, centred).spreads(start)


def spreads_without(runs, centred, start, document):
    """Spreads of the runs of all other documents. A basis that has none keeps its runs."""
    others = {basis: [run for run in of if run.document != document] or of for basis, of in runs.items()}
    return spreads_of(others, centred, start)
