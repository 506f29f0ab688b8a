// The image loader of examples/imagenet on one core, against libjpeg-turbo's own decoding of the
// same files from memory: seconds per image.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

// After <cstdio>: it uses its types without naming them.
#include <jpeglib.h>

#include "harness.h"
#include "imagenet/data/jpeg.h"
#include "imagenet/data/loader.h"
#include "imagenet/data/random.h"
#include "imagenet/data/read_image.h"
#include "imagenet/data/write_jpeg.h"
#include "suites.h"

namespace mezzo::bench {
namespace {

namespace fs = std::filesystem;
namespace images = examples::imagenet;

constexpr int kImages = 32, kSide = 224;

/// A file as ImageNet has them: 500 x 375 pixels, some 100 kB. Waves of many lengths and noise.
void write_photograph(const fs::path& file, std::uint64_t seed) {
  constexpr int kWidth = 500, kHeight = 375, kWaves = 12, kNoise = 24;
  images::Random random({seed});
  double x_speed[kWaves], y_speed[kWaves], begin[3 * kWaves];
  for (double& speed : x_speed) speed = random.uniform(0, 0.5);
  for (double& speed : y_speed) speed = random.uniform(0, 0.5);
  for (double& phase : begin) phase = random.uniform(0, 6);
  std::vector<std::uint8_t> rgb;
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) {
      for (int c = 0; c < 3; ++c) {
        double value = 128 + static_cast<double>(random.below(kNoise));
        for (int i = 0; i < kWaves; ++i)
          value += 12 * std::sin(x * x_speed[i] + y * y_speed[i] + begin[3 * i + c]);
        rgb.push_back(static_cast<std::uint8_t>(std::clamp(value, 0., 255.)));
      }
    }
  }
  images::write_jpeg(file, {.width = kWidth, .height = kHeight, .quality = 90}, rgb);
}

/// Every photograph that Debian's packages of desktop backgrounds have brought.
std::vector<fs::path> installed_photographs() {
  std::vector<fs::path> found;
  std::error_code failure;
  for (const char* folder : {"/usr/share/backgrounds", "/usr/share/wallpapers"}) {
    for (fs::recursive_directory_iterator entry(folder, failure), end; !failure && entry != end;
         entry.increment(failure)) {
      if (entry->path().extension() == ".jpg" && entry->is_regular_file())
        found.push_back(entry->path());
    }
  }
  std::sort(found.begin(), found.end());
  if (found.size() > kImages) found.resize(kImages);
  return found;
}

/// As a program that uses libjpeg-turbo alone does it.
void decode_whole(const std::string& bytes, std::vector<unsigned char>& rgb) {
  jpeg_decompress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&jpeg);
  jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(&jpeg, TRUE);
  jpeg.out_color_space = JCS_RGB;
  jpeg_start_decompress(&jpeg);
  const std::size_t row = std::size_t{3} * jpeg.output_width;
  rgb.resize(row * jpeg.output_height);
  while (jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW target = rgb.data() + row * jpeg.output_scanline;
    jpeg_read_scanlines(&jpeg, &target, 1);
  }
  jpeg_finish_decompress(&jpeg);
  jpeg_destroy_decompress(&jpeg);
}

/// Batches of all files by one worker.
void load_all(const std::vector<fs::path>& files, bool training) {
  images::Loader loader({.batch_size = static_cast<int>(files.size()),
                         .image_bytes = std::size_t{3} * kSide * kSide,
                         .workers = 1,
                         .skip_bad = false});
  std::vector<std::int64_t> items;
  for (std::size_t i = 0; i < files.size(); ++i) items.push_back(static_cast<std::int64_t>(i));
  loader.begin(items, [&](std::int64_t item, std::uint8_t* into) -> std::int64_t {
    const fs::path& file = files[static_cast<std::size_t>(item)];
    const images::Reading reading{.side = kSide, .centre_share = 224. / 256};
    if (training) {
      images::read_for_training(file, reading, images::Random({static_cast<std::uint64_t>(item)}),
                                into);
    } else {
      images::read_for_evaluation(file, reading, into);
    }
    return 0;
  });
  while (loader.next()) {
  }
}

void compare(Report& report, const Settings& settings, const std::string& what,
             const std::vector<fs::path>& files) {
  std::vector<std::string> bytes;
  bytes.reserve(files.size());
  for (const fs::path& file : files) bytes.push_back(images::read_file(file));
  std::vector<unsigned char> rgb;
  const auto peer = [&] {
    for (const std::string& each : bytes) decode_whole(each, rgb);
  };
  for (const bool training : {true, false}) {
    const std::string name = what + (training ? ", cut for training" : ", for evaluation");
    if (!settings.wants(name)) continue;
    const Pair pair = interleave([&] { load_all(files, training); }, peer, settings.repeats);
    const auto count = static_cast<double>(files.size());
    constexpr double kTarget = 0.85;
    report.add({.name = name,
                .ours = pair.ours / count,
                .peer = pair.peer / count,
                .peer_name = "libjpeg-turbo",
                .spread = pair.spread,
                .target = kTarget});
  }
}

}  // namespace

void run_data(Report& report, const Settings& settings) {
  report.heading("a batch of images on one core, against decoding them alone; seconds per image");
  const fs::path folder = fs::temp_directory_path() / "mezzo_bench_data";
  fs::create_directories(folder);
  std::vector<fs::path> files;
  for (int i = 0; i < kImages; ++i) {
    files.push_back(folder / (std::to_string(i) + ".jpg"));
    write_photograph(files.back(), static_cast<std::uint64_t>(i));
  }
  compare(report, settings, "made-up photographs of 500 x 375", files);
  const std::vector<fs::path> installed = installed_photographs();
  if (!installed.empty()) compare(report, settings, "installed photographs", installed);
  fs::remove_all(folder);
}

}  // namespace mezzo::bench
