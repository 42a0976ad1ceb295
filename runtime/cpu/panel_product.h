// A PanelProduct multiplies matrices of any floating types by square panels that it converts to
// f32.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "runtime/cpu/kernels.h"
#include "runtime/cpu/onednn.h"

namespace plimsoll {

/// The sizes of a product (m x k)(k x n).
struct ProductSize {
  std::int64_t m = 0, n = 0, k = 0;
};

/// The types and layouts of a product's operands, all row-major.
struct ProductForm {
  DType a = DType::f32, b = DType::f32, c = DType::f32;
  std::optional<DType> bias = {};  ///< absent: the product has none
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;  ///< c += instead of c =
  double scale = 1;
};

/// Computes c = scale op(a) op(b) + bias, or adds it to c. Panels are summed in f32, and each panel
/// of the result is rounded once.
class PanelProduct {
 public:
  /// `most` is the largest size that run() is given, and `most_rows` a limit of the rows of a
  /// panel.
  PanelProduct(const ProductForm& form, const ProductSize& most, std::int64_t most_rows,
               const OneDnn& library, Scratch& scratch);
  /// `bias` is null where the form has none.
  void run(const std::byte* a, const std::byte* b, const std::byte* bias, std::byte* c,
           const ProductSize& size);

  static constexpr std::int64_t kPanel = 256;  ///< three of them are 768 KiB of workspace

 private:
  /// One operand's panel.
  struct Source {
    DType type;
    std::int64_t panel_rows, panel_columns;  ///< as stored
    float* panel;
    Source(DType type, std::int64_t panel_rows, std::int64_t panel_columns, Scratch& scratch);
    /// Loads the panel that starts at (row, column) of a matrix, with zeros where the matrix ends.
    void load(const std::byte* base, std::int64_t rows, std::int64_t columns, std::int64_t row,
              std::int64_t column) const;
  };

  Primitive make_product(const OneDnn& library, Scratch& scratch) const;
  void sum_panel(const std::byte* a, const std::byte* b, const ProductSize& size, std::int64_t row,
                 std::int64_t column);
  void store_panel(const std::byte* bias, std::byte* c, const ProductSize& size, std::int64_t row,
                   std::int64_t column);

  ProductForm form_;
  std::int64_t rows_, columns_, inner_;  ///< of panels: of the result, and what is summed over
  Source a_, b_;
  float *sums_, *added_;
  std::array<float, std::size_t(kPanel)> old_ = {};  ///< what a row is added to
  Primitive product_;
};

}  // namespace plimsoll
