#include "amp/position_tables.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace mezzo::amp::detail {
namespace {

constexpr std::int64_t kFewest = 4;  // less may be anything

// Values of a matrix in rows, in double.
struct TableView {
  const double* values;
  std::int64_t rows;
  std::int64_t columns;
  double at(std::int64_t row, std::int64_t column) const { return values[row * columns + column]; }
};

bool is_near(double a, double b, double relative) {
  return std::abs(a - b) <= relative * std::max(std::abs(a), std::abs(b));
}

// 1 / base^(i / n), and what grows that way.
bool is_geometric(const TableView& table) {
  if (table.rows != 1 || table.columns < kFewest) return false;
  const double ratio = table.at(0, 1) / table.at(0, 0);
  if (!(ratio > 0) || !std::isfinite(ratio) || is_near(ratio, 1, 1e-3)) return false;
  for (std::int64_t i = 0; i < table.columns; ++i) {
    if (!(table.at(0, i) > 0)) return false;
    if (i > 0 && !is_near(table.at(0, i), table.at(0, i - 1) * ratio, 1e-4)) return false;
  }
  return true;
}

// 0, 1, 2, ... times one row.
bool are_angles(const TableView& table) {
  if (table.rows < kFewest || table.columns < 1) return false;
  bool any = false;
  for (std::int64_t column = 0; column < table.columns; ++column) {
    const double step = table.at(1, column);
    any = any || step != 0;
    for (std::int64_t row = 0; row < table.rows; ++row) {
      if (!is_near(table.at(row, column), step * static_cast<double>(row), 1e-5)) return false;
    }
  }
  return any;
}

// Whole numbers with one step between them.
bool are_positions(const TableView& table) {
  if (table.rows != 1 || table.columns < kFewest) return false;
  const double step = table.at(0, 1) - table.at(0, 0);
  if (step == 0) return false;
  for (std::int64_t i = 0; i < table.columns; ++i) {
    const double value = table.at(0, i);
    if (value != std::floor(value)) return false;
    if (i > 0 && value - table.at(0, i - 1) != step) return false;
  }
  return true;
}

}  // namespace

bool is_position_table(const at::Tensor& buffer, at::ScalarType low) {
  if (!buffer.defined() || buffer.requires_grad() || buffer.scalar_type() != at::kFloat)
    return false;
  if (buffer.layout() != at::kStrided || buffer.numel() < kFewest) return false;
  const at::Tensor squeezed = buffer.detach().squeeze();
  if (squeezed.dim() < 1 || squeezed.dim() > 2) return false;
  if (squeezed.to(low).to(at::kFloat).equal(squeezed)) return false;
  const at::Tensor wide = squeezed.to(at::kCPU, at::kDouble).contiguous();
  const bool is_row = wide.dim() == 1;
  const TableView table{wide.const_data_ptr<double>(), is_row ? 1 : wide.size(0),
                        wide.size(is_row ? 0 : 1)};
  return is_geometric(table) || are_angles(table) || are_positions(table);
}

std::vector<std::pair<std::string, at::Tensor>> position_tables_in(const torch::nn::Module& root,
                                                                   at::ScalarType low) {
  std::vector<std::pair<std::string, at::Tensor>> tables;
  for (const auto& item : root.named_buffers()) {
    if (is_position_table(item.value(), low)) tables.emplace_back(item.key(), item.value());
  }
  return tables;
}

}  // namespace mezzo::amp::detail
