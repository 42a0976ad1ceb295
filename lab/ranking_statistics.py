"""Statistics of a ranking: medians and their intervals, rank correlation, regret, errors."""

import math
import statistics


def median_interval(values, confidence=0.95):
    """Distribution-free interval of the median: the closest pair of order statistics, equally far
    from both ends, that covers it with at least this confidence; None where the values are too few
    (David & Nagaraja, Order Statistics, 3rd ed., 7.1). The number of values below the median is
    binomial with probability one half."""
    ordered, count = sorted(values), len(values)
    best = None
    for low in range(count // 2):
        outside = 2 * sum(math.comb(count, k) for k in range(low + 1)) / 2**count
        if 1 - outside >= confidence:
            best = (ordered[low], ordered[count - 1 - low])
    return best


def ranks(values):
    """Rank of each value from 1; equal values share the mean of theirs."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    result = [0.0] * len(values)
    first = 0
    while first < len(order):
        last = first
        while last + 1 < len(order) and values[order[last + 1]] == values[order[first]]:
            last += 1
        for place in range(first, last + 1):
            result[order[place]] = (first + last) / 2 + 1
        first = last + 1
    return result


def spearman(xs, ys):
    """Rank correlation: Pearson's over the ranks, which is Spearman's with ties. None where it is
    not defined: fewer than two pairs, or all values of one side equal."""
    if len(xs) != len(ys):
        raise ValueError("as many of the one as of the other are required")
    if len(xs) < 2:
        return None
    x, y = ranks(xs), ranks(ys)
    mean = (len(xs) + 1) / 2
    xx = sum((a - mean) ** 2 for a in x)
    yy = sum((b - mean) ** 2 for b in y)
    if xx == 0 or yy == 0:
        return None
    return sum((a - mean) * (b - mean) for a, b in zip(x, y)) / math.sqrt(xx * yy)


def regret(chosen, measured):
    """How much longer the chosen one takes than the fastest, relative to the fastest."""
    return chosen / min(measured) - 1


def error(predicted, measured):
    """Signed; its magnitude is the prediction error |predicted - measured| / measured."""
    return (predicted - measured) / measured


def summary_of_errors(pairs):
    """Median and worst magnitude, and the median with its sign, over (predicted, measured)."""
    signed = [error(predicted, measured) for predicted, measured in pairs]
    return {
        "median": statistics.median(abs(e) for e in signed),
        "worst": max(abs(e) for e in signed),
        "signed_median": statistics.median(signed),
    }
