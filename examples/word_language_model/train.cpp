// Trains a recurrent language model in mixed precision: truncated backpropagation through time,
// with gradients clipped between the loss and the step.
//
//   word_language_model --model GRU --opt-level O2
//   word_language_model --how fp16_optimizer --loss-scale dynamic
//   generate --checkpoint model.pt --words 100
#include <mezzo/error.h>
#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <iostream>
#include <limits>

#include "support/command_line.h"
#include "support/process.h"
#include "support/recorder.h"
#include "word_language_model/corpus.h"
#include "word_language_model/language_model.h"
#include "word_language_model/recipe.h"

using examples::LanguageModel;
using examples::Recipe;

namespace {

struct Settings {
  // A text that every Debian system has.
  std::string data = "/usr/share/common-licenses/GPL-3", model = "LSTM", save = "model.pt",
              device = "cpu";
  examples::RecipeSettings recipe;
  int emsize = 200, nhid = 200, nlayers = 2, epochs = 6, batch_size = 20, bptt = 35, seed = 1111;
  int log_interval = 20, steps = 0;
  double lr = 20, clip = 0.25, dropout = 0.2;
  double static_loss_scale = 0;
  bool tied = false, cuda = false, fp16 = false, dynamic_loss_scale = false;
};

at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& targets) {
  return torch::nn::functional::cross_entropy(logits.flatten(0, 1), targets.flatten());
}

/// Mean loss over a text.
double evaluate(Recipe& recipe, LanguageModel net, const at::Tensor& text, int bptt) {
  const torch::NoGradGuard no_grad;
  net->eval();
  examples::Memory memory = net->empty_memory(text.size(1), text.device());
  double sum = 0;
  for (std::int64_t row = 0; row + 1 < text.size(0); row += bptt) {
    const std::int64_t end = std::min<std::int64_t>(row + bptt, text.size(0) - 1);
    auto [logits, after] = recipe.forward(text.slice(0, row, end), memory);
    sum += loss_of(logits, text.slice(0, row + 1, end + 1)).item<double>() *
           static_cast<double>(end - row);
    memory = examples::detached(after);
  }
  net->train();
  return sum / static_cast<double>(text.size(0) - 1);
}

void train_epoch(Recipe& recipe, LanguageModel net, const at::Tensor& text, int epoch,
                 const Settings& s) {
  using Clock = std::chrono::steady_clock;
  const std::int64_t chunks = (text.size(0) - 2) / s.bptt + 1;
  const std::int64_t steps = s.steps > 0 ? std::min<std::int64_t>(chunks, s.steps) : chunks;
  examples::Memory memory = net->empty_memory(text.size(1), text.device());
  double sum = 0;
  auto since = Clock::now();
  std::int64_t counted = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    const std::int64_t row = step * s.bptt,
                       end = std::min<std::int64_t>(row + s.bptt, text.size(0) - 1);
    recipe.zero_grad();
    auto [logits, after] = recipe.forward(text.slice(0, row, end), memory);
    const at::Tensor loss = loss_of(logits, text.slice(0, row + 1, end + 1));
    recipe.backward(loss);
    recipe.clip(s.clip);
    recipe.step();
    memory = examples::detached(after);

    sum += loss.item<double>();
    ++counted;
    if (counted < s.log_interval && step + 1 != steps) continue;
    const double seconds = std::chrono::duration<double>(Clock::now() - since).count();
    const double mean = sum / static_cast<double>(counted);
    std::cout << "epoch " << epoch << "  step " << step + 1 << '/' << steps << "  "
              << 1000 * seconds / static_cast<double>(counted) << " ms/step  loss " << mean
              << "  perplexity " << std::exp(mean) << "  scale " << recipe.loss_scale()
              << "  skipped " << recipe.skipped_steps() << std::endl;
    sum = 0;
    counted = 0;
    since = Clock::now();
  }
}

