// Questions about lists: products, sums, copies, norms, checks.
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <limits>

#include "bridge/device.h"
#include "bridge/device_index.h"
#include "bridge/kept_lists.h"
#include "bridge/known_answers.h"
#include "bridge/tensors.h"
#include "kernels/cuda_library.h"

namespace mezzo::bridge {
namespace {

// More than a chunk, types beside each other, an odd size, and none.
constexpr std::pair<std::int64_t, at::ScalarType> kShapes[] = {
    {9001, at::kFloat}, {33, at::kHalf}, {0, at::kFloat}, {257, at::kBFloat16}, {65, at::kDouble}};

class ListQuestions {
 public:
  ListQuestions(const kernels::cuda::Interface& cuda, const at::Device& device, Answers& answers)
      : cuda_(cuda),
        device_(device),
        answers_(answers),
        stream_(current_stream(device)),
        list_(kept_list(cuda, device, stream_)) {
    double phase = 1;
    for (const auto& [count, type] : kShapes) {
      // Behind one element, wide loads are not possible.
      const std::int64_t before = type == at::kBFloat16 ? 1 : 0;
      x_.push_back(known_numbers({count + before}, phase, type, device).narrow(0, before, count));
      y_.push_back(known_numbers({count}, phase + 0.5, at::kFloat, device));
      ++phase;
    }
    in_x_ = inputs(x_);
    in_y_ = inputs(y_);
  }

  void ask() {
    scale();
    axpby(/*each=*/false);
    axpby(/*each=*/true);
    copy();
    copy_if(0);
    copy_if(1);
    move_scale();
    norms(/*largest=*/false);
    norms(/*largest=*/true);
    checks();
  }

 private:
  static std::vector<kernels::Input> inputs(const std::vector<at::Tensor>& tensors) {
    std::vector<kernels::Input> result;
    result.reserve(tensors.size());
    for (const at::Tensor& tensor : tensors) {
      result.push_back(input_of(tensor, *kernel_dtype(tensor.scalar_type())));
    }
    return result;
  }
  std::int64_t count() const { return static_cast<std::int64_t>(x_.size()); }
  at::Tensor number(at::ScalarType type) const {
    return at::zeros({1}, at::TensorOptions(device_).dtype(type));
  }
  void done(bool is_done, const char* what) const { kernels::check_cuda(cuda_, is_done, what); }

  /// Asks for a list whose types are those of x in turn, and expects it.
  template <typename Call, typename Expected>
  void ask_for_list(const char* what, const Call& call, const Expected& expected) {
    std::vector<Answered> out;
    std::vector<kernels::Output> outputs;
    for (std::size_t i = 0; i < x_.size(); ++i) {
      const at::ScalarType type = x_[(i + 1) % x_.size()].scalar_type();
      out.emplace_back(x_[i].numel(), type, device_);
      outputs.push_back(output_of(out.back().tensor(), *kernel_dtype(type)));
    }
    done(call(outputs.data()), what);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const at::ScalarType type = out[i].tensor().scalar_type();
      const double tolerance =
          std::max(tolerance_of(type), tolerance_of(at::kFloat));  // not both are double
      out[i].expect(answers_, c10::str(what, ": tensor ", i), expected(i), tolerance);
    }
  }

  void scale() {
    const at::Tensor factor = number(at::kDouble).fill_(0.5);
    const at::Tensor found = number(at::kFloat);
    ask_for_list(
        "scale",
        [&](const kernels::Output* out) {
          return cuda_.scale(list_, in_x_.data(), out, count(), 2.6,
                             factor.const_data_ptr<double>(), found.mutable_data_ptr<float>(),
                             stream_);
        },
        [&](std::size_t i) { return x_[i].to(at::kDouble).mul(1.3); });
    answers_.expect("scale: found_inf", found, at::zeros_like(found), 0);
  }

  void axpby(bool each) {
    const at::Tensor factors = known_numbers({2 * count()}, 3, at::kDouble, device_);
    ask_for_list(
        each ? "axpby, each" : "axpby",
        [&](const kernels::Output* out) {
          return cuda_.axpby(list_, in_x_.data(), in_y_.data(), out, count(), 2, -3,
                             each ? factors.const_data_ptr<double>() : nullptr, nullptr, stream_);
        },
        [&](std::size_t i) {
          const auto index = static_cast<std::int64_t>(i);
          at::Tensor a = x_[i].to(at::kDouble).mul(2);
          at::Tensor b = y_[i].to(at::kDouble).mul(-3);
          if (each) {
            a = a.mul(factors[index]);
            b = b.mul(factors[count() + index]);
          }
          return a.add(b);
        });
  }

