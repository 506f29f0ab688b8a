#include "bridge/known_answers.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>

#include <cmath>
#include <iomanip>
#include <sstream>

namespace mezzo::bridge {
namespace {

constexpr std::int64_t kMargin = 32;   // elements: wide loads stay aligned behind it
constexpr double kNoAnswer = -4096.0;  // a number of every type

at::Tensor flat(const at::Tensor& tensor) {
  return tensor.to(at::kDouble).reshape({-1});
}

std::string rounded(double value) {
  std::ostringstream text;
  text << std::setprecision(9) << value;
  return text.str();
}

}  // namespace

void Answers::expect(const std::string& what, const at::Tensor& got, const at::Tensor& expected,
                     double tolerance) {
  answers_.push_back({what, flat(got), flat(expected), tolerance});
}

std::string Answers::first_difference() const {
  if (answers_.empty()) return "";
  std::vector<at::Tensor> got;
  std::vector<at::Tensor> expected;
  for (const Answer& answer : answers_) {
    got.push_back(answer.got);
    expected.push_back(answer.expected);
  }
  const at::Tensor both = at::stack({at::cat(got), at::cat(expected)}).cpu();  // waits once
  const auto* number = both.const_data_ptr<double>();
  const std::int64_t count = both.size(1);
  for (const Answer& answer : answers_) {
    for (std::int64_t i = 0; i < answer.got.numel(); ++i, ++number) {
      const double right = number[count];
      // Written so that NaN is a difference.
      if (std::abs(*number - right) <= answer.tolerance * std::max(1.0, std::abs(right))) continue;
      return c10::str(answer.what, "[", i, "] is ", rounded(*number), "; expected ",
                      rounded(right));
    }
  }
  return "";
}

Answered::Answered(std::int64_t count, at::ScalarType type, const at::Device& device)
    : whole_(at::full({count + 2 * kMargin}, kNoAnswer, at::TensorOptions(device).dtype(type))),
      middle_(whole_.narrow(0, kMargin, count)) {}

Answered::Answered(const at::Tensor& numbers)
    : Answered(numbers.numel(), numbers.scalar_type(), numbers.device()) {
  middle_.copy_(numbers.reshape({-1}));
}

void Answered::expect(Answers& answers, const std::string& what, const at::Tensor& expected,
                      double tolerance) const {
  answers.expect(what, middle_, expected, tolerance);
  const at::Tensor margins =
      at::cat({whole_.narrow(0, 0, kMargin), whole_.narrow(0, whole_.numel() - kMargin, kMargin)});
  answers.expect(what + "'s margin", margins, at::full_like(margins, kNoAnswer), 0);
}

at::Tensor untouched(at::IntArrayRef sizes, const at::Device& device) {
  return at::full(sizes, kNoAnswer, at::TensorOptions(device).dtype(at::kDouble));
}

at::Tensor known_numbers(at::IntArrayRef sizes, double phase, at::ScalarType type,
                         const at::Device& device) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return at::arange(count, at::TensorOptions(device).dtype(at::kDouble))
      .add_(phase)
      .mul_(0.7390851332151607)
      .sin_()
      .reshape(sizes)
      .to(type);
}

double tolerance_of(at::ScalarType type) {
  switch (type) {
    case at::kHalf:
      return 2e-3;
    case at::kBFloat16:
      return 1.6e-2;
    case at::kDouble:
      return 1e-11;
    default:
      return 4e-6;
  }
}

std::string disagreement(const kernels::cuda::Interface& cuda, const at::Device& device,
                         Family family) {
  Answers answers;
  switch (family) {
    case Family::kSteps:
      ask_steps(cuda, device, answers);
      break;
    case Family::kLists:
      ask_lists(cuda, device, answers);
      break;
    case Family::kNorms:
      ask_norms(cuda, device, answers);
      break;
    case Family::kBatchNorms:
      ask_batch_norms(cuda, device, answers);
      break;
    case Family::kSplitMasters:
      ask_split_masters(cuda, device, answers);
      break;
  }
  return answers.first_difference();
}

}  // namespace mezzo::bridge
