// SSD-512 of the examples beside GluonCV's, whose numbers ssd512/make_reference.py wrote.
#include "ssd512/network.h"

#include <gmock/gmock.h>
#include <mezzo/deploy_script.h>
#include <mezzo/error.h>
#include <mezzo/gluon.h>
#include <mezzo/safetensors.h>
#include <torch/torch.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <sstream>

#include "ssd512/anchors.h"
#include "ssd512/detection.h"
#include "ssd512/inference.h"
#include "ssd512/loader.h"
#include "ssd512/multibox_loss.h"
#include "ssd512/mxnet_weights.h"
#include "ssd512/results.h"
#include "ssd512/symbols.h"

namespace examples {
namespace {

constexpr std::int64_t kSide = 64, kBatch = 4, kAnchors = 108;

/// The reference's numbers of that name.
at::Tensor judged(const std::string& name) {
  static const auto* const lines = [] {
    auto* all = new std::map<std::string, std::vector<double>>;
    std::ifstream in(MEZZO_SSD512_REFERENCE);
    for (std::string line; std::getline(in, line);) {
      std::istringstream words(line);
      std::string key;
      words >> key;
      for (double number = 0; words >> number;) (*all)[key].push_back(number);
    }
    return all;
  }();
  return torch::tensor(lines->at(name), at::kDouble).to(at::kFloat);
}

/// make_reference.py's numbers between 0 and 1.
at::Tensor hashed(const std::string& name, at::IntArrayRef shape) {
  std::uint32_t seed = 2166136261U;
  for (const char c : name) seed = (seed ^ static_cast<unsigned char>(c)) * 16777619U;
  at::Tensor values = torch::empty(shape);
  float* out = values.data_ptr<float>();
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    std::uint32_t h = static_cast<std::uint32_t>(i) * 2654435761U + seed;
    h ^= h >> 15;
    h *= 2246822519U;
    h ^= h >> 13;
    h *= 3266489917U;
    h ^= h >> 16;
    out[i] = static_cast<float>(h / 4294967296.0);
  }
  return values;
}

at::Tensor between(const std::string& name, at::IntArrayRef shape, double bound) {
  return (hashed(name, shape) * 2 - 1) * bound;
}

/// make_reference.py's weights. The last gamma of each bottleneck gets a value of its own.
void set_hashed_weights(torch::nn::Module& net, double last_gamma) {
  const torch::NoGradGuard no_grad;
  for (const auto& module : net.modules()) {
    if (auto* stage = module->as<ResNetStageImpl>()) stage->zero_last_gammas();
  }
  for (const auto& item : net.named_parameters()) {
    at::Tensor weight = item.value();
    if (weight.dim() > 1) {
      const double bound = std::sqrt(3.0 / static_cast<double>(weight[0].numel()));
      weight.copy_(between(common_name(item.key()), weight.sizes(), bound));
    } else if (item.key().ends_with("bias")) {
      weight.zero_();
    } else if (item.key().ends_with("gamma") && weight[0].item<float>() == 0) {
      weight.fill_(last_gamma);
    }
  }
}

Ssd hashed_network() {
  Ssd net;
  set_hashed_weights(*net, 0);
  return net;
}

double distance(const at::Tensor& ours, const at::Tensor& theirs) {
  return (ours.flatten().to(at::kDouble) - theirs.flatten().to(at::kDouble))
      .abs()
      .max()
      .item<double>();
}

at::Tensor anchors_of_side() {
  return make_anchors(map_sizes_for(kSide));
}

TEST(Ssd512, HasTheAnchorsOfGluonCv) {
  EXPECT_EQ(make_anchors(map_sizes_for(512)).sizes(), (std::vector<std::int64_t>{1, 6132, 4}));
  ASSERT_EQ(anchors_of_side().sizes(), (std::vector<std::int64_t>{1, kAnchors, 4}));
  EXPECT_LT(distance(anchors_of_side(), judged("anchors")), 1e-4);
}

TEST(Ssd512, MatchesAnchorsAsGluonCvDoes) {
  const at::Tensor boxes =
      torch::tensor({3,  5,  40, 61, 30, 20, 60, 64, 0,  0,  9,  9,  -40, -30, 100, 90,  //
                     10, 12, 30, 30, -1, -1, -1, -1, -1, -1, -1, -1, -1,  -1,  -1,  -1})
          .to(at::kFloat)
          .reshape({2, 4, 4});
  const at::Tensor kinds = torch::tensor({{7, 0, 79, 15}, {3, -1, -1, -1}}).to(at::kFloat);
  const Targets targets = match_anchors(anchors_of_side(), boxes, kinds);
  for (const int i : {0, 1}) {
    const std::string number = std::to_string(i);
    EXPECT_EQ(distance(targets.classes[i], judged("class_targets" + number)), 0);
    EXPECT_LT(distance(targets.boxes[i], judged("box_targets" + number)), 1e-4);
  }
}

TEST(Ssd512, DecodesAndSuppressesBoxesAsGluonCvDoes) {
  const at::Tensor cls_preds = between("e", {2, kAnchors, 81}, 6);
  const at::Tensor box_preds = between("f", {2, kAnchors, 4}, 2);
  EXPECT_LT(distance(decode_boxes(box_preds, anchors_of_side())[0], judged("decoded")), 1e-3);
  const Detections found = detect(cls_preds, box_preds, anchors_of_side());
  const at::Tensor theirs = judged("detections").reshape({2, 100, 6});
  EXPECT_EQ(distance(found.ids, theirs.slice(2, 0, 1)), 0);
  EXPECT_LT(distance(found.scores, theirs.slice(2, 1, 2)), 1e-6);
  EXPECT_LT(distance(found.boxes, theirs.slice(2, 2, 6)), 1e-3);
}

TEST(Ssd512, FillsUpWhereNothingIsFound) {
  at::Tensor sure_of_nothing = torch::zeros({1, kAnchors, 81});
  sure_of_nothing.select(2, 0).fill_(50);
  const Detections found =
      detect(sure_of_nothing, torch::zeros({1, kAnchors, 4}), anchors_of_side());
  EXPECT_EQ(found.ids.sizes(), (std::vector<std::int64_t>{1, 100, 1}));
  EXPECT_TRUE(found.boxes.eq(-1).all().item<bool>());
}

TEST(Ssd512, MinesNegativesAsGluonCvDoes) {
  const at::Tensor number = hashed("c", {2, kAnchors}).to(at::kDouble).mul(100).floor().sub(90);
  const at::Tensor kinds =
      torch::where(number < -80, torch::full_like(number, -1), number.clamp_min(0)).to(at::kFloat);
  const MultiBoxLosses losses =
      SsdMultiBoxLoss()({between("a", {2, kAnchors, 81}, 3)}, {between("b", {2, kAnchors, 4}, 2)},
                        {kinds}, {hashed("d", {2, kAnchors, 4})});
  EXPECT_LT(distance(losses.sum[0], judged("mined_sum")), 1e-4);
  EXPECT_LT(distance(losses.cls[0], judged("mined_cls")), 1e-4);
  EXPECT_LT(distance(losses.box[0], judged("mined_box")), 1e-5);
}

TEST(Ssd512, LosesNothingWithoutPositives) {
  const at::Tensor predictions = torch::ones({1, kAnchors, 81}).requires_grad_();
  const MultiBoxLosses losses =
      SsdMultiBoxLoss()({predictions}, {torch::ones({1, kAnchors, 4})},
                        {torch::zeros({1, kAnchors})}, {torch::zeros({1, kAnchors, 4})});
  EXPECT_EQ(losses.sum[0].item<float>(), 0);
  losses.sum[0].backward();
  EXPECT_EQ(predictions.grad().abs().sum().item<float>(), 0);
}

/// Losses of the tutorial's loop, [iterations, 3]; checks the first outputs in float.
at::Tensor train_as_judged(bool mixed) {
  std::optional<mezzo::gluon::Handle> amp;
  if (mixed) amp.emplace(mezzo::gluon::init({.target_dtype = "bfloat16"}));
  Ssd net = hashed_network();
  mezzo::gluon::Trainer trainer(*net, "sgd",
                                {{"learning_rate", 0.001}, {"wd", 0.0005}, {"momentum", 0.9}});
  if (mixed) mezzo::gluon::init_trainer(trainer);
  const at::Tensor data = between("data", {kBatch, 3, kSide, kSide}, 1);
  const at::Tensor cls_targets = hashed("cls_targets", {kBatch, kAnchors}),
                   box_targets = hashed("box_targets", {kBatch, kAnchors, 4});
  std::vector<at::Tensor> rows;
  for (int i = 0; i < 4; ++i) {
    auto [cls_pred, box_pred, anchors] = net(data);
    if (i == 0 && !mixed) {
      EXPECT_LT(distance(cls_pred.flatten().slice(0, 0, std::nullopt, 97), judged("cls_preds")),
                1e-4);
      EXPECT_LT(distance(box_pred.flatten().slice(0, 0, std::nullopt, 7), judged("box_preds")),
                1e-4);
    }
    const MultiBoxLosses losses =
        SsdMultiBoxLoss()({cls_pred}, {box_pred}, {cls_targets}, {box_targets});
    if (mixed) {
      mezzo::gluon::scale_loss(losses.sum, trainer).backward();
    } else {
      losses.sum[0].sum().backward();
    }
    trainer.step(1);
    trainer.zero_grad();
    rows.push_back(
        torch::stack({losses.sum[0].sum(), losses.cls[0].sum(), losses.box[0].sum()}).detach());
  }
  return torch::stack(rows);
}

TEST(Ssd512, TrainsAsGluonCvDoes) {
  const at::Tensor full = train_as_judged(false);
  // Its batch norms see four nearly equal values where maps are one pixel wide: a change of 1e-7 of
  // the images moves the losses of the last iteration by 3e-3. Float64 is compared below.
  const std::array<double, 4> tolerances{1e-3, 1e-3, 1e-3, 1e-2};
  for (std::size_t i = 0; i < tolerances.size(); ++i) {
    EXPECT_LT(distance(full[static_cast<std::int64_t>(i)], judged("losses" + std::to_string(i))),
              tolerances[i])
        << "iteration " << i;
  }
  const at::Tensor low = train_as_judged(true);
  EXPECT_LT(((full - low).abs() / full).max().item<double>(), 0.02);
}

TEST(Ssd512, TrainsInFloat64AsGluonCvDoes) {
  Ssd net = hashed_network();
  net->to(at::kDouble);
  torch::optim::SGD sgd(net->parameters(),
                        torch::optim::SGDOptions(0.001).momentum(0.9).weight_decay(0.0005));
  const at::Tensor data = between("data", {kBatch, 3, kSide, kSide}, 1).to(at::kDouble);
  const at::Tensor cls_targets = hashed("cls_targets", {kBatch, kAnchors}).to(at::kDouble);
  const at::Tensor box_targets = hashed("box_targets", {kBatch, kAnchors, 4}).to(at::kDouble);
  for (int i = 0; i < 4; ++i) {
    auto [cls_pred, box_pred, anchors] = net(data);
    const MultiBoxLosses losses =
        SsdMultiBoxLoss()({cls_pred}, {box_pred}, {cls_targets}, {box_targets});
    losses.sum[0].sum().backward();
    sgd.step();
    sgd.zero_grad();
    const at::Tensor row =
        torch::stack({losses.sum[0].sum(), losses.cls[0].sum(), losses.box[0].sum()}).detach();
    EXPECT_LT(distance(row.to(at::kFloat), judged("losses" + std::to_string(i))), 1e-3)
        << "iteration " << i;
  }
}

TEST(Ssd512, ConvertsTheResNet50OfMxnetForInference) {
  const torch::NoGradGuard no_grad;
  ResNet50 net;
  set_hashed_weights(*net, 0.5);
  net->eval();
  const at::Tensor images = between("images", {2, 3, kSide, kSide}, 1);
  const at::Tensor theirs = judged("resnet50");
  const auto tenth = [](const at::Tensor& logits) {
    return logits.flatten().slice(0, 0, std::nullopt, 10);
  };
  EXPECT_LT(distance(tenth(net(images)), theirs), 1e-4);

  mezzo::deploy::ScriptOptions options;
  options.target_dtype = at::kBFloat16;
  const at::Tensor low =
      mezzo::deploy::convert_hybrid_block(net, {images}, options).forward({images}).toTensor();
  const double range = theirs.abs().max().item<double>();
  EXPECT_LT(distance(tenth(low), theirs), 0.03 * range);
  EXPECT_GT(distance(tenth(low), theirs), 1e-5 * range);  // else nothing was computed in 16 bits
}

TEST(Ssd512, FindsTheSameParameterUnderEachNameOfMxnet) {
  for (const char* name :
       {"arg:ssd0_resnetv10_stage1_conv0_weight", "features.resnetv10_stage1_conv0_weight",
        "ssd12_resnetv13_stage1_conv0_weight", "features.stage1.conv0.weight"}) {
    EXPECT_EQ(common_name(name), "stage1_conv0_weight") << name;
  }
  EXPECT_EQ(common_name("aux:ssd0_expand_trans_bn2_moving_var"), "expand_trans_bn2_running_var");
  EXPECT_EQ(common_name("expand_trans_bn2.running_var"), "expand_trans_bn2_running_var");
  EXPECT_EQ(common_name("arg:ssd0_convpredictor7_conv0_bias"), "box_predictors_3_bias");
  EXPECT_EQ(common_name("box_predictors.3.predictor.bias"), "box_predictors_3_bias");
  EXPECT_EQ(common_name("class_predictors.3.bias"), "class_predictors_3_bias");
  EXPECT_EQ(common_name("aux:ssd0_ssdanchorgenerator2_anchor_2"), "anchors");
  EXPECT_EQ(common_name("anchor_generators.2.anchors"), "anchors");
  EXPECT_EQ(common_name("arg:resnetv10_dense0_bias"), "output_bias");
}

class Folder {
 public:
  Folder() : path(std::filesystem::temp_directory_path() / "mezzo_ssd512_test") {
    std::filesystem::create_directories(path);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const mezzo::Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

std::map<std::string, int> operators_of(const mezzo::convert::mxnet::Symbol& symbol) {
  std::map<std::string, int> counts;
  for (const auto& node : symbol.nodes()) ++counts[node.op];
  return counts;
}

TEST(Ssd512, InferenceLeavesTheConvertedModelsBehind) {
  namespace mx = mezzo::convert::mxnet;
  const Folder folder;
  InferenceSettings settings;
  settings.data_shape = 32;
  settings.folder = folder.path;
  testing::internal::CaptureStdout();
  convert_and_infer(settings);
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_THAT(text, testing::HasSubstr("conv0_weight is bfloat16, fc1_bias is float32\n"));
  EXPECT_TRUE(std::filesystem::exists(folder.path / "amp_tutorial_resnet50.pt"));

  const mx::Checkpoint saved =
      mx::load_checkpoint((folder.path / "amp_tutorial_model").string(), 0);
  const auto operators = operators_of(saved.symbol);
  EXPECT_EQ(operators.at("Convolution"), 20);  // of ResNet-18, three of them shortcuts
  EXPECT_GE(operators.at("amp_cast"), 2);
  for (const std::string& name : saved.arg_params.names()) {
    const bool is_convolution = saved.arg_params.shape(name).size() == 4;
    EXPECT_EQ(saved.arg_params.dtype(name), is_convolution ? "bfloat16" : "float32") << name;
  }
  for (const std::string& name : saved.aux_params.names())
    EXPECT_EQ(saved.aux_params.dtype(name), "float32") << name;
}

TEST(Ssd512, InferenceConvertsASymbolThatMxnetSaved) {
  namespace mx = mezzo::convert::mxnet;
  const Folder folder;
  InferenceSettings settings;
  settings.data_shape = 32;
  settings.folder = folder.path;
  settings.model = (folder.path / "net").string();
  const auto infer = [&] { convert_and_infer(settings); };
  EXPECT_THAT(message_of(infer), testing::HasSubstr("net-symbol.json"));

  mx::Checkpoint model = make_resnet18();
  mx::save_checkpoint(settings.model, 0, model);
  EXPECT_EQ(message_of(infer), "nothing was thrown");

  // Without the layers whose types the tutorial asserts.
  model.symbol = mx::Symbol(
      {{.op = "null", .name = "data"}, {.op = "relu", .name = "relu0", .inputs = {{0, 0, 0}}}},
      {{1, 0, 0}});
  model.arg_params = model.aux_params = {};
  mx::save_checkpoint(settings.model, 0, model);
  EXPECT_THAT(message_of(infer), testing::HasSubstr("no parameter 'conv0_weight'"));
}

TEST(Ssd512, ReadsTheWeightsThatItsLayersNeedAndNoOthers) {
  namespace mx = mezzo::convert::mxnet;
  const Folder folder;
  const std::string file = (folder.path / "net.params").string();
  MxBatchNorm norm(2, 1e-5);
  const auto array = [](float first, float second) {
    const float values[] = {first, second};
    return std::string(reinterpret_cast<const char*>(values), sizeof values);
  };
  mx::NDArrays arrays;
  const auto load = [&] {
    arrays.save(file);
    load_mxnet_weights(*norm, file);
  };
  arrays.set("arg:gamma", "float32", {2}, array(3, 4));
  arrays.set("arg:beta", "float32", {2}, array(5, 6));
  arrays.set("aux:moving_mean", "float32", {2}, array(7, 8));
  EXPECT_THAT(message_of(load), testing::HasSubstr("has no parameter like 'running_var'"));
  EXPECT_EQ(norm->gamma[0].item<float>(), 1);  // nothing was copied
  arrays.set("aux:moving_var", "float32", {2, 1}, array(9, 10));
  EXPECT_THAT(message_of(load), testing::HasSubstr("has the shape (2, 1), expected (2)"));
  arrays.set("aux:moving_var", "float32", {2}, array(9, 10));
  load();
  EXPECT_EQ(norm->gamma[1].item<float>(), 4);
  EXPECT_EQ(norm->running_var[1].item<float>(), 10);
  arrays.set("arg:other", "float32", {2}, array(9, 10));
  EXPECT_THAT(message_of(load), testing::HasSubstr("no parameter like 'arg:other'"));
}

TEST(Ssd512, RefusesABatchWhoseTargetsDoNotFitItsImages) {
  const Folder folder;
  const std::string file = (folder.path / "batch.safetensors").string();
  torch::OrderedDict<std::string, at::Tensor> tensors;
  tensors.insert("data", torch::zeros({1, 3, kSide, kSide}));
  tensors.insert("cls_targets", torch::zeros({1, kAnchors}));
  const auto load = [&] {
    mezzo::save_safetensors(file, tensors);
    SyntheticDataLoader(file, 2);
  };
  EXPECT_THAT(message_of(load), testing::HasSubstr("has no tensor 'box_targets'"));
  tensors.insert("box_targets", torch::zeros({1, kAnchors + 1, 4}));
  EXPECT_THAT(message_of(load), testing::HasSubstr("box_targets [1, 108, 4]"));
  tensors["box_targets"] = torch::zeros({1, kAnchors, 4});
  mezzo::save_safetensors(file, tensors);
  SyntheticDataLoader loader(file, 2);
  EXPECT_TRUE(loader.next() && loader.next());
  EXPECT_FALSE(loader.next());
  EXPECT_TRUE(loader.next());
}

TEST(Ssd512, KeepsStatisticsAsMxnetDoes) {
  MxBatchNorm norm(1, 1e-3);
  norm(torch::tensor({1.0F, 3.0F}).reshape({2, 1, 1, 1}));
  EXPECT_FLOAT_EQ(norm->running_mean.item<float>(), 0.2F);
  EXPECT_FLOAT_EQ(norm->running_var.item<float>(),
                  1.0F);  // 0.9 * 1 + 0.1 * 1: not divided by n - 1
  const at::Tensor alone = norm(torch::full({1, 1, 1, 1}, 5.0F));
  EXPECT_NEAR(alone.item<float>(), 0, 1e-4);
  EXPECT_FLOAT_EQ(norm->running_var.item<float>(), 0.9F);
}

TEST(Ssd512, PutsBothRunsBesideTheTutorials) {
  RunResults full{.dtype = "float32", .lines = {{49, 10, 2, 1}}};
  RunResults low{.dtype = "bfloat16", .lines = {{49, 20, 1.98, 1.01}}};
  EXPECT_EQ(full.lines[0].text(),
            "INFO:root:[Epoch 0][Batch 49], Speed: 10.000 samples/sec, CrossEntropy=2.000, "
            "SmoothL1=1.000");
  EXPECT_NEAR(largest_gap(full, low), 0.01, 1e-9);
  const std::string table = to_table(full, low);
  EXPECT_THAT(table, testing::HasSubstr("      49 |     10.000    2.000    1.000 |     20.000    "
                                        "1.980    1.010 |   1.00 %\nspeed: 2.00x"));
  EXPECT_THAT(table, testing::HasSubstr("     199 |     58.422    0.396    0.399 |     93.674"));
  EXPECT_THAT(table, testing::EndsWith("speed: 1.60x\n"));
}

}  // namespace
}  // namespace examples
