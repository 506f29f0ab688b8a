#include "convert/rewrite/candidate.h"

#include <algorithm>

#include "convert/onnx/store.h"
#include "convert/prepare/fold_batch_norm.h"

namespace mezzo::convert {

void write_candidate(const std::shared_ptr<ModelFile>& original, const OpsetChoice& opset,
                     const ConvertPolicy& policy, const Evidence& evidence, Storage storage,
                     const std::filesystem::path& path) {
  std::vector<BatchNormFold> folds;
  const std::unique_ptr<Document> opened =
      prepared(original, {opset.opset, policy.options().fold_batch_norm}, &folds);
  Document& document = *opened;
  const bool is_folded = any_folded(folds);
  const Graph graph(document, policy.custom_operators());
  Constants constants(graph, policy.low());
  const Decisions decisions = decide(graph, policy, constants, evidence);
  // Folding leaves fewer tensors that point to a file.
  const bool external = has_external(is_folded ? *raised(original, 0) : document);
  const Changes changes = apply(document, graph, decisions, constants, policy.low(), storage);
  if (is_unchanged(document, opset, is_folded, decisions, changes)) {
    copy_model(opset.for_age ? *raised(original, 0) : document, path);
  } else {
    store_model(document, path, external);
  }
}

bool is_unchanged(Document& document, const OpsetChoice& opset, bool is_folded,
                  const Decisions& decisions, const Changes& changes) {
  if (document.model().is_clean()) return true;
  return opset.for_age && changes.low_weights == 0 && !is_folded &&
         std::ranges::none_of(decisions.low, [](bool low) { return low; });
}

Storage storage_of(const Options& options) {
  if (options.weights_only) return Storage::kWeightsOnly;
  return options.cast_optional_params ? Storage::kConverted : Storage::kRuntimeCast;
}

}  // namespace mezzo::convert
