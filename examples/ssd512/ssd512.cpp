// MXNet's tutorial of automatic mixed precision, in C++: SSD-512 with a ResNet-50 backbone is
// trained on a synthetic batch, first in float and then with three more lines; then networks are
// converted for inference.
//
//   ssd512                                  sizes that two cores do in three minutes
//   ssd512 --full --device cuda             the tutorial's own
//   ssd512 --params ssd.params --data batch.safetensors --json losses.json
#include <mezzo/error.h>
#include <mezzo/report.h>

#include <iostream>

#include "ssd512/inference.h"
#include "ssd512/results.h"
#include "ssd512/training.h"
#include "support/command_line.h"
#include "support/compare.h"
#include "support/process.h"

namespace {

struct Settings {
  examples::TrainingSettings training;
  examples::InferenceSettings inference;
  int data_shape = 256, batch_size = 4, iterations = 12, seed = 1;
  std::string dtype = "auto", part = "both", save_to = ".", report, json;
  bool full = false;
};

void train(const Settings& s) {
  mezzo::report::Report report;
  const examples::RunResults full = examples::train(s.training, "float32", report);
  const examples::RunResults low = examples::train(s.training, s.dtype, report);
  examples::clear_progress_line();
  std::cout << '\n' << examples::to_table(full, low) << std::flush;
  if (!s.json.empty()) examples::save_json({full, low}, s.json);
  if (!s.report.empty()) examples::save_report(report, s.report);
}

void check(Settings& s, const examples::CommandLine& line) {
  if (s.full) {
    // The tutorial's sizes, unless others are given.
    if (!line.given("data-shape")) s.data_shape = 512;
    if (!line.given("batch-size")) s.batch_size = 8;
    if (!line.given("iterations")) s.iterations = 200;
  }
  for (const char* size : {"data-shape", "batch-size"}) {
    if (!s.training.data.empty() && line.given(size))
      throw mezzo::ConfigError("--" + std::string(size) + " beside --data: the file has its own");
  }
  line.require("data-shape", s.data_shape, 32, 4096);
  line.require("batch-size", s.batch_size, 1, 4096);
  line.require("iterations", s.iterations, 1, 1 << 30);
  line.require("seed", s.seed, 0, 1 << 30);
  if (s.dtype == "auto") s.dtype = s.training.device == "cpu" ? "bfloat16" : "float16";
  if (s.dtype != "float16" && s.dtype != "bfloat16") {
    throw mezzo::ConfigError("--dtype: unknown '" + s.dtype +
                             "'; expected auto, float16 or bfloat16");
  }
  if (s.part != "training" && s.part != "inference" && s.part != "both") {
    throw mezzo::ConfigError("--part: unknown '" + s.part +
                             "'; expected training, inference or both");
  }
  s.inference.dtype = s.dtype;
  s.inference.device = s.training.device;
  s.inference.seed = s.seed;
  s.inference.folder = s.save_to;
  if (line.given("data-shape")) s.inference.data_shape = s.data_shape;  // else that of ImageNet
  s.training.data_shape = s.data_shape;
  s.training.batch_size = s.batch_size;
  s.training.iterations = s.iterations;
  s.training.seed = s.seed;
  if (!s.report.empty()) examples::require_report_writable(s.report);
  if (!s.json.empty()) examples::require_writable(s.json);
}

int run(int argc, char** argv) {
  Settings s;
  examples::CommandLine line(
      "ssd512", "Trains SSD-512 on noise as MXNet's tutorial does, in float and mixed precision.");
  line.option("data-shape", s.data_shape, "side of the images")
      .option("batch-size", s.batch_size, "images per iteration")
      .option("iterations", s.iterations, "iterations of the epoch")
      .option("full", s.full, "the tutorial's sizes: 512, 8 and 200")
      .option("dtype", s.dtype, "float16 or bfloat16; auto: bfloat16 on the CPU, else float16")
      .option("device", s.training.device, "cpu, cuda, cuda:1")
      .option("params", s.training.params, "first weights: a file that MXNet saved")
      .option("data", s.training.data,
              "safetensors file of the batch: data, cls_targets, box_targets")
      .option("part", s.part, "training, inference or both")
      .option("model", s.inference.model,
              "symbol to convert: PREFIX of PREFIX-symbol.json and PREFIX-0000.params")
      .option("save-to", s.save_to, "folder for the converted models")
      .option("seed", s.seed, "of weights and noise")
      .option("json", s.json, "file for the losses of every iteration")
      .option("report", s.report, "report page and figures: FILE.html and FILE.json");
  if (!line.parse(argc, argv)) return 0;
  check(s, line);
  if (s.part != "inference") train(s);
  if (s.part != "training") examples::convert_and_infer(s.inference);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_program("ssd512", run, argc, argv);
}
