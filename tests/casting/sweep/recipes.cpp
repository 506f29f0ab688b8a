#include "casting/sweep/recipes.h"

#include <torch/torch.h>

#include <functional>
#include <map>
#include <optional>

namespace mezzo::casting::sweep {
namespace {

using Ints = std::vector<std::int64_t>;
using Tensors = std::vector<at::Tensor>;

at::Tensor draw(Ints shape) {
  return at::rand(shape) * 0.7 + 0.2;
}

at::Tensor numbers(Ints values) {
  return at::tensor(values, at::kLong);
}

c10::List<at::Tensor> list(const Tensors& tensors) {
  return c10::List<at::Tensor>(tensors);
}

c10::IValue none() {
  return {};
}

at::Tensor matrix_in(at::Layout layout) {
  const at::Tensor dense =
      at::tensor({0.5F, 0.0F, 0.25F, 0.0F, 0.0F, 0.75F, 1.0F, 0.0F, 0.5F}).reshape({3, 3});
  return layout == at::kSparse ? dense.to_sparse() : dense.to_sparse(layout);
}

Stack recurrent(int gates, bool with_cell) {
  const at::Tensor state = draw({1, 2, 4});
  const Tensors weights{draw({4 * gates, 3}), draw({4 * gates, 4}), draw({4 * gates}),
                        draw({4 * gates})};
  const c10::IValue states =
      with_cell ? c10::IValue(list({state, state.clone()})) : c10::IValue(state);
  return {draw({5, 2, 3}), states, list(weights), true, 1, 0.0, true, false, false};
}

Stack cell(int gates, bool with_cell) {
  const at::Tensor state = draw({2, 4});
  const c10::IValue states =
      with_cell ? c10::IValue(list({state, state.clone()})) : c10::IValue(state);
  return {draw({2, 3}),      states,           draw({4 * gates, 3}), draw({4 * gates, 4}),
          draw({4 * gates}), draw({4 * gates})};
}

std::vector<Stack> bags() {
  const at::Tensor indices = numbers({0, 2, 1, 1});
  const at::Tensor offsets = numbers({0, 2});
  return {{draw({5, 3}), indices, offsets, false, 0, false, draw({4}), false},
          {draw({5, 3}), indices, offsets, false, 1, false, none(), false},
          {draw({5, 3}), indices, offsets, false, 2, false, none(), false}};
}

std::vector<Stack> products(bool with_self) {
  std::vector<Stack> all;
  for (const at::Layout layout : {at::kSparse, at::kSparseCsr, at::kSparseCsc}) {
    Stack stack;
    if (with_self) stack.push_back(draw({3, 4}));
    stack.push_back(matrix_in(layout));
    stack.push_back(draw({3, 4}));
    if (with_self) stack.insert(stack.end(), {1, 1});
    all.push_back(std::move(stack));
  }
  return all;
}

using Make = std::function<std::vector<Stack>()>;

const std::map<std::string_view, Make>& table() {
  static const std::map<std::string_view, Make> all{
      {"lstm.input", [] { return std::vector<Stack>{recurrent(4, true)}; }},
      {"gru.input", [] { return std::vector<Stack>{recurrent(3, false)}; }},
      {"rnn_tanh.input", [] { return std::vector<Stack>{recurrent(1, false)}; }},
      {"rnn_relu.input", [] { return std::vector<Stack>{recurrent(1, false)}; }},
      {"lstm_cell", [] { return std::vector<Stack>{cell(4, true)}; }},
      {"gru_cell", [] { return std::vector<Stack>{cell(3, false)}; }},
      {"embedding_bag", bags},
      {"mm", [] { return products(false); }},
      {"addmm", [] { return products(true); }},
      {"smm",
       [] {
         return std::vector<Stack>{{matrix_in(at::kSparse), draw({3, 4})}};
       }},
      {"hspmm",
       [] {
         return std::vector<Stack>{{matrix_in(at::kSparse), draw({3, 4})}};
       }},
      {"_sparse_mm",
       [] {
         return std::vector<Stack>{{matrix_in(at::kSparse), draw({3, 4})}};
       }},
      {"sspaddmm",
       [] {
         return std::vector<Stack>{
             {matrix_in(at::kSparse), matrix_in(at::kSparse), draw({3, 3}), 1, 1}};
       }},
      {"sparse_sampled_addmm",
       [] {
         return std::vector<Stack>{{matrix_in(at::kSparseCsr), draw({3, 4}), draw({4, 3}), 1, 1}};
       }},
      {"_sparse_softmax.int",
       [] {
         return std::vector<Stack>{{matrix_in(at::kSparse), 1, none()}};
       }},
      {"_sparse_log_softmax.int",
       [] {
         return std::vector<Stack>{{matrix_in(at::kSparse), 1, none()}};
       }},
      {"conv_transpose1d",
       [] {
         return std::vector<Stack>{
             {draw({2, 3, 5}), draw({3, 4, 3}), none(), Ints{1}, Ints{0}, Ints{0}, 1, Ints{1}}};
       }},
      {"convolution",
       [] {
         return std::vector<Stack>{{draw({2, 3, 5, 5}), draw({4, 3, 3, 3}), draw({4}), Ints{1, 1},
                                    Ints{0, 0}, Ints{1, 1}, false, Ints{0, 0}, 1}};
       }},
      {"affine_grid_generator",
       [] {
         return std::vector<Stack>{{draw({2, 2, 3}), Ints{2, 3, 4, 4}, false}};
       }},
      {"grid_sampler_2d",
       [] {
         return std::vector<Stack>{{draw({2, 3, 4, 4}), draw({2, 5, 5, 2}), 0, 0, false}};
       }},
      {"fractional_max_pool2d",
       [] {
         return std::vector<Stack>{{draw({2, 3, 8, 8}), Ints{2, 2}, Ints{4, 4}, draw({2, 3, 2})}};
       }},
      {"fractional_max_pool3d",
       [] {
         return std::vector<Stack>{
             {draw({2, 3, 8, 8, 8}), Ints{2, 2, 2}, Ints{4, 4, 4}, draw({2, 3, 3})}};
       }},
      {"ctc_loss.IntList",
       [] {
         return std::vector<Stack>{{draw({6, 2, 5}).log_softmax(2), numbers({1, 2, 3, 1}),
                                    Ints{6, 6}, Ints{2, 2}, 0, 1, false}};
       }},
      {"linalg_ldl_solve",
       [] {
         const auto [factors, pivots] = at::linalg_ldl_factor(at::eye(3) + 0.1);
         return std::vector<Stack>{{factors, pivots, draw({3, 2}), false}};
       }},
      {"linalg_lu_solve",
       [] {
         const auto [factors, pivots] = at::linalg_lu_factor(at::eye(3) + 0.1);
         return std::vector<Stack>{{factors, pivots, draw({3, 2}), true, false}};
       }},
      {"scatter.reduce",
       [] {
         return std::vector<Stack>{{draw({4}), 0, numbers({0, 1}), draw({2}), "add"},
                                   {draw({4}), 0, numbers({0, 1}), draw({2}), "multiply"}};
       }},
      {"nll_loss2d",
       [] {
         return std::vector<Stack>{
             {draw({2, 3, 4, 4}), at::zeros({2, 4, 4}, at::kLong), draw({3}), 1, -100}};
       }},
  };
  return all;
}

}  // namespace

std::vector<Stack> recipes_for(std::string_view overload) {
  const auto found = table().find(overload);
  if (found == table().end()) return {};
  at::manual_seed(1);
  return found->second();
}

}  // namespace mezzo::casting::sweep
