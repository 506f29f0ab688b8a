// Recurrent networks in float64, one number at a time: independent of LibTorch's kernels and of
// ours.
#pragma once

#include <torch/torch.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "mezzo/rnn.h"

namespace mezzo::rnn {

inline constexpr std::int64_t kLength = 6, kBatch = 3, kFeatures = 4, kUnits = 6;

using Vector = std::vector<double>;

enum class Kind { kLstm, kGru, kRelu, kTanh, kMlstm };

/// The module of a kind, behind one interface.
struct AnyRecurrent {
  std::shared_ptr<torch::nn::Module> module;
  std::function<Output(const at::Tensor&, const InitialHidden&, ForwardOptions)> forward;
  std::function<std::tuple<PackedSequence, Hidden>(const PackedSequence&, const InitialHidden&,
                                                   ForwardOptions)>
      packed;

  template <typename Holder>
  static AnyRecurrent of(Holder holder) {
    return {
        holder.ptr(),
        [holder](const at::Tensor& x, const InitialHidden& hidden, ForwardOptions how) mutable {
          return holder->forward(x, hidden, how);
        },
        [holder](const PackedSequence& x, const InitialHidden& hidden, ForwardOptions how) mutable {
          return holder->forward_with_packed_input(x, hidden, how);
        }};
  }

  static AnyRecurrent make(Kind kind, const Options& options) {
    switch (kind) {
      case Kind::kLstm:
        return of(LSTM(options));
      case Kind::kGru:
        return of(GRU(options));
      case Kind::kRelu:
        return of(ReLU(options));
      case Kind::kTanh:
        return of(Tanh(options));
      default:
        return of(mLSTM(options));
    }
  }
};

class Reference {
 public:
  Reference(Kind kind, const Options& options, const torch::nn::Module& module)
      : kind_(kind), options_(options) {
    for (const auto& item : module.named_parameters())
      weights_[item.key()] = item.value().detach().to(at::kDouble).contiguous();
  }

  /// x: [length, batch, features] -> [length, batch, directions * output].
  at::Tensor operator()(const at::Tensor& x) const {
    const auto length = static_cast<std::size_t>(x.size(0));
    std::vector<at::Tensor> sequences;
    for (std::int64_t b = 0; b < x.size(1); ++b) {
      std::vector<Vector> values;
      for (std::size_t t = 0; t < length; ++t)
        values.push_back(vector_of(x[static_cast<std::int64_t>(t)][b]));
      for (int layer = 0; layer < options_.num_layers; ++layer) {
        std::vector<Vector> joined(length);
        for (const bool backwards : {false, true}) {
          if (backwards && !options_.bidirectional) continue;
          const std::vector<Vector> outputs = direction(values, layer, backwards);
          for (std::size_t t = 0; t < length; ++t)
            joined[t].insert(joined[t].end(), outputs[t].begin(), outputs[t].end());
        }
        values = joined;
      }
      std::vector<at::Tensor> rows;
      for (const Vector& each : values) rows.push_back(torch::tensor(each, at::kDouble));
      sequences.push_back(torch::stack(rows));
    }
    return torch::stack(sequences, 1);
  }

  std::map<std::string, at::Tensor>& weights() { return weights_; }

 private:
  static Vector vector_of(const at::Tensor& tensor) {
    const at::Tensor values = tensor.detach().to(at::kDouble).contiguous();
    return {values.data_ptr<double>(), values.data_ptr<double>() + values.numel()};
  }
  static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

  Vector product(const std::string& weight, const std::string& bias, const Vector& x) const {
    const at::Tensor& w = weights_.at(weight);
    const double* const rows = w.data_ptr<double>();
    Vector result(static_cast<std::size_t>(w.size(0)));
    for (std::size_t i = 0; i < result.size(); ++i) {
      for (std::size_t j = 0; j < x.size(); ++j) result[i] += rows[i * x.size() + j] * x[j];
      const auto found = weights_.find(bias);
      if (found != weights_.end()) result[i] += found->second.data_ptr<double>()[i];
    }
    return result;
  }

  std::vector<Vector> direction(const std::vector<Vector>& x, int layer, bool backwards) const {
    const std::string end = "_l" + std::to_string(layer) + (backwards ? "_reverse" : "");
    const auto size = static_cast<std::size_t>(options_.hidden_size);
    const auto outputs =
        static_cast<std::size_t>(options_.output_size.value_or(options_.hidden_size));
    Vector h(outputs), c(size);
    std::vector<Vector> result(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t t = backwards ? x.size() - 1 - i : i;
      Vector given = h;
      if (kind_ == Kind::kMlstm) {
        given = product("weight_mhh" + end, "", h);
        const Vector factor = product("weight_mih" + end, "", x[t]);
        for (std::size_t j = 0; j < given.size(); ++j) given[j] *= factor[j];
      }
      const Vector a = product("weight_ih" + end, "bias_ih" + end, x[t]);
      const Vector b = product("weight_hh" + end, "bias_hh" + end, given);
      Vector next(size);
      for (std::size_t j = 0; j < size; ++j) {
        const auto sum = [&](std::size_t gate) { return a[gate * size + j] + b[gate * size + j]; };
        switch (kind_) {
          case Kind::kRelu:
            next[j] = std::max(0.0, sum(0));
            break;
          case Kind::kTanh:
            next[j] = std::tanh(sum(0));
            break;
          case Kind::kGru: {
            const double fresh = std::tanh(a[2 * size + j] + sigmoid(sum(0)) * b[2 * size + j]);
            next[j] = (1 - sigmoid(sum(1))) * fresh + sigmoid(sum(1)) * c[j];
            c[j] = next[j];
            break;
          }
          default:
            c[j] = sigmoid(sum(1)) * c[j] + sigmoid(sum(0)) * std::tanh(sum(2));
            next[j] = sigmoid(sum(3)) * std::tanh(c[j]);
        }
      }
      const bool projects = weights_.contains("weight_hr" + end);
      h = projects ? product("weight_hr" + end, "", next) : next;
      result[t] = h;
    }
    return result;
  }

  Kind kind_;
  Options options_;
  std::map<std::string, at::Tensor> weights_;
};

inline double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.detach().to(at::kDouble) - b.detach().to(at::kDouble)).abs().max().item<double>();
}

}  // namespace mezzo::rnn