void train(const Settings& s) {
  const at::Device device = examples::device_of(s.device);
  examples::require_writable(s.save);
  const examples::Corpus corpus = examples::read_corpus(s.data);
  constexpr std::int64_t kEvaluationColumns = 10;
  const at::Tensor text = examples::in_columns(corpus.train, s.batch_size).to(device);
  const at::Tensor valid = examples::in_columns(corpus.valid, kEvaluationColumns).to(device);
  const at::Tensor test = examples::in_columns(corpus.test, kEvaluationColumns).to(device);

  torch::manual_seed(static_cast<std::uint64_t>(s.seed));
  LanguageModel net(examples::LanguageModelSizes{s.model, corpus.dictionary.size(), s.emsize,
                                                 s.nhid, s.nlayers, s.dropout, s.tied});
  net->to(device);
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(s.lr));
  const std::unique_ptr<Recipe> recipe = examples::make_recipe(s.recipe, net, sgd);

  double best = std::numeric_limits<double>::infinity();
  for (int epoch = 1; epoch <= s.epochs; ++epoch) {
    train_epoch(*recipe, net, text, epoch, s);
    const double loss = evaluate(*recipe, net, valid, s.bptt);
    std::cout << "epoch " << epoch << "  valid loss " << loss << "  perplexity " << std::exp(loss)
              << std::endl;
    if (loss < best) {
      best = loss;
      examples::save_language_model(s.save, net->sizes, corpus.dictionary, recipe->weights());
    } else {
      // Annealed when the validation loss has stopped falling.
      for (auto& group : sgd.param_groups()) group.options().set_lr(group.options().get_lr() / 4);
    }
  }
  const double loss = evaluate(*recipe, net, test, s.bptt);
  std::cout << "test loss " << loss << "  perplexity " << std::exp(loss) << std::endl;
}

int run(int argc, char** argv) {
  Settings s;
  examples::CommandLine line("word_language_model",
                             "Trains a recurrent language model in mixed precision.");
  line.option("data", s.data, "a text, or a folder with train.txt, valid.txt and test.txt")
      .option("model", s.model, "LSTM, GRU, RNN_TANH or RNN_RELU")
      .option("emsize", s.emsize, "numbers that stand for a word")
      .option("nhid", s.nhid, "hidden units of a layer")
      .option("nlayers", s.nlayers, "layers")
      .option("lr", s.lr, "initial learning rate")
      .option("clip", s.clip, "largest norm of the gradients")
      .option("epochs", s.epochs, "times through the text")
      .option("batch-size", s.batch_size, "places of the text that are read at once")
      .option("bptt", s.bptt, "words that gradients go back")
      .option("dropout", s.dropout, "share of numbers that is dropped")
      .option("tied", s.tied, "one matrix takes words in and gives them out")
      .option("seed", s.seed, "of weights and dropout")
      .option("device", s.device, "cpu, cuda, cuda:1")
      .option("log-interval", s.log_interval, "steps between two lines")
      .option("save", s.save, "file of the best model")
      .option("how", s.recipe.how, "amp, fp16_optimizer, or masters: by hand")
      .option("opt-level", s.recipe.opt_level, "O0 to O5, with --how amp")
      .option("loss-scale", s.recipe.loss_scale, "dynamic, or a number; None: as --how has it")
      .option("cuda", s.cuda, "the same as --device cuda")
      .option("fp16", s.fp16, "the same as --how masters")
      .option("static-loss-scale", s.static_loss_scale, "the same as --loss-scale with a number")
      .option("dynamic-loss-scale", s.dynamic_loss_scale, "the same as --loss-scale dynamic")
      .option("steps", s.steps, "end each epoch after so many steps; 0: after the text");
  if (!line.parse(argc, argv)) return 0;
  if (s.cuda) s.device = "cuda";
  if (s.fp16) s.recipe.how = "masters";
  if (line.given("static-loss-scale")) s.recipe.loss_scale = std::to_string(s.static_loss_scale);
  if (s.dynamic_loss_scale) s.recipe.loss_scale = "dynamic";
  if (line.given("opt-level") && s.recipe.how != "amp")
    throw mezzo::ConfigError("--opt-level is for --how amp");
  for (const auto& [name, value] : {std::pair{"emsize", s.emsize},
                                    {"nhid", s.nhid},
                                    {"nlayers", s.nlayers},
                                    {"epochs", s.epochs},
                                    {"batch-size", s.batch_size},
                                    {"bptt", s.bptt},
                                    {"log-interval", s.log_interval}}) {
    line.require(name, value, 1, 1 << 20);
  }
  line.require("steps", s.steps, 0, 1 << 30);
  if (s.dropout < 0 || s.dropout >= 1)
    throw mezzo::ConfigError("--dropout must be at least 0 and below 1");
  if (s.lr <= 0 || s.clip <= 0) throw mezzo::ConfigError("--lr and --clip must be above 0");
  train(s);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_program("word_language_model", run, argc, argv);
}