  void copy() {
    ask_for_list(
        "copy",
        [&](const kernels::Output* out) {
          return cuda_.copy(list_, in_x_.data(), out, count(), stream_);
        },
        [&](std::size_t i) { return x_[i]; });
  }

  void copy_if(float flag) {
    const at::Tensor raised = number(at::kFloat).fill_(flag);
    ask_for_list(
        flag == 0 ? "copy_if without the flag" : "copy_if",
        [&](const kernels::Output* out) {
          return cuda_.copy_if(list_, in_x_.data(), out, count(), raised.const_data_ptr<float>(),
                               stream_);
        },
        [&](std::size_t i) { return flag == 0 ? untouched(x_[i].sizes(), device_) : x_[i]; });
  }

  /// A scale of 64 falls with an overflow, and doubles with the second clean pass after it.
  void move_scale() {
    const kernels::ScaleRule rule{.growth = 2,
                                  .backoff = 0.5,
                                  .floor = 1,
                                  .ceiling = 1024,
                                  .growth_interval = 2,
                                  .dynamic = true};
    const Answered scale(1, at::kFloat, device_);
    const Answered unskipped(1, at::kInt, device_);
    const Answered stuck(1, at::kInt, device_);
    scale.tensor().fill_(64);
    unskipped.tensor().fill_(1);
    stuck.tensor().fill_(0);
    const double scales[] = {32, 32, 64};
    const double passes[] = {0, 1, 0};
    for (int pass = 0; pass < 3; ++pass) {
      const at::Tensor found = number(at::kFloat).fill_(pass == 0 ? 1 : 0);
      done(cuda_.update_scale(scale.tensor().mutable_data_ptr<float>(),
                              unskipped.tensor().mutable_data_ptr<std::int32_t>(),
                              stuck.tensor().mutable_data_ptr<std::int32_t>(),
                              found.const_data_ptr<float>(), &rule, index_of(device_), stream_),
           "loss scale");
      const at::Tensor one = number(at::kDouble);
      scale.expect(answers_, "loss scale", one.clone().fill_(scales[pass]), 0);
      unskipped.expect(answers_, "clean passes", one.clone().fill_(passes[pass]), 0);
      stuck.expect(answers_, "overflows at the floor", one, 0);
    }
  }

  void norms(bool largest) {
    const Answered total(1, at::kDouble, device_);
    const Answered each(count(), at::kDouble, device_);
    const at::Tensor found = number(at::kFloat);
    done(cuda_.norm(
             list_, in_x_.data(), count(), largest, total.tensor().mutable_data_ptr<double>(),
             each.tensor().mutable_data_ptr<double>(), found.mutable_data_ptr<float>(), stream_),
         "norm");
    const double order = largest ? std::numeric_limits<double>::infinity() : 2;
    std::vector<at::Tensor> expected;
    for (const at::Tensor& x : x_) {
      expected.push_back(x.numel() == 0 ? number(at::kDouble)[0]
                                        : at::linalg_vector_norm(x.to(at::kDouble), order));
    }
    const at::Tensor of_each = at::stack(expected);
    const char* what = largest ? "largest magnitude" : "norm";
    each.expect(answers_, c10::str(what, " of a tensor"), of_each, tolerance_of(at::kFloat));
    total.expect(answers_, what, at::linalg_vector_norm(of_each, order), tolerance_of(at::kFloat));
    answers_.expect("norm: found_inf", found, at::zeros_like(found), 0);
  }

  /// The list holds good numbers, or the last of 9001 is infinite or NaN.
  void checks() {
    const double bad[] = {0, std::numeric_limits<double>::infinity(),
                          std::numeric_limits<double>::quiet_NaN()};
    for (const double last : bad) {
      const at::Tensor changed = x_[0].clone();
      if (last != 0) changed.narrow(0, changed.numel() - 1, 1).fill_(last);
      const kernels::Input in = input_of(changed, DType::kFloat32);
      const at::Tensor found = number(at::kFloat);
      done(cuda_.check(list_, &in, 1, found.mutable_data_ptr<float>(), stream_), "check");
      answers_.expect(c10::str("check of a last element ", last, ": found_inf"), found,
                      last == 0 ? at::zeros_like(found) : at::ones_like(found), 0);
    }
  }

  const kernels::cuda::Interface& cuda_;
  at::Device device_;
  Answers& answers_;
  kernels::cuda::Stream stream_;
  kernels::cuda::List* list_;
  std::vector<at::Tensor> x_, y_;
  std::vector<kernels::Input> in_x_, in_y_;
};

}  // namespace

void ask_lists(const kernels::cuda::Interface& cuda, const at::Device& device, Answers& answers) {
  ListQuestions(cuda, device, answers).ask();
}

}  // namespace mezzo::bridge
