// The converter in C: texts become options, answers and errors become texts.
#include <cstdlib>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "convert/options_json.h"
#include "core/raise.h"
#include "mezzo/convert.h"
#include "mezzo/convert_c.h"
#include "mezzo/version.h"

namespace mezzo::convert {
namespace {

using CJson = nlohmann::ordered_json;

// Thrown through the converter where the caller's function ends it.
struct StoppedByCaller {};

char* copy_of(const std::string& text) {
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy != nullptr) std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

// Runs `work`, which returns the answer; nothing is thrown into C.
template <typename Work>
int answered(char** answer, const Work& work) noexcept {
  const auto say = [&](const char* text, int code) {
    *answer = copy_of(text);
    return code;
  };
  *answer = nullptr;
  try {
    *answer = copy_of(work());
    return *answer == nullptr ? MEZZO_FAILED : MEZZO_DONE;
  } catch (const StoppedByCaller&) {
    return say("stopped", MEZZO_STOPPED);
  } catch (const ConfigError& error) {
    return say(error.what(), MEZZO_WRONG_USAGE);
  } catch (const UnsupportedError& error) {
    return say(error.what(), MEZZO_UNSUPPORTED);
  } catch (const std::exception& error) {
    return say(error.what(), MEZZO_FAILED);
  } catch (...) {
    return say("an unknown error", MEZZO_FAILED);
  }
}

std::string given(const char* text, const char* what) {
  if (text == nullptr) raise<ConfigError>("convert", what, " is NULL; expected a text");
  return text;
}

// A short conversion reports once as well, so that a caller can end it.
std::function<void(std::string_view, double)> reported_to(mezzo_progress progress, void* own) {
  if (progress == nullptr) return {};
  const auto report = [=](std::string_view what, double share) {
    if (progress(std::string(what).c_str(), share, own) != 0) throw StoppedByCaller{};
  };
  report("reading", 0);
  return report;
}

std::string text_of_result(const Result& result) {
  return CJson{{"plan", CJson::parse(result.plan.to_json())},
               {"report", CJson::parse(result.report.to_json())}}
      .dump();
}

CJson list_of(const std::string& list, const std::string& dtype) {
  if (list == "lp16_ops") return list_lp16_ops(dtype);
  if (list == "fp32_ops") return list_fp32_ops(dtype);
  if (list == "lp16_fp32_ops") return list_lp16_fp32_ops(dtype);
  if (list == "widest_type_cast") return list_widest_type_cast(dtype);
  if (list == "conditional_fp32_ops") {
    CJson conditions = CJson::array();
    for (const Conditional& condition : list_conditional_fp32_ops(dtype))
      conditions.push_back({condition.op, condition.attribute, condition.values});
    return conditions;
  }
  raise<ConfigError>("convert", "no list '", list,
                     "'; expected lp16_ops, fp32_ops, lp16_fp32_ops, widest_type_cast or "
                     "conditional_fp32_ops");
}

}  // namespace
}  // namespace mezzo::convert

namespace convert = mezzo::convert;

int mezzo_convert_model(const char* in, const char* out, const char* options,
                        mezzo_progress progress, void* own, char** answer) {
  return convert::answered(answer, [&] {
    convert::Options read = convert::options_from_json(options == nullptr ? "{}" : options);
    read.progress = convert::reported_to(progress, own);
    return convert::text_of_result(
        convert::convert_model(convert::given(in, "in"), convert::given(out, "out"), read));
  });
}

int mezzo_plan_model(const char* in, const char* options, mezzo_progress progress, void* own,
                     char** answer) {
  return convert::answered(answer, [&] {
    convert::Options read = convert::options_from_json(options == nullptr ? "{}" : options);
    read.progress = convert::reported_to(progress, own);
    return convert::plan_model(convert::given(in, "in"), read).to_json();
  });
}

int mezzo_apply_plan(const char* in, const char* out, const char* plan, const char* judges,
                     mezzo_progress progress, void* own, char** answer) {
  return convert::answered(answer, [&] {
    convert::Judges read = convert::judges_from_json(judges == nullptr ? "{}" : judges);
    read.progress = convert::reported_to(progress, own);
    return convert::text_of_result(
        convert::apply_plan(convert::given(in, "in"), convert::given(out, "out"),
                            convert::Plan::from_json(convert::given(plan, "plan")), read));
  });
}

int mezzo_inspect_model(const char* path, char** answer) {
  return convert::answered(
      answer, [&] { return convert::inspect_model(convert::given(path, "path")).to_json(); });
}

int mezzo_list(const char* list, const char* dtype, char** answer) {
  return convert::answered(answer, [&] {
    return convert::list_of(convert::given(list, "list"), convert::given(dtype, "dtype")).dump();
  });
}

const char* mezzo_version(void) {
  static const std::string version = mezzo::version();
  return version.c_str();
}

void mezzo_free(char* answer) {
  std::free(answer);
}
