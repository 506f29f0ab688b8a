// Questions to the kernels of a device whose answers LibTorch's operators know.
#pragma once

#include <string>
#include <vector>

#include "bridge/family.h"
#include "core/torch.h"
#include "kernels/cuda/interface.h"

namespace mezzo::bridge {

/// Answers of kernels beside those of LibTorch's operators.
class Answers {
 public:
  /// `got` must be `expected` up to `tolerance`, which counts from 1 on with the number's size.
  /// Both are on one device; NaN is no answer.
  void expect(const std::string& what, const at::Tensor& got, const at::Tensor& expected,
              double tolerance);

  /// "scale: out[3] is 0.5; expected 0.25", or nothing. Waits for the device.
  std::string first_difference() const;

 private:
  struct Answer {
    std::string what;
    at::Tensor got, expected;  // flat, double
    double tolerance;
  };
  std::vector<Answer> answers_;
};

/// Memory that a kernel is to fill, between margins that it must leave alone. At first it holds a
/// number that is the answer to nothing.
class Answered {
 public:
  Answered(std::int64_t count, at::ScalarType type, const at::Device& device);
  /// As above, with these numbers in it.
  explicit Answered(const at::Tensor& numbers);

  const at::Tensor& tensor() const { return middle_; }
  /// Expects what the kernel must have written, and margins that are as they were.
  void expect(Answers&, const std::string& what, const at::Tensor& expected,
              double tolerance) const;

 private:
  at::Tensor whole_, middle_;
};

/// The numbers of Answered memory that no kernel has filled.
at::Tensor untouched(at::IntArrayRef sizes, const at::Device&);

/// Numbers between -1 and 1 that look like chance, the same on all devices.
at::Tensor known_numbers(at::IntArrayRef sizes, double phase, at::ScalarType, const at::Device&);

/// The error that a result in this type may have, computed in float or better.
double tolerance_of(at::ScalarType);

/// The questions of a family.
void ask_lists(const kernels::cuda::Interface&, const at::Device&, Answers&);
void ask_steps(const kernels::cuda::Interface&, const at::Device&, Answers&);
void ask_norms(const kernels::cuda::Interface&, const at::Device&, Answers&);
void ask_batch_norms(const kernels::cuda::Interface&, const at::Device&, Answers&);
void ask_split_masters(const kernels::cuda::Interface&, const at::Device&, Answers&);

/// The first answer of a family that is wrong; empty: there is none. A launch that fails is an
/// Error. Waits for the device.
std::string disagreement(const kernels::cuda::Interface&, const at::Device&, Family);

}  // namespace mezzo::bridge
