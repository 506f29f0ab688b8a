#include "core/dtype.h"

#include <algorithm>
#include <array>

namespace mezzo {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  std::string_view alias;
  std::size_t size;
};

constexpr std::array kRows{
    Row{DType::kFloat32, "float32", "float", 4},  Row{DType::kFloat16, "float16", "half", 2},
    Row{DType::kBFloat16, "bfloat16", "bf16", 2}, Row{DType::kFloat64, "float64", "double", 8},
    Row{DType::kInt8, "int8", "char", 1},         Row{DType::kInt16, "int16", "short", 2},
    Row{DType::kInt32, "int32", "int", 4},        Row{DType::kInt64, "int64", "long", 8},
    Row{DType::kUInt8, "uint8", "byte", 1},       Row{DType::kUInt16, "uint16", "uint16", 2},
    Row{DType::kUInt32, "uint32", "uint32", 4},   Row{DType::kUInt64, "uint64", "uint64", 8},
    Row{DType::kBool, "bool", "bool", 1},
};

const Row& row_of(DType dtype) noexcept {
  return kRows[static_cast<std::size_t>(dtype)];
}

static_assert(std::ranges::all_of(kRows,
                                  [](const Row& row) {
                                    return kRows[static_cast<std::size_t>(row.dtype)].name ==
                                           row.name;
                                  }),
              "rows stand in the order of the enumeration");

}  // namespace

std::string_view name_of(DType dtype) noexcept {
  return row_of(dtype).name;
}

std::optional<DType> parse_dtype(std::string_view name) noexcept {
  const auto* row =
      std::ranges::find_if(kRows, [&](const Row& r) { return r.name == name || r.alias == name; });
  if (name == "fp16") return DType::kFloat16;
  if (name == "fp32") return DType::kFloat32;
  if (row == kRows.end()) return std::nullopt;
  return row->dtype;
}

std::size_t size_of(DType dtype) noexcept {
  return row_of(dtype).size;
}

bool is_low(DType dtype) noexcept {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

}  // namespace mezzo
