#include "casting/multiplication.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <optional>
#include <string>

namespace mezzo::casting {
namespace {

constexpr std::size_t kLetters = 'z' - 'A' + 1;

std::size_t place_of(char letter) {
  return static_cast<std::size_t>(letter - 'A');
}

bool is_letter(char letter) {
  return std::isalpha(static_cast<unsigned char>(letter)) != 0;
}

// The places of each letter of an equation.
struct Letters {
  std::array<std::int64_t, kLetters> size{};  // the largest; 0: it does not occur
  std::array<int, kLetters> count{};          // in all operands
  bool any_ellipsis = false;
};

// False if the letters of an operand are not as many as its dimensions.
bool read_operand(std::string_view labels, const at::Tensor& operand, Letters& all) {
  constexpr std::string_view kEllipsis = "...";
  const std::size_t dots = labels.find(kEllipsis);
  const auto letters = [](std::string_view part) { return static_cast<std::int64_t>(part.size()); };
  const bool is_open = dots != std::string_view::npos;
  const std::int64_t given = is_open ? letters(labels) - letters(kEllipsis) : letters(labels);
  if (is_open ? given > operand.dim() : given != operand.dim()) return false;
  all.any_ellipsis = all.any_ellipsis || is_open;
  std::int64_t dimension = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (i == dots) {
      dimension = operand.dim() - letters(labels.substr(dots + kEllipsis.size()));
      i += kEllipsis.size() - 1;
      continue;
    }
    if (!is_letter(labels[i])) return false;
    std::int64_t& size = all.size[place_of(labels[i])];
    size = std::max(size, operand.size(dimension++));
    ++all.count[place_of(labels[i])];
  }
  return true;
}

std::optional<Letters> read_operands(std::string_view left, at::TensorList operands) {
  Letters all;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const std::size_t comma = left.find(',');
    const bool is_last = i + 1 == operands.size();
    if ((comma == std::string_view::npos) != is_last) return std::nullopt;
    if (!read_operand(left.substr(0, comma), operands[i], all)) return std::nullopt;
    if (!is_last) left.remove_prefix(comma + 1);
  }
  return all;
}

}  // namespace

bool is_einsum_multiplication(std::string_view equation, at::TensorList operands) {
  if (operands.size() < 2) return false;
  std::string text;
  for (const char letter : equation) {
    if (letter != ' ') text += letter;
  }
  constexpr std::string_view kArrow = "->";
  const std::size_t arrow = text.find(kArrow);
  const std::string_view left = std::string_view(text).substr(0, arrow);
  const std::optional<Letters> all = read_operands(left, operands);
  if (!all) return false;
  const bool is_explicit = arrow != std::string::npos;
  const std::string right = is_explicit ? text.substr(arrow + kArrow.size()) : std::string();
  if (is_explicit && all->any_ellipsis && right.find('.') == std::string::npos) return false;
  for (std::size_t i = 0; i < kLetters; ++i) {
    if (all->count[i] == 0) continue;
    const bool stays =
        is_explicit ? right.find(static_cast<char>('A' + static_cast<char>(i))) != std::string::npos
                    : all->count[i] == 1;
    if (!stays && all->size[i] > 1) return false;
  }
  return true;
}

}  // namespace mezzo::casting
