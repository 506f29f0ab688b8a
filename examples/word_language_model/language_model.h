// A recurrent network that says how likely each word is to come next.
#pragma once

#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/rnn.h>
#include <torch/ordered_dict.h>

#include <string>
#include <utility>
#include <vector>

#include "word_language_model/corpus.h"

namespace examples {

struct LanguageModelSizes {
  std::string kind = "LSTM";  ///< LSTM, GRU, RNN_TANH or RNN_RELU
  std::int64_t words = 0;     ///< in the dictionary
  std::int64_t embedding = 200;
  std::int64_t hidden = 200;
  std::int64_t layers = 2;
  double dropout = 0.2;
  bool tied = false;  ///< one matrix takes words in and gives them out; embedding == hidden
};

/// The network's memory of the text so far: {h}, or {h, c} of an LSTM, each [layers, N,
/// hidden].
using Memory = std::vector<at::Tensor>;

struct LanguageModelImpl : torch::nn::Module {
  /// Throws mezzo::ConfigError for an unknown kind, and for `tied` with sizes that differ.
  explicit LanguageModelImpl(LanguageModelSizes sizes);

  /// Words [T, N] to logits [T, N, words], and the memory after them.
  std::pair<at::Tensor, Memory> forward(const at::Tensor& words, const Memory& memory);

  /// The memory before any text.
  Memory empty_memory(std::int64_t columns, at::Device device) const;

  LanguageModelSizes sizes;
  torch::nn::Embedding encoder{nullptr};
  torch::nn::Dropout drop{nullptr};
  torch::nn::LSTM lstm{nullptr};  // one of these three
  torch::nn::GRU gru{nullptr};
  torch::nn::RNN rnn{nullptr};
  at::Tensor decoder_weight;  // not there when tied: then it is the encoder's
  at::Tensor decoder_bias;
};
TORCH_MODULE(LanguageModel);

/// The memory without the graph that led to it: backward passes end here.
Memory detached(const Memory& memory);

/// Writes sizes, dictionary and float weights to one file, beside the target and then over it.
/// Throws mezzo::Error where it cannot.
void save_language_model(const std::string& file, const LanguageModelSizes& sizes,
                         const Dictionary& dictionary,
                         const torch::OrderedDict<std::string, at::Tensor>& weights);

struct SavedLanguageModel {
  LanguageModel model{nullptr};
  Dictionary dictionary;
};

/// Reads the output of save_language_model(). Throws mezzo::Error where the file is missing or no
/// such model.
SavedLanguageModel load_language_model(const std::string& file);

}  // namespace examples
