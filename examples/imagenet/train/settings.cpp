#include "imagenet/train/settings.h"

#include <mezzo/error.h>

#include <cstdlib>
#include <tuple>

#include "support/command_line.h"

namespace examples::imagenet {
namespace {

/// Options that have no field of their own.
struct Spellings {
  std::string on_bad_image = "skip";
  bool cuda = false, fp16 = false, dynamic_loss_scale = false;
  double static_loss_scale = 1;
};

void declare_data(CommandLine& line, Settings& s, Spellings& spelt) {
  line.argument("DIR", s.data, "folder with train/CLASS/*.jpg and val/CLASS/*.jpg")
      .option("workers", s.workers, "threads that make batches; 0: the training's own")
      .also({"j"})
      .option("batch-size", s.batch_size, "images per step and process")
      .also({"b"})
      .option("image-size", s.image_size, "side of what the network sees")
      .option("resize", s.resize, "shorter side before the middle is cut out, in evaluation")
      .option("min-crop", s.least_crop, "least part of an image that training cuts out")
      .option("on-bad-image", spelt.on_bad_image, "skip: name it and go on; error: stop")
      .option("synthetic", s.synthetic, "random images instead of a folder's")
      .option("classes", s.kinds, "of synthetic images");
}

void declare_training(CommandLine& line, Settings& s, Spellings& spelt) {
  line.option("arch", s.arch, "the network: --arch help lists them")
      .also({"a"})
      .option("pretrained", s.pretrained, "safetensors file of weights to begin with")
      .option("recompute", s.recompute, "keep less for the backward pass and compute it again")
      .option("channels-last", s.channels_last, "images and weights as rows of pixels")
      .option("sync-bn", s.sync_bn, "batch norms over all processes' images")
      .option("label-smoothing", s.label_smoothing, "share of a label that goes to all classes")
      .option("epochs", s.epochs, "times through the images")
      .option("start-epoch", s.start_epoch, "the first one, from 0, where nothing is resumed")
      .option("steps", s.steps, "end each epoch after so many steps; 0: after all images")
      .option("lr", s.rate.base, "learning rate at 256 images per step of all processes")
      .option("warmup-epochs", s.rate.warmup_epochs, "over which the rate rises from 0")
      .option("lr-epochs", s.rate.decay_epochs, "after which the rate is divided by 10")
      .option("lr-last-epoch", s.rate.extra_decay_epoch, "from which once more")
      .option("momentum", s.momentum, "of SGD")
      .option("weight-decay", s.weight_decay, "of SGD")
      .also({"wd"})
      .option("ema", s.ema, "decay of a moving average of the weights, to evaluate with; 0: none")
      .option("seed", s.seed, "of weights, order, crops and dropout")
      .option("deterministic", s.deterministic,
              "operators that give the same bits in every run, on GPUs too")
      .option("evaluate", s.evaluate, "evaluate and end")
      .also({"e"})
      .option("device", s.device, "cpu, cuda (one for each process), cuda:1")
      .option("cuda", spelt.cuda, "the same as --device cuda")
      .option("local-rank", s.local_rank, "from launchers that set no LOCAL_RANK");
}

void declare_precision(CommandLine& line, Settings& s, Spellings& spelt) {
  line.option("opt-level", s.opt_level, "O0 to O5, with --how amp")
      .option("loss-scale", s.loss_scale, "dynamic, or a number; None: as --how has it")
      .option("keep-batchnorm-fp32", s.keep_batchnorm_fp32, "True or False; None: the level's")
      .option("how", s.how, "amp; or older: fp16_optimizer, masters (by hand), handle (amp.init)")
      .option("reducer", s.reducer, "average gradients after the backward pass by a Reducer")
      .option("fp16", spelt.fp16, "the same as --how masters")
      .option("static-loss-scale", spelt.static_loss_scale, "the same as --loss-scale")
      .option("dynamic-loss-scale", spelt.dynamic_loss_scale, "the same as --loss-scale dynamic");
}

void declare_output(CommandLine& line, Settings& s) {
  line.option("print-freq", s.print_freq, "steps between two reports")
      .also({"p"})
      .option("resume", s.resume, "checkpoint to go on from")
      .option("checkpoint", s.checkpoint, "file to go on from later; None: none")
      .option("checkpoint-steps", s.checkpoint_steps, "also after so many steps; 0: after epochs")
      .option("log", s.log, "every event, as JSON lines")
      .option("report", s.report, "page with plots (.html)")
      .option("tensorboard", s.tensorboard, "folder of event files for TensorBoard")
      .option("prof", s.prof, "profile ten steps from this one, from 0, and end; -1: do not")
      .option("prof-file", s.prof_file, "trace of these steps, for Perfetto or chrome://tracing");
}

void check_ranges(const CommandLine& line, const Settings& s) {
  constexpr int kMany = 1 << 30;
  for (const auto& [name, value, least] : {std::tuple{"batch-size", s.batch_size, 1},
                                           {"workers", s.workers, 0},
                                           {"image-size", s.image_size, 1},
                                           {"resize", s.resize, s.image_size},
                                           {"classes", s.kinds, 2},
                                           {"epochs", s.epochs, 1},
                                           {"start-epoch", s.start_epoch, 0},
                                           {"steps", s.steps, 0},
                                           {"warmup-epochs", s.rate.warmup_epochs, 0},
                                           {"lr-epochs", s.rate.decay_epochs, 1},
                                           {"lr-last-epoch", s.rate.extra_decay_epoch, 0},
                                           {"local-rank", s.local_rank, 0},
                                           {"print-freq", s.print_freq, 1},
                                           {"checkpoint-steps", s.checkpoint_steps, 0},
                                           {"prof", s.prof, -1}}) {
    line.require(name, value, least, kMany);
  }
  if (!(s.least_crop > 0 && s.least_crop <= 1))
    throw mezzo::ConfigError("--min-crop must be above 0 and at most 1");
  if (!(s.label_smoothing >= 0 && s.label_smoothing < 1))
    throw mezzo::ConfigError("--label-smoothing must be at least 0 and below 1");
  if (!(s.ema >= 0 && s.ema < 1)) throw mezzo::ConfigError("--ema must be at least 0 and below 1");
  if (s.rate.base <= 0 || s.momentum < 0 || s.weight_decay < 0)
    throw mezzo::ConfigError("--lr must be above 0, --momentum and --weight-decay at least 0");
}

void check_combinations(const CommandLine& line, const Settings& s) {
  if (s.synthetic && !s.data.empty())
    throw mezzo::ConfigError("--synthetic needs no folder, got '" + s.data + "'");
  if (!s.synthetic && s.data.empty())
    throw mezzo::ConfigError("which folder? imagenet DIR, or --synthetic to train without one");
  if (line.given("classes") && !s.synthetic)
    throw mezzo::ConfigError("--classes is for --synthetic; a folder has its own classes");
  if (s.how == "amp") return;
  if (line.given("opt-level") || line.given("keep-batchnorm-fp32"))
    throw mezzo::ConfigError("--opt-level and --keep-batchnorm-fp32 are for --how amp");
  if (s.ema > 0) throw mezzo::ConfigError("--ema is for --how amp");
  if (s.sync_bn && s.reducer) throw mezzo::ConfigError("--sync-bn with --reducer is for --how amp");
}

}  // namespace

std::optional<Settings> read_settings(int argc, const char* const* argv) {
  Settings s;
  Spellings spelt;
  CommandLine line("imagenet", "Trains a network to say what is on photographs.");
  declare_data(line, s, spelt);
  declare_training(line, s, spelt);
  declare_precision(line, s, spelt);
  declare_output(line, s);
  if (!line.parse(argc, argv)) return {};
  if (spelt.cuda) s.device = "cuda";
  if (spelt.fp16) s.how = "masters";
  if (line.given("static-loss-scale")) s.loss_scale = std::to_string(spelt.static_loss_scale);
  if (spelt.dynamic_loss_scale) s.loss_scale = "dynamic";
  if (spelt.on_bad_image != "skip" && spelt.on_bad_image != "error")
    throw mezzo::ConfigError("--on-bad-image: unknown '" + spelt.on_bad_image +
                             "'; expected skip or error");
  s.skip_bad_images = spelt.on_bad_image == "skip";
  if (!line.given("resize")) s.resize = s.image_size * 8 / 7;  // 256 for 224
  if (s.checkpoint == "None") s.checkpoint.clear();
  check_ranges(line, s);
  check_combinations(line, s);
  if (line.given("local-rank"))
    setenv("LOCAL_RANK", std::to_string(s.local_rank).c_str(), /*overwrite=*/0);
  return s;
}

}  // namespace examples::imagenet
