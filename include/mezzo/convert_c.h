// mezzo/convert_c.h: the converter for other languages, in C. Texts go in and come out;
// mezzo/convert.h says what they mean.
//
//   char* answer = NULL;
//   const int code = mezzo_convert_model("net.onnx", "net16.onnx", "{\"profile\": \"ort\"}", NULL,
//   NULL,
//                                        &answer);
//   show(code == MEZZO_DONE ? "converted" : answer);
//   mezzo_free(answer);
//
// All texts are UTF-8 and end with a zero. Functions may be called from several threads at once.
#pragma once

#include "mezzo/export.h"

/// Done: the answer is JSON.
#define MEZZO_DONE 0
/// A file cannot be read or written, or a judge does not accept: the answer is the message.
#define MEZZO_FAILED 1
/// The request cannot be met: the answer is the message.
#define MEZZO_WRONG_USAGE 2
/// The model holds what is not supported: the answer is the message.
#define MEZZO_UNSUPPORTED 3
/// The progress function ended it: nothing was written.
#define MEZZO_STOPPED 4

#ifdef __cplusplus
extern "C" {
#endif

/// Called from the calling thread with what is being done, how much of it is done (0 to 1), and the
/// caller's own pointer. Anything but 0 ends the conversion. Must not throw.
// NOLINTNEXTLINE(modernize-use-using): this header is C too
typedef int (*mezzo_progress)(const char* what, double share, void* own);

/// mezzo::convert::convert_model(). `options` is a JSON object with members of Options by name, all
/// but functions; paths are texts, conditions [operator, attribute, [value, ...]], regions
/// [from, to]. NULL means none. The answer is {"plan": ..., "report": ...}.
/// Each function returns one of the codes above and sets `answer`, which mezzo_free() frees.
MEZZO_API int mezzo_convert_model(const char* in, const char* out, const char* options,
                                  mezzo_progress progress, void* own, char** answer);

/// mezzo::convert::plan_model(). The answer is the plan.
MEZZO_API int mezzo_plan_model(const char* in, const char* options, mezzo_progress progress,
                               void* own, char** answer);

/// mezzo::convert::apply_plan(). `judges` holds members of Judges as `options` above holds those of
/// Options. The answer is {"plan": ..., "report": ...}.
MEZZO_API int mezzo_apply_plan(const char* in, const char* out, const char* plan,
                               const char* judges, mezzo_progress progress, void* own,
                               char** answer);

/// mezzo::convert::inspect_model(). The answer is what Inspection::to_json() gives.
MEZZO_API int mezzo_inspect_model(const char* path, char** answer);

/// The default list of that name ("lp16_ops", "fp32_ops", "lp16_fp32_ops", "widest_type_cast",
/// "conditional_fp32_ops") for "float16" or "bfloat16". The answer is an array of names, or of
/// conditions as above.
MEZZO_API int mezzo_list(const char* list, const char* dtype, char** answer);

/// The version of the library, such as "0.1.0", which nobody frees.
MEZZO_API const char* mezzo_version(void);

/// Frees an answer. NULL is allowed.
MEZZO_API void mezzo_free(char* answer);

#ifdef __cplusplus
}
#endif
