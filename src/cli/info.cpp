// mezzo info
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iomanip>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/command.h"
#include "cli/text_table.h"
#include "cli/torch_part.h"
#include "mezzo/error.h"
#include "mezzo/report.h"

namespace mezzo::cli {
namespace {

using Json = nlohmann::ordered_json;

/// The part that needs no LibTorch.
Json machine() {
  const report::Machine here = report::this_machine();
  Json info;
  info["versions"] = here.versions;
  info["versions"]["libtorch"] = nullptr;
  info["devices"] =
      Json::array({{{"type", "cpu"}, {"name", here.processor}, {"cores", here.cores}}});
  info["isa"] = here.instruction_sets;
  info["rates"] = nullptr;
  info["compute"] = nullptr;
  return info;
}

void add_torch(const Json& torch, Json& info) {
  info["versions"]["libtorch"] = torch["libtorch"];
  for (const Json& device : torch["devices"]) {
    if (device["type"] == "cpu") {
      info["devices"][0].update(device);
    } else {
      info["devices"].push_back(device);
    }
  }
  for (const char* key : {"rates", "compute", "kernel_set", "kernel_sets", "cuda_kernels",
                          "kernel_proofs", "absent"}) {
    info[key] = torch[key];
  }
}

std::string words(const Json& list) {
  std::string text;
  for (const Json& item : list) (text += text.empty() ? "" : " ") += item.get<std::string>();
  return text;
}

std::string rounded(double value) {
  std::ostringstream text;
  text << std::setprecision(3) << value;
  return text.str();
}

/// A line for each device's proven families, and one for each that failed.
void print_proofs(const Json& proofs, TextTable& table) {
  std::map<std::string, std::string> proven;
  for (const Json& proof : proofs) {
    const auto device = proof["device"].get<std::string>();
    const auto family = proof["family"].get<std::string>();
    std::string& families = proven[device];
    if (proof["holds"].get<bool>()) {
      families += (families.empty() ? "" : ", ") + family;
    } else {
      const auto difference = proof["difference"].get<std::string>();
      table.add({"kernels on " + device,
                 family + " are not used: " + (difference.empty() ? "not proven" : difference)});
    }
  }
  for (const auto& [device, families] : proven) {
    table.add({"proven on " + device, families.empty() ? "none" : families});
  }
}

void print_torch(const Json& info, TextTable& table) {
  table.add({"kernels",
             info["kernel_set"].get<std::string>() + " (of " + words(info["kernel_sets"]) + ")"});
  if (info["cuda_kernels"].get<bool>()) table.add({"CUDA kernels", "loaded"});
  print_proofs(info["kernel_proofs"], table);
  for (const auto& [dtype, rate] : info["rates"].items()) {
    if (!rate.is_number()) continue;
    table.add({dtype, rounded(rate.get<double>()) + " GFLOP/s in products, one thread"});
  }
  for (const auto& [dtype, compute] : info["compute"].items()) {
    table.add(
        {dtype, compute["mode"].get<std::string>() + ": " + compute["why"].get<std::string>()});
    for (const Json& device : compute["cuda"]) table.add({dtype, device.get<std::string>()});
  }
  for (const Json& missing : info["absent"]) {
    table.add(
        {"without " + missing["what"].get<std::string>(), missing["cost"].get<std::string>()});
  }
}

void print(const Json& info) {
  const Json& libtorch = info["versions"]["libtorch"];
  TextTable table({"mezzo", info["versions"]["mezzo"].get<std::string>()});
  table.add({"compiler", info["versions"]["compiler"].get<std::string>()});
  table.add({"libtorch", libtorch.is_null() ? "not loaded" : libtorch.get<std::string>()});
  for (const Json& device : info["devices"]) {
    std::string text = device.value("name", "");
    if (device.contains("cores")) text += ", " + device["cores"].dump() + " cores";
    if (device.contains("threads")) text += ", " + device["threads"].dump() + " threads";
    if (device.contains("index")) text += "device " + device["index"].dump();
    table.add({device["type"].get<std::string>(), text});
  }
  table.add({"isa", words(info["isa"])});
  if (!libtorch.is_null()) print_torch(info, table);
  table.print(std::cout);
}

struct InfoOptions {
  bool json = false;
};

int run(const InfoOptions& options) {
  Json info = machine();
  int code = kDone;
  try {
    add_torch(ask_torch("info", nullptr), info);
  } catch (const UnsupportedError& error) {
    std::cerr << "mezzo info: " << error.what() << '\n';
    code = kFailed;  // what is known without it is shown all the same
  }
  if (options.json) {
    std::cout << info.dump(2) << '\n';
  } else {
    print(info);
  }
  return code;
}

}  // namespace

Action setup_info(CLI::App& app) {
  const auto options = std::make_shared<InfoOptions>();
  app.add_flag("--json", options->json, "Print JSON");
  return [options] { return run(*options); };
}

}  // namespace mezzo::cli
