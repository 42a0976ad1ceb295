// Adafactor's means over rows and columns of a matrix, of which a rank may have a part (Shazeer &
// Stern 2018, arXiv 1804.04235, algorithm 4).
#pragma once

#include <cmath>
#include <cstdint>

#include "graph/op.h"
#include "runtime/sequence_part.h"

namespace plimsoll {

inline constexpr double kLeastSquare = 1e-30;  ///< is added to each square (epsilon 1)

/// Returns what the t-th update, counted from 1, gives the new mean of both (section 7.2).
PLIMSOLL_ANYWHERE inline double new_share(double t) { return pow(t, -0.8); }

/// A FactoredPart is a rank's rows and columns, and the factors of sums over all ranks. Such a sum
/// counts each part as often as ranks have it.
struct FactoredPart {
  std::int64_t rows = 0, columns = 0;
  bool clipped = false;
  bool whole_columns = false;              ///< the means of all columns are there; else of all rows
  double row_share = 0, column_share = 0;  ///< of the sum of a row, and of a column
  double mean_share = 0;                   ///< of the sum of means that are all there
  double norm_share = 0, square_share = 0;  ///< of squares on this rank, and on all

  FactoredPart(const AdafactorParams& whole, std::int64_t own_rows, std::int64_t own_columns)
      : rows(own_rows), columns(own_columns), clipped(whole.clipped) {
    whole_columns = columns == whole.columns;
    norm_share = 1 / double(whole.copies);
    row_share = (whole_columns ? 1 : norm_share) / double(whole.columns);
    column_share = (whole_columns ? norm_share : 1) / double(whole.rows);
    mean_share = 1 / double(whole_columns ? whole.columns : whole.rows);
    square_share = 1 / (double(whole.rows) * double(whole.columns));
  }
};

}  // namespace plimsoll
