// The options of the program.
#pragma once

#include <optional>
#include <string>

#include "imagenet/train/rate.h"

namespace examples::imagenet {

struct Settings {
  // Data.
  std::string data;
  bool synthetic = false;
  int kinds = 1000;  ///< of synthetic images
  int workers = 4, batch_size = 256, image_size = 224, resize = 256;
  double least_crop = 0.08;
  bool skip_bad_images = true;

  // Network and loss.
  std::string arch = "resnet18", pretrained;
  bool recompute = false, channels_last = false, sync_bn = false;
  double label_smoothing = 0;

  // Training.
  int epochs = 90, start_epoch = 0, steps = 0;
  Rate rate;
  double momentum = 0.9, weight_decay = 1e-4, ema = 0;
  int seed = 1;
  bool deterministic = false, evaluate = false;
  std::string device = "cpu";
  int local_rank = 0;

  // Precision.
  std::string how = "amp", opt_level = "O1", loss_scale = "None", keep_batchnorm_fp32 = "None";
  bool reducer = false;

  // Files and reports.
  int print_freq = 10, prof = -1, checkpoint_steps = 0;
  std::string prof_file = "prof.json", checkpoint = "checkpoint.safetensors", resume;
  std::string log, report, tensorboard;
};

/// Reads the command line. Nothing: --help was asked for and has been written. Throws
/// mezzo::ConfigError on what cannot be meant.
std::optional<Settings> read_settings(int argc, const char* const* argv);

}  // namespace examples::imagenet
