#include "word_language_model/language_model.h"

#include <mezzo/error.h>
#include <torch/nn/functional/linear.h>
#include <torch/nn/init.h>
#include <torch/serialize.h>

#include <filesystem>
#include <sstream>

namespace examples {

namespace {

const char* const kSizes = "sizes";
const char* const kKind = "kind";
const char* const kWords = "words";

at::Tensor as_tensor(const std::string& text) {
  return at::from_blob(const_cast<char*>(text.data()), {static_cast<std::int64_t>(text.size())},
                       at::kByte)
      .clone();
}

std::string as_text(const at::Tensor& bytes) {
  TORCH_CHECK(bytes.scalar_type() == at::kByte && bytes.is_contiguous(),
              "its text is no row of bytes");
  return {reinterpret_cast<const char*>(bytes.const_data_ptr<std::uint8_t>()),
          static_cast<std::size_t>(bytes.numel())};
}

/// Reads the row that save_language_model() wrote; another archive may have anything under that
/// name.
void read_sizes(const at::Tensor& numbers, LanguageModelSizes& sizes) {
  constexpr std::int64_t kNumbers = 5;
  TORCH_CHECK(numbers.scalar_type() == at::kLong && numbers.dim() == 1 &&
                  numbers.numel() == kNumbers && numbers.is_contiguous(),
              "its sizes are ", numbers.scalar_type(), ' ', numbers.sizes(), "; expected Long [",
              kNumbers, ']');
  const auto* n = numbers.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < kNumbers - 1; ++i)
    TORCH_CHECK(n[i] > 0, "its size ", i, " is ", n[i], "; expected 1 or more");
  sizes.words = n[0];
  sizes.embedding = n[1];
  sizes.hidden = n[2];
  sizes.layers = n[3];
  sizes.tied = n[4] != 0;
}

/// An archive's keys may not have dots, as parameters' names do: weights are counted, in order.
std::string weight_key(std::size_t place) {
  return "weight" + std::to_string(place);
}

}  // namespace

LanguageModelImpl::LanguageModelImpl(LanguageModelSizes s) : sizes(std::move(s)) {
  if (sizes.tied && sizes.embedding != sizes.hidden) {
    throw mezzo::ConfigError("--tied needs --emsize and --nhid to be the same, got " +
                             std::to_string(sizes.embedding) + " and " +
                             std::to_string(sizes.hidden));
  }
  encoder = register_module("encoder", torch::nn::Embedding(sizes.words, sizes.embedding));
  drop = register_module("drop", torch::nn::Dropout(sizes.dropout));
  const double between = sizes.layers > 1 ? sizes.dropout : 0;
  const auto with = [&](auto options) { return options.num_layers(sizes.layers).dropout(between); };
  if (sizes.kind == "LSTM") {
    lstm = register_module(
        "lstm", torch::nn::LSTM(with(torch::nn::LSTMOptions(sizes.embedding, sizes.hidden))));
  } else if (sizes.kind == "GRU") {
    gru = register_module(
        "gru", torch::nn::GRU(with(torch::nn::GRUOptions(sizes.embedding, sizes.hidden))));
  } else if (sizes.kind == "RNN_TANH" || sizes.kind == "RNN_RELU") {
    auto options = with(torch::nn::RNNOptions(sizes.embedding, sizes.hidden));
    if (sizes.kind == "RNN_RELU") options.nonlinearity(torch::kReLU);
    rnn = register_module("rnn", torch::nn::RNN(options));
  } else {
    throw mezzo::ConfigError("--model: unknown '" + sizes.kind +
                             "'; expected LSTM, GRU, RNN_TANH or RNN_RELU");
  }
  constexpr double kRange = 0.1;
  torch::nn::init::uniform_(encoder->weight, -kRange, kRange);
  if (!sizes.tied) {
    decoder_weight = register_parameter("decoder_weight", at::empty({sizes.words, sizes.hidden}));
    torch::nn::init::uniform_(decoder_weight, -kRange, kRange);
  }
  decoder_bias = register_parameter("decoder_bias", at::zeros({sizes.words}));
}

std::pair<at::Tensor, Memory> LanguageModelImpl::forward(const at::Tensor& words,
                                                         const Memory& memory) {
  const at::Tensor embedded = drop(encoder(words));
  at::Tensor output;
  Memory after;
  if (!lstm.is_empty()) {
    const auto [out, state] = lstm(embedded, std::make_tuple(memory.at(0), memory.at(1)));
    output = out;
    after = {std::get<0>(state), std::get<1>(state)};
  } else {
    const auto [out, state] =
        gru.is_empty() ? rnn(embedded, memory.at(0)) : gru(embedded, memory.at(0));
    output = out;
    after = {state};
  }
  const at::Tensor& weight = sizes.tied ? encoder->weight : decoder_weight;
  return {torch::nn::functional::linear(drop(output), weight, decoder_bias), after};
}

Memory LanguageModelImpl::empty_memory(std::int64_t columns, at::Device device) const {
  const at::Tensor zeros = at::zeros({sizes.layers, columns, sizes.hidden}, device);
  return lstm.is_empty() ? Memory{zeros} : Memory{zeros, zeros.clone()};
}

Memory detached(const Memory& memory) {
  Memory result;
  for (const at::Tensor& part : memory) result.push_back(part.detach());
  return result;
}

void save_language_model(const std::string& file, const LanguageModelSizes& sizes,
                         const Dictionary& dictionary,
                         const torch::OrderedDict<std::string, at::Tensor>& weights) {
  torch::serialize::OutputArchive archive;
  archive.write(kKind, as_tensor(sizes.kind));
  archive.write(kSizes, at::tensor({sizes.words, sizes.embedding, sizes.hidden, sizes.layers,
                                    static_cast<std::int64_t>(sizes.tied)}));
  std::string words;
  for (std::int64_t i = 0; i < dictionary.size(); ++i) words += dictionary.word(i) + '\n';
  archive.write(kWords, as_tensor(words));
  for (std::size_t i = 0; i < weights.size(); ++i) archive.write(weight_key(i), weights[i].value());
  const std::string beside = file + ".part";
  try {
    archive.save_to(beside);
    std::filesystem::rename(beside, file);
  } catch (const std::exception& error) {
    std::error_code ignored;
    std::filesystem::remove(beside, ignored);
    throw mezzo::Error("cannot write model '" + file + "': " + error.what());
  }
}

SavedLanguageModel load_language_model(const std::string& file) {
  try {
    torch::serialize::InputArchive archive;
    archive.load_from(file);
    at::Tensor kind, numbers, words;
    archive.read(kKind, kind);
    archive.read(kSizes, numbers);
    archive.read(kWords, words);
    LanguageModelSizes sizes{as_text(kind)};
    read_sizes(numbers, sizes);
    SavedLanguageModel saved{LanguageModel(sizes), {}};
    std::istringstream lines(as_text(words));
    for (std::string word; std::getline(lines, word);) saved.dictionary.add(word);
    TORCH_CHECK(saved.dictionary.size() == sizes.words, "it has ", saved.dictionary.size(),
                " words and weights for ", sizes.words);
    const torch::NoGradGuard no_grad;
    const auto parameters = saved.model->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      at::Tensor value;
      archive.read(weight_key(i), value);
      TORCH_CHECK(value.sizes() == parameters[i].sizes(), weight_key(i), " has shape ",
                  value.sizes(), "; expected ", parameters[i].sizes());
      parameters[i].copy_(value);
    }
    return saved;
  } catch (const c10::Error& error) {
    throw mezzo::Error("cannot read model '" + file + "': " + error.what_without_backtrace());
  }
}

}  // namespace examples
