// Writes text word by word as a trained language model finds it likely.
#include <torch/torch.h>

#include <mezzo/error.h>

#include <fstream>
#include <iostream>

#include "support/command_line.h"
#include "support/recorder.h"
#include "word_language_model/language_model.h"

namespace {

struct Settings {
  std::string checkpoint = "model.pt", outf = "generated.txt", device = "cpu";
  int words = 1000, seed = 1111, log_interval = 100;
  double temperature = 1;
};

void generate(const Settings& s, std::ostream& out) {
  const at::Device device = examples::device_of(s.device);
  examples::SavedLanguageModel saved = examples::load_language_model(s.checkpoint);
  saved.model->to(device);
  saved.model->eval();
  torch::manual_seed(static_cast<std::uint64_t>(s.seed));
  const torch::NoGradGuard no_grad;
  examples::Memory memory = saved.model->empty_memory(1, device);
  at::Tensor word =
      torch::randint(saved.dictionary.size(), {1, 1}, at::TensorOptions(device).dtype(at::kLong));
  constexpr int kWordsPerLine = 20;
  for (int i = 1; i <= s.words; ++i) {
    auto [logits, after] = saved.model(word, memory);
    word.fill_(torch::multinomial(torch::softmax(logits.flatten() / s.temperature, 0), 1).item());
    memory = std::move(after);
    out << saved.dictionary.word(word.item<std::int64_t>())
        << (i % kWordsPerLine == 0 || i == s.words ? '\n' : ' ');
    if (i % s.log_interval == 0) std::cerr << "generated " << i << '/' << s.words << " words\n";
  }
}

int run(int argc, char** argv) {
  Settings s;
  examples::CommandLine line("generate",
                             "Writes text with a model that word_language_model has trained.");
  line.option("checkpoint", s.checkpoint, "the model's file")
      .option("outf", s.outf, "file for the text; - is standard output")
      .option("words", s.words, "how many to write")
      .option("temperature", s.temperature, "higher is more diverse")
      .option("seed", s.seed, "of the choices")
      .option("device", s.device, "cpu, cuda, cuda:1")
      .option("log-interval", s.log_interval, "words between two lines of progress");
  if (!line.parse(argc, argv)) return 0;
  line.require("words", s.words, 1, 1 << 30);
  line.require("log-interval", s.log_interval, 1, 1 << 30);
  constexpr double kLowest = 1e-3;
  if (s.temperature < kLowest) throw mezzo::ConfigError("--temperature must be at least 0.001");
  if (s.outf == "-") {
    generate(s, std::cout);
    return 0;
  }
  std::ofstream out(s.outf);
  if (!out) throw mezzo::Error("cannot write '" + s.outf + "'");
  generate(s, out);
  out.close();
  if (!out) throw mezzo::Error("cannot write '" + s.outf + "'");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_program("generate", run, argc, argv);
}
